// Moves, loads and stores of the state spaces, atomics, asynchronous copies.
#include <algorithm>
#include <cstring>

#include "ptx/rules.h"

namespace llmgen::ptx {

namespace {

template <int kParts>
void unpack(Context& c, const Op& o) {
    const i32* to = &c.kernel->more[std::size_t(o.more)];
    const u64 value = c.R[o.a];
    const int bits = o.bytes * 8;
    for (int i = 0; i < kParts; ++i) {
        c.R[to[i]] = value >> (bits * i) & ((1ull << bits) - 1);
        c.U[to[i]] = c.U[o.a];
    }
}
template <int kParts>
void pack(Context& c, const Op& o) {
    const i32* from = &c.kernel->more[std::size_t(o.more)];
    const int bits = o.bytes * 8;
    u64 value = 0;
    u8 undefined = 0;
    for (int i = 0; i < kParts; ++i) {
        value |= (c.R[from[i]] & ((1ull << bits) - 1)) << (bits * i);
        undefined |= c.U[from[i]];
    }
    c.R[o.d] = value;
    c.U[o.d] = undefined;
}

enum class Space { global, shared, local, generic };

template <typename T>
void set_loaded(Context& c, i32 slot, const char* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    if constexpr (std::is_signed_v<T>)
        c.R[slot] = u64(i64(value));
    else
        c.R[slot] = u64(value);
}
template <Space kSpace, int kParts, typename T>
void load(Context& c, const Op& o) {
    c.want_defined(o, o.a, "the address");
    constexpr int kBytes = kParts * int(sizeof(T));
    u8 undefined = 0;
    const u64 base = kSpace == Space::shared ? u64(u32(c.R[o.a] + u64(o.offset))) : c.R[o.a] + u64(o.offset);
    const char* p;
    if constexpr (kSpace == Space::global)
        p = c.read_global(o, base, kBytes, undefined);
    else if constexpr (kSpace == Space::shared)
        p = c.read_shared(o, base, kBytes, undefined);
    else if constexpr (kSpace == Space::local)
        p = c.read_local(o, base, kBytes, undefined);
    else
        p = c.read(o, base, kBytes, undefined);
    if constexpr (kParts == 1) {
        set_loaded<T>(c, o.d, p);
        c.U[o.d] = undefined;
    } else {
        const i32* to = &c.kernel->more[std::size_t(o.more)];
        for (int i = 0; i < kParts; ++i) {
            set_loaded<T>(c, to[i], p + std::size_t(i) * sizeof(T));
            c.U[to[i]] = undefined;
        }
    }
}
/// A load that says its memory stays as it is for as long as the kernel runs.
template <int kParts, typename T>
void load_read_only(Context& c, const Op& o) {
    const u64 address = c.R[o.a] + u64(o.offset);  // the load may write the register
    load<Space::global, kParts, T>(c, o);
    c.mark_read_only(o, address, kParts * int(sizeof(T)));
}
template <int kParts, typename T>
void load_parameter(Context& c, const Op& o) {
    c.want_defined(o, o.a, "the address");
    const std::size_t at = c.R[o.a] + std::size_t(o.offset);
    if (at > c.launch->parameters.size() || at + kParts * sizeof(T) > c.launch->parameters.size() ||
        at % (kParts * sizeof(T)) != 0)
        c.fault(o, "reads past the parameters, or askew");
    const char* p = c.launch->parameters.data() + at;
    if constexpr (kParts == 1) {
        set_loaded<T>(c, o.d, p);
        c.U[o.d] = 0;
    } else {
        const i32* to = &c.kernel->more[std::size_t(o.more)];
        for (int i = 0; i < kParts; ++i) {
            set_loaded<T>(c, to[i], p + std::size_t(i) * sizeof(T));
            c.U[to[i]] = 0;
        }
    }
}
template <Space kSpace, int kParts, typename T>
void store(Context& c, const Op& o) {
    c.want_defined(o, o.a, "the address");
    constexpr int kBytes = kParts * int(sizeof(T));
    char buffer[kBytes];
    bool undefined = false;
    const i32* from = kParts == 1 ? &o.b : &c.kernel->more[std::size_t(o.more)];
    for (int i = 0; i < kParts; ++i) {
        const T value = T(c.R[from[i]]);
        std::memcpy(buffer + std::size_t(i) * sizeof(T), &value, sizeof(T));
        undefined |= c.U[from[i]] != 0;
    }
    const u64 base = kSpace == Space::shared ? u64(u32(c.R[o.a] + u64(o.offset))) : c.R[o.a] + u64(o.offset);
    char* p;
    if constexpr (kSpace == Space::global) {
        if (undefined) c.fault(o, "what it stores comes from a register or memory that nobody has set");
        p = c.write_global(o, base, kBytes);
    } else if constexpr (kSpace == Space::shared) {
        p = c.write_shared(o, base, kBytes, undefined);
    } else if constexpr (kSpace == Space::local) {
        p = c.write_local(o, base, kBytes, undefined);
    } else {
        p = c.write(o, base, kBytes, undefined);
    }
    std::memcpy(p, buffer, kBytes);
}
template <Space kSpace, typename T, auto F>
void atomic(Context& c, const Op& o) {
    c.want_defined(o, o.a, "the address");
    c.want_defined(o, o.b, "the operand");
    u8 undefined = 0;
    const u64 base = kSpace == Space::shared ? u64(u32(c.R[o.a] + u64(o.offset))) : c.R[o.a] + u64(o.offset);
    char* p;
    if constexpr (kSpace == Space::shared) {
        c.check_shared(o, base, sizeof(T));
        for (std::size_t i = 0; i < sizeof(T); ++i)
            undefined |= c.block->bytes[base + i] != Byte::defined ? 1 : 0;
        p = c.write_shared(o, base, sizeof(T), false, true);
    } else {
        c.read_global(o, base, sizeof(T), undefined);
        p = c.write_global(o, base, sizeof(T));
        c.launch->handovers.atomic(c.standing());
    }
    if (undefined != 0) c.fault(o, "the memory was never written");
    T old, operand;
    std::memcpy(&old, p, sizeof old);
    if constexpr (std::is_floating_point_v<T>)
        operand = c.get<T>(o.b);
    else
        operand = T(c.R[o.b]);
    const T value = F(old, operand);
    std::memcpy(p, &value, sizeof value);
    if (o.d >= 0) {
        c.set<T>(o.d, old);
        c.U[o.d] = 0;
    }
}

// --- asynchronous copies: the emulator keeps them and lands them at the wait

void copy_async(Context& c, const Op& o) {
    for (const i32 slot : {o.a, o.b}) c.want_defined(o, slot, "the address");
    int bytes = 16;
    if (o.c >= 0) {
        c.want_defined(o, o.c, "the size");
        bytes = c.get<i32>(o.c);
        if (bytes < 0 || bytes > 16) c.fault(o, "copies less than nothing or more than 16 bytes");
    }
    const u64 to = u32(c.R[o.a] + u64(o.offset)), from = c.R[o.b];
    char* target = c.write_shared(o, to, 16, true);
    std::fill_n(c.block->bytes.begin() + std::ptrdiff_t(to), 16, Byte::in_flight);
    u8 undefined = 0;
    if (bytes > 0) c.read_global(o, from, 16, undefined);
    if (undefined != 0) c.fault(o, "copies memory that nobody has written");
    if (from % 16 != 0) c.fault(o, "copies from an address that is not a multiple of 16");
    c.machine->copy_async(target, reinterpret_cast<const void*>(from), bytes, c.kernel->site(o));
}
void copy_commit(Context& c, const Op&) { c.machine->copy_commit(); }
void copy_wait(Context& c, const Op& o) {
    const int left = int(o.offset);
    for (const simt::AsyncCopy& copy : c.thread->copies) {
        if (copy.group >= c.thread->copy_group - left) continue;
        const auto at = static_cast<const char*>(copy.dst) - c.shared;
        std::fill_n(c.block->bytes.begin() + at, 16, Byte::defined);
        c.touch(o, u64(at), 16, true, false);
    }
    c.machine->copy_wait(left);
}

void to_generic(Context& c, const Op& o, u64 window) {
    c.R[o.d] = c.R[o.a] + window;
    c.U[o.d] = c.U[o.a];
}

template <Space kSpace, int kParts, typename T>
void add_access_of(Table& t, const std::string& space, const std::string& suffix) {
    const Class loads = kSpace == Space::shared  ? Class::shared_load
                        : kSpace == Space::local ? Class::local
                                                 : Class::global_load;
    const Class stores = kSpace == Space::shared  ? Class::shared_store
                         : kSpace == Space::local ? Class::local
                                                  : Class::global_store;
    const char* load_shape = kParts == 1 ? "dm" : kParts == 2 ? "2m" : "4m";
    const char* store_shape = kParts == 1 ? "mb" : kParts == 2 ? "m2" : "m4";
    const int bytes = kParts * int(sizeof(T));
    const Rule read{load<kSpace, kParts, T>, loads, load_shape, bytes};
    const Rule write{store<kSpace, kParts, T>, stores, store_shape, bytes};
    t["ld" + space + suffix] = read;
    t["st" + space + suffix] = write;
    if constexpr (kSpace == Space::global) {
        const Rule read_only{load_read_only<kParts, T>, loads, load_shape, bytes};
        t["ld.global.nc" + suffix] = read_only;
        t["ld.global.nc.L1::no_allocate" + suffix] = read_only;
        t["ld.global.L1::no_allocate" + suffix] = read;
        t["ld.global.cg" + suffix] = read;
    }
    if constexpr (kSpace == Space::global || kSpace == Space::generic) {
        // One thread runs at a time, so every access is ordered more strongly than any of these asks for.
        for (const std::string order : {".relaxed.gpu", ".acquire.gpu", ".volatile"}) {
            t["ld" + order + space + suffix] = read;
            t["st" + order + space + suffix] = write;
        }
        t["st.release.gpu" + space + suffix] = write;
    }
}
template <typename T>
void add_access(Table& t, const std::string& type) {
    add_access_of<Space::global, 1, T>(t, ".global", "." + type);
    add_access_of<Space::shared, 1, T>(t, ".shared", "." + type);
    add_access_of<Space::local, 1, T>(t, ".local", "." + type);
    add_access_of<Space::generic, 1, T>(t, "", "." + type);
    t["ld.param." + type] = {load_parameter<1, T>, Class::param, "dm"};
    if constexpr (std::is_unsigned_v<T> && sizeof(T) > 1) {
        add_access_of<Space::global, 2, T>(t, ".global", ".v2." + type);
        add_access_of<Space::shared, 2, T>(t, ".shared", ".v2." + type);
        add_access_of<Space::local, 2, T>(t, ".local", ".v2." + type);
        add_access_of<Space::generic, 2, T>(t, "", ".v2." + type);
        t["ld.param.v2." + type] = {load_parameter<2, T>, Class::param, "2m"};
        if constexpr (sizeof(T) <= 4) {
            add_access_of<Space::global, 4, T>(t, ".global", ".v4." + type);
            add_access_of<Space::shared, 4, T>(t, ".shared", ".v4." + type);
            add_access_of<Space::local, 4, T>(t, ".local", ".v4." + type);
            add_access_of<Space::generic, 4, T>(t, "", ".v4." + type);
            t["ld.param.v4." + type] = {load_parameter<4, T>, Class::param, "4m"};
        }
    }
}
template <typename T>
void add_atomics(Table& t, const std::string& type) {
    auto both = [&](const std::string& op, Execute global, Execute shared) {
        for (const std::string order : {"", ".relaxed.gpu"}) {
            t["atom" + order + ".global." + op + "." + type] = {global, Class::atomic, "dmb", int(sizeof(T))};
            t["red" + order + ".global." + op + "." + type] = {global, Class::atomic, "mb", int(sizeof(T))};
            t["atom" + order + ".shared." + op + "." + type] = {shared, Class::atomic, "dmb", int(sizeof(T))};
            t["red" + order + ".shared." + op + "." + type] = {shared, Class::atomic, "mb", int(sizeof(T))};
        }
    };
    both("add", atomic<Space::global, T, [](T a, T b) { return T(a + b); }>,
         atomic<Space::shared, T, [](T a, T b) { return T(a + b); }>);
    both("max", atomic<Space::global, T, maximum<T>>, atomic<Space::shared, T, maximum<T>>);
    both("min", atomic<Space::global, T, minimum<T>>, atomic<Space::shared, T, minimum<T>>);
    both("exch", atomic<Space::global, T, [](T, T b) { return b; }>,
         atomic<Space::shared, T, [](T, T b) { return b; }>);
}

void add_moves(Table& t) {
    for (const char* type : {"pred", "b16", "u16", "s16"})
        t[std::string("mov.") + type] = {unary<u16, u16, [](u16 a) { return a; }>, Class::move, "da"};
    for (const char* type : {"b32", "u32", "s32", "f32"})
        t[std::string("mov.") + type] = {unary<u32, u32, [](u32 a) { return a; }>, Class::move, "da"};
    for (const char* type : {"b64", "u64", "s64", "f64"})
        t[std::string("mov.") + type] = {unary<u64, u64, [](u64 a) { return a; }>, Class::move, "da"};
    t["mov.b64/unpack2"] = {unpack<2>, Class::move, "2a", 4};
    t["mov.b64/unpack4"] = {unpack<4>, Class::move, "4a", 2};
    t["mov.b32/unpack2"] = {unpack<2>, Class::move, "2a", 2};
    t["mov.b64/pack2"] = {pack<2>, Class::move, "d2", 4};
    t["mov.b64/pack4"] = {pack<4>, Class::move, "d4", 2};
    t["mov.b32/pack2"] = {pack<2>, Class::move, "d2", 2};
    for (const char* name : {"cvta.to.global.u64", "cvta.global.u64"})
        t[name] = {unary<u64, u64, [](u64 a) { return a; }>, Class::move, "da"};
    t["cvta.shared.u64"] = {[](Context& c, const Op& o) { to_generic(c, o, kSharedWindow); }, Class::move,
                            "da"};
    t["cvta.local.u64"] = {[](Context& c, const Op& o) { to_generic(c, o, kLocalWindow); }, Class::move,
                           "da"};
    t["cvta.to.shared.u64"] = {[](Context& c, const Op& o) { to_generic(c, o, -kSharedWindow); }, Class::move,
                               "da"};
    t["cvta.to.local.u64"] = {[](Context& c, const Op& o) { to_generic(c, o, -kLocalWindow); }, Class::move,
                              "da"};
}

void add_copies(Table& t) {
    t["cp.async.cg.shared.global"] = {copy_async, Class::async_copy, "mnsc", 16};
    t["cp.async.cg.shared.global/3"] = {copy_async, Class::async_copy, "mns", 16};
    t["cp.async.commit_group"] = {copy_commit, Class::async_copy, ""};
    t["cp.async.wait_group"] = {copy_wait, Class::async_copy, "i"};
}

}  // namespace

void add_memory_rules(Table& t) {
    for (const char* type : {"u8", "b8"}) add_access<u8>(t, type);
    add_access<std::int8_t>(t, "s8");
    for (const char* type : {"u16", "b16"}) add_access<u16>(t, type);
    add_access<i16>(t, "s16");
    for (const char* type : {"u32", "b32", "f32"}) add_access<u32>(t, type);
    add_access<i32>(t, "s32");
    for (const char* type : {"u64", "b64", "f64"}) add_access<u64>(t, type);
    add_access<i64>(t, "s64");
    add_atomics<u32>(t, "u32");
    add_atomics<i32>(t, "s32");
    add_atomics<u64>(t, "u64");
    add_atomics<float>(t, "f32");
    add_atomics<u32>(t, "b32");
    add_atomics<u64>(t, "b64");
    add_moves(t);
    add_copies(t);
}

}  // namespace llmgen::ptx
