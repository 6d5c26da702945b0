// What each opcode does: the table behind find_rule. Arithmetic is as the PTX ISA documents it:
//
//   add, sub, mul, div, sqrt, rcp, fma of f32 and f64   correctly rounded, subnormals kept, one rounding for
//   fma;
//     nothing is contracted that the PTX doesn't contract. A NaN result is 0x7fffffff.
//   ex2.approx.ftz.f32   documented: 2 ulp. Here the correctly rounded value; where the launch perturbs
//   (kernels
//     do), up to 2 ulp beside it, by a hash of the operand
//   lg2, rsqrt, rcp .approx.ftz.f32   likewise, 1 ulp
//   rcp.approx.ftz.f64   reads and writes the upper 32 bits alone
//   float to integer     saturates; NaN becomes 0 (64 bits: the sign bit alone)
#include <cfenv>
#include <cmath>
#include <limits>

#include "base/dtype.h"
#include "ptx/context.h"

namespace llmgen::ptx {

namespace {

using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

template <typename T>
T canonical(T value) {
    if constexpr (std::is_same_v<T, float>) {
        if (std::isnan(value)) return std::bit_cast<float>(0x7fffffffu);
    } else if constexpr (std::is_same_v<T, double>) {
        if (std::isnan(value)) return std::bit_cast<double>(0x7fffffffffffffffull);
    }
    return value;
}

template <typename To, typename From, auto F>
void unary(Context& c, const Op& o) {
    c.set<To>(o.d, canonical<To>(F(c.get<From>(o.a))));
    c.U[o.d] = c.U[o.a];
}
template <typename T, auto F>
void binary(Context& c, const Op& o) {
    c.set<T>(o.d, canonical<T>(F(c.get<T>(o.a), c.get<T>(o.b))));
    c.U[o.d] = c.U[o.a] | c.U[o.b];
}
template <typename T, auto F>
void ternary(Context& c, const Op& o) {
    c.set<T>(o.d, canonical<T>(F(c.get<T>(o.a), c.get<T>(o.b), c.get<T>(o.c))));
    c.U[o.d] = c.U[o.a] | c.U[o.b] | c.U[o.c];
}
template <typename To, typename From>
void multiply_wide(Context& c, const Op& o) {
    c.set<To>(o.d, To(To(c.get<From>(o.a)) * To(c.get<From>(o.b))));
    c.U[o.d] = c.U[o.a] | c.U[o.b];
}
template <typename To, typename From>
void multiply_add_wide(Context& c, const Op& o) {
    c.set<To>(o.d, To(u64(To(c.get<From>(o.a)) * To(c.get<From>(o.b))) + u64(c.get<To>(o.c))));
    c.U[o.d] = c.U[o.a] | c.U[o.b] | c.U[o.c];
}
/// Shifts take a 32-bit amount, clamped to the width.
template <typename T, bool kLeft>
void shift(Context& c, const Op& o) {
    constexpr u32 kBits = sizeof(T) * 8;
    const u32 amount = c.get<u32>(o.b);
    const T value = c.get<T>(o.a);
    T result;
    if (amount >= kBits)
        result = kLeft || std::is_unsigned_v<T> ? T(0) : T(value < 0 ? -1 : 0);
    else if constexpr (kLeft)
        result = T(std::make_unsigned_t<T>(value) << amount);
    else
        result = T(value >> amount);
    c.set<T>(o.d, result);
    c.U[o.d] = c.U[o.a] | c.U[o.b];
}
template <typename T, auto F>
void compare(Context& c, const Op& o) {
    c.R[o.d] = F(c.get<T>(o.a), c.get<T>(o.b)) ? 1 : 0;
    c.U[o.d] = c.U[o.a] | c.U[o.b];
}
template <typename T>
void select(Context& c, const Op& o) {
    const i32 from = c.R[o.c] != 0 ? o.a : o.b;
    c.set<T>(o.d, c.get<T>(from));
    c.U[o.d] = c.U[from] | c.U[o.c];
}
template <typename T>
void divide(Context& c, const Op& o) {
    c.want_defined(o, o.b, "the divisor");
    const T a = c.get<T>(o.a), b = c.get<T>(o.b);
    if (b == 0) c.fault(o, "divides by zero");
    if constexpr (std::is_signed_v<T>)
        c.set<T>(o.d, b == -1 ? T(-std::make_unsigned_t<T>(a)) : T(a / b));
    else
        c.set<T>(o.d, T(a / b));
    c.U[o.d] = c.U[o.a];
}
template <typename T>
void remainder(Context& c, const Op& o) {
    c.want_defined(o, o.b, "the divisor");
    const T a = c.get<T>(o.a), b = c.get<T>(o.b);
    if (b == 0) c.fault(o, "divides by zero");
    c.set<T>(o.d, std::is_signed_v<T> && b == T(-1) ? T(0) : T(a % b));
    c.U[o.d] = c.U[o.a];
}

// --- arithmetic that C++ has no word for

template <typename T>
T fma_down(T a, T b, T c) {
    const int saved = std::fegetround();
    std::fesetround(FE_DOWNWARD);
    volatile T x = a, y = b, z = c;  // volatile: not before or after the change of mode
    volatile T result = std::fma(x, y, z);
    std::fesetround(saved);
    return result;
}
float flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

/// `ulps` beside the value, or on the other side, or neither, by a hash of the operand.
float beside(const Context& c, float value, float operand, int ulps) {
    if (!c.launch->perturb || !std::isfinite(value) || value == 0 || operand == 0) return value;
    const u32 hash = std::bit_cast<u32>(operand) * 2654435761u >> 24;
    const int step = int(hash % u32(2 * ulps + 1)) - ulps;
    return flush(std::bit_cast<float>(std::bit_cast<u32>(value) + u32(step)));
}
template <auto F, int kUlps>
void approximate(Context& c, const Op& o) {
    const float x = flush(c.get<float>(o.a));
    c.set<float>(o.d, canonical(beside(c, flush(float(F(double(x)))), x, kUlps)));
    c.U[o.d] = c.U[o.a];
}
void rcp_approx_f64(Context& c, const Op& o) {
    const double x = std::bit_cast<double>(c.R[o.a] & 0xffffffff00000000ull);
    c.R[o.d] = std::bit_cast<u64>(1 / x) & 0xffffffff00000000ull;
    c.U[o.d] = c.U[o.a];
}
template <typename T>
T minimum(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
        if (std::isnan(a)) return b;
        if (std::isnan(b)) return a;
        if (a == 0 && b == 0) return std::signbit(a) ? a : b;
    }
    return a < b ? a : b;
}
template <typename T>
T maximum(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
        if (std::isnan(a)) return b;
        if (std::isnan(b)) return a;
        if (a == 0 && b == 0) return std::signbit(a) ? b : a;
    }
    return a > b ? a : b;
}
template <typename To, typename From>
To saturate(From x) {
    if (std::isnan(x)) return sizeof(To) == 8 ? To(1ull << 63) : To(0);
    const From low = From(std::numeric_limits<To>::min()),
               high = std::ldexp(From(1), int(sizeof(To) * 8) - (std::is_signed_v<To> ? 1 : 0));
    if (x < low) return std::numeric_limits<To>::min();
    if (x >= high) return std::numeric_limits<To>::max();
    return To(x);
}
/// bfi: the low `length` bits of a put into b at `start`.
template <typename T>
void insert_bits(Context& c, const Op& o) {
    const u32 start = c.get<u32>(o.c) & 255u, length = c.get<u32>(c.kernel->more[std::size_t(o.more)]) & 255u;
    const u64 field = length >= 64 ? ~0ull : (1ull << length) - 1;
    const u64 mask = start >= 64 ? 0 : field << start;
    const u64 a = start >= 64 ? 0 : c.R[o.a] << start;
    c.set<T>(o.d, T((u64(c.get<T>(o.b)) & ~mask) | (a & mask)));
    c.U[o.d] = c.U[o.a] | c.U[o.b];
}
template <typename T>
void extract_bits(Context& c, const Op& o) {  // of unsigned types alone
    const u32 start = c.get<u32>(o.b) & 255u, length = c.get<u32>(o.c) & 255u;
    const u64 value = start >= sizeof(T) * 8 ? 0 : u64(c.get<T>(o.a)) >> start;
    c.set<T>(o.d, T(length >= 64 ? value : value & ((1ull << length) - 1)));
    c.U[o.d] = c.U[o.a] | c.U[o.b] | c.U[o.c];
}
void permute_bytes(Context& c, const Op& o) {
    const u64 both = u64(c.get<u32>(o.b)) << 32 | c.get<u32>(o.a);
    const u32 selector = c.get<u32>(o.c);
    u32 result = 0;
    for (u32 i = 0; i < 4; ++i) {
        const u32 select = selector >> (4 * i) & 15u;
        const u8 byte = u8(both >> (8 * (select & 7u)));
        result |= u32((select & 8u) != 0 ? u8(byte & 0x80u ? 0xffu : 0u) : byte) << (8 * i);
    }
    c.set<u32>(o.d, result);
    c.U[o.d] = c.U[o.a] | c.U[o.b] | c.U[o.c];
}

template <typename T>
void pack_pair(Context& c, const Op& o) {  // cvt.rn.…x2.f32 d, a, b: a is the upper half
    const float high = c.get<float>(o.a), low = c.get<float>(o.b);
    if constexpr (std::is_same_v<T, bf16>)
        c.set<u32>(o.d, u32(to_bf16(high).bits) << 16 | to_bf16(low).bits);
    else
        c.set<u32>(o.d, u32(to_f16(high).bits) << 16 | to_f16(low).bits);
    c.U[o.d] = c.U[o.a] | c.U[o.b];
}
template <int kParts>
void unpack(Context& c, const Op& o) {
    constexpr int kBits = 0;
    (void)kBits;
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

// --- memory

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

// --- the warp and the block

struct ShuffleOperand {
    u64 value;
    u8 undefined;
    int source;
    u64 result = 0;
    u8 result_undefined = 0;
    bool outside = false;
};
void shuffle_collective(void* const operands[simt::kWarpSize], unsigned mask) {
    for (int lane = 0; lane < simt::kWarpSize; ++lane) {
        if (!(mask >> lane & 1)) continue;
        auto& own = *static_cast<ShuffleOperand*>(operands[lane]);
        own.outside = !(mask >> own.source & 1);
        if (own.outside) continue;
        const auto& other = *static_cast<const ShuffleOperand*>(operands[own.source]);
        own.result = other.value;
        own.result_undefined = other.undefined;
    }
}
enum class Shuffle { up, down, bfly, idx };

// The ISA's own formulas of the source lane.
template <Shuffle kMode>
void shuffle(Context& c, const Op& o) {
    const i32* more = &c.kernel->more[std::size_t(o.more)];
    for (const i32 slot : {o.b, o.c, more[1]}) c.want_defined(o, slot, "a lane or mask");
    const int lane = c.thread->lane, b = int(c.get<u32>(o.b) & 31u);
    const int clamp = int(c.get<u32>(o.c) & 31u), segment = int(c.get<u32>(o.c) >> 8 & 31u);
    const int highest = (lane & segment) | (clamp & ~segment), lowest = lane & segment;
    int source;
    bool valid;
    if constexpr (kMode == Shuffle::up) {
        source = lane - b;
        valid = source >= highest;
    } else {
        source = kMode == Shuffle::down   ? lane + b
                 : kMode == Shuffle::bfly ? lane ^ b
                                          : (lowest | (b & ~segment));
        valid = source <= highest;
    }
    ShuffleOperand operand{c.R[o.a], c.U[o.a], valid ? source : lane};
    c.machine->collective(shuffle_collective, &operand, c.get<u32>(more[1]), c.kernel->site(o));
    if (operand.outside) c.fault(o, "reads a lane that the mask leaves out");
    c.R[o.d] = u32(operand.result);
    c.U[o.d] = operand.result_undefined;
    if (more[0] >= 0) {
        c.R[more[0]] = valid ? 1 : 0;
        c.U[more[0]] = 0;
    }
}

struct VoteOperand {
    bool predicate;
    unsigned ballot = 0;
};
void vote_collective(void* const operands[simt::kWarpSize], unsigned mask) {
    unsigned ballot = 0;
    for (int lane = 0; lane < simt::kWarpSize; ++lane)
        if (mask >> lane & 1)
            ballot |= unsigned(static_cast<VoteOperand*>(operands[lane])->predicate) << lane;
    for (int lane = 0; lane < simt::kWarpSize; ++lane)
        if (mask >> lane & 1) static_cast<VoteOperand*>(operands[lane])->ballot = ballot;
}
void vote_ballot(Context& c, const Op& o) {
    c.want_defined(o, o.a, "the predicate");
    VoteOperand operand{c.R[o.a] != 0};
    c.machine->collective(vote_collective, &operand, c.get<u32>(o.b), c.kernel->site(o));
    c.R[o.d] = operand.ballot;
    c.U[o.d] = 0;
}
void sync_collective(void* const[simt::kWarpSize], unsigned) {}
void warp_barrier(Context& c, const Op& o) {
    c.machine->collective(sync_collective, nullptr, c.get<u32>(o.a), c.kernel->site(o));
    ++c.warp_sync;
}
void block_barrier(Context& c, const Op& o) {
    c.machine->barrier(c.kernel->site(o));
    ++c.barrier;
    ++c.warp_sync;
}
void dependency_wait(Context& c, const Op& o) { c.machine->dependency_wait(c.kernel->site(o)); }
void nothing(Context&, const Op&) {}

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

// --- matrices, from the ISA's own formulas of who holds what

struct MmaOperand {
    u32 a[4], b[2];
    float c[4];
    float d[4];
};
template <typename T>
float half_of(u32 word, int i) {
    return to_f32(T{u16(i == 0 ? word & 0xffffu : word >> 16)});
}
// The hardware's order of summation is not documented: here all products are added in double and rounded
// once.
template <typename T>
void mma_collective(void* const operands[simt::kWarpSize], unsigned) {
    double a[16][16], b[16][8];
    for (int lane = 0; lane < 32; ++lane) {
        const auto& own = *static_cast<const MmaOperand*>(operands[lane]);
        const int group = lane >> 2, in_group = lane % 4;
        for (int i = 0; i < 8; ++i) {
            const int row = (i < 2 || (i >= 4 && i < 6)) ? group : group + 8;
            const int col = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
            a[row][col] = half_of<T>(own.a[i / 2], i & 1);
        }
        for (int i = 0; i < 4; ++i) {
            const int row = in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0);
            b[row][group] = half_of<T>(own.b[i / 2], i & 1);
        }
    }
    for (int lane = 0; lane < 32; ++lane) {
        auto& own = *static_cast<MmaOperand*>(operands[lane]);
        const int group = lane >> 2, in_group = lane % 4;
        for (int i = 0; i < 4; ++i) {
            const int row = i < 2 ? group : group + 8, col = in_group * 2 + (i & 1);
            double sum = own.c[i];
            for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][col];
            own.d[i] = canonical(float(sum));
        }
    }
}
template <typename T>
void mma(Context& c, const Op& o) {
    const i32* m = &c.kernel->more[std::size_t(o.more)];
    MmaOperand operand;
    for (int i = 4; i < 14; ++i) c.want_defined(o, m[i], "a factor");
    for (int i = 0; i < 4; ++i) operand.a[i] = c.get<u32>(m[4 + i]);
    for (int i = 0; i < 2; ++i) operand.b[i] = c.get<u32>(m[8 + i]);
    for (int i = 0; i < 4; ++i) operand.c[i] = c.get<float>(m[10 + i]);
    c.machine->collective(mma_collective<T>, &operand, simt::kFullMask, c.kernel->site(o));
    for (int i = 0; i < 4; ++i) {
        c.set<float>(m[i], operand.d[i]);
        c.U[m[i]] = 0;
    }
}

struct LdmatrixOperand {
    const char* row;
    u32 r[4];
};
template <bool kTranspose>
void ldmatrix_collective(void* const operands[simt::kWarpSize], unsigned) {
    for (int tile = 0; tile < 4; ++tile)
        for (int lane = 0; lane < 32; ++lane) {
            auto& own = *static_cast<LdmatrixOperand*>(operands[lane]);
            u32 word = 0;
            for (int i = 0; i < 2; ++i) {
                int row = lane / 4, col = lane % 4 * 2 + i;
                if (kTranspose) std::swap(row, col);
                u16 value;
                std::memcpy(&value,
                            static_cast<const LdmatrixOperand*>(operands[tile * 8 + row])->row + col * 2, 2);
                word |= u32(value) << (16 * i);
            }
            own.r[tile] = word;
        }
}
template <bool kTranspose>
void ldmatrix(Context& c, const Op& o) {
    c.want_defined(o, o.a, "the address");
    u8 undefined = 0;
    LdmatrixOperand operand{c.read_shared(o, u32(c.R[o.a] + u64(o.offset)), 16, undefined), {}};
    if (undefined != 0) c.fault(o, "reads a row of shared memory that nobody has written");
    c.machine->collective(ldmatrix_collective<kTranspose>, &operand, simt::kFullMask, c.kernel->site(o));
    const i32* m = &c.kernel->more[std::size_t(o.more)];
    for (int i = 0; i < 4; ++i) {
        c.set<u32>(m[i], operand.r[i]);
        c.U[m[i]] = 0;
    }
}

void to_generic(Context& c, const Op& o, u64 window) {
    c.R[o.d] = c.R[o.a] + window;
    c.U[o.d] = c.U[o.a];
}

// --- the table

using Table = std::unordered_map<std::string, Rule>;

template <typename T>
void add_integer(Table& t, const std::string& type) {
    using U = std::make_unsigned_t<T>;
    const auto k = Class::integer;
    t["add." + type] = {binary<T, [](T a, T b) { return T(U(a) + U(b)); }>, k, "dab"};
    t["sub." + type] = {binary<T, [](T a, T b) { return T(U(a) - U(b)); }>, k, "dab"};
    t["mul.lo." + type] = {binary<T, [](T a, T b) { return T(u64(a) * u64(b)); }>, k, "dab"};
    t["mad.lo." + type] = {ternary<T, [](T a, T b, T c) { return T(u64(a) * u64(b) + u64(c)); }>, k, "dabc"};
    t["min." + type] = {binary<T, minimum<T>>, k, "dab"};
    t["max." + type] = {binary<T, maximum<T>>, k, "dab"};
    t["div." + type] = {divide<T>, k, "dab"};
    t["rem." + type] = {remainder<T>, k, "dab"};
    t["shr." + type] = {shift<T, false>, k, "dab"};
    t["mul.hi." + type] = {
        binary<T,
               [](T a, T b) {
                   using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
                   return T((Wide(a) * Wide(b)) >> (sizeof(T) * 8));
               }>,
        k, "dab"};
    const auto p = Class::predicate;
    t["setp.eq." + type] = {compare<T, [](T a, T b) { return a == b; }>, p, "dab"};
    t["setp.ne." + type] = {compare<T, [](T a, T b) { return a != b; }>, p, "dab"};
    t["setp.lt." + type] = {compare<T, [](T a, T b) { return a < b; }>, p, "dab"};
    t["setp.le." + type] = {compare<T, [](T a, T b) { return a <= b; }>, p, "dab"};
    t["setp.gt." + type] = {compare<T, [](T a, T b) { return (a > b); }>, p, "dab"};
    t["setp.ge." + type] = {compare<T, [](T a, T b) { return a >= b; }>, p, "dab"};
    t["selp." + type] = {select<T>, Class::move, "dabc"};
    if constexpr (std::is_signed_v<T>) {
        t["neg." + type] = {unary<T, T, [](T a) { return T(-U(a)); }>, k, "da"};
        t["abs." + type] = {unary<T, T, [](T a) { return T(a < 0 ? -U(a) : U(a)); }>, k, "da"};
    }
}
template <typename T>
void add_bits(Table& t, const std::string& type) {
    const auto k = type == "pred" ? Class::predicate : Class::integer;
    t["and." + type] = {binary<T, [](T a, T b) { return T(a & b); }>, k, "dab"};
    t["or." + type] = {binary<T, [](T a, T b) { return T(a | b); }>, k, "dab"};
    t["xor." + type] = {binary<T, [](T a, T b) { return T(a ^ b); }>, k, "dab"};
    if (type == "pred") {
        t["not.pred"] = {unary<T, T, [](T a) { return T(a ^ 1); }>, k, "da"};
        return;
    }
    t["not." + type] = {unary<T, T, [](T a) { return T(~a); }>, k, "da"};
    t["shl." + type] = {shift<T, true>, k, "dab"};
    t["shr." + type] = {shift<T, false>, k, "dab"};
    t["selp." + type] = {select<T>, Class::move, "dabc"};
    t["setp.eq." + type] = {compare<T, [](T a, T b) { return a == b; }>, Class::predicate, "dab"};
    t["setp.ne." + type] = {compare<T, [](T a, T b) { return a != b; }>, Class::predicate, "dab"};
}
template <typename T>
void add_float(Table& t, const std::string& type) {
    const auto k = sizeof(T) == 4 ? Class::f32 : Class::f64;
    for (const std::string round : {".", ".rn."}) {
        t["add" + round + type] = {binary<T, [](T a, T b) { return a + b; }>, k, "dab"};
        t["sub" + round + type] = {binary<T, [](T a, T b) { return a - b; }>, k, "dab"};
        t["mul" + round + type] = {binary<T, [](T a, T b) { return a * b; }>, k, "dab"};
    }
    t["fma.rn." + type] = {ternary<T, [](T a, T b, T c) { return std::fma(a, b, c); }>, k, "dabc"};
    t["fma.rm." + type] = {ternary<T, fma_down<T>>, k, "dabc"};
    t["div.rn." + type] = {binary<T, [](T a, T b) { return a / b; }>, k, "dab"};
    t["rcp.rn." + type] = {unary<T, T, [](T a) { return 1 / a; }>, k, "da"};
    t["sqrt.rn." + type] = {unary<T, T, [](T a) { return std::sqrt(a); }>, k, "da"};
    t["neg." + type] = {unary<T, T, [](T a) { return -a; }>, k, "da"};
    t["abs." + type] = {unary<T, T, [](T a) { return std::abs(a); }>, k, "da"};
    t["min." + type] = {binary<T, minimum<T>>, k, "dab"};
    t["max." + type] = {binary<T, maximum<T>>, k, "dab"};
    const auto p = Class::predicate;
    t["setp.eq." + type] = {compare<T, [](T a, T b) { return a == b; }>, p, "dab"};
    t["setp.ne." + type] = {compare<T, [](T a, T b) { return (a < b || a > b); }>, p, "dab"};
    t["setp.lt." + type] = {compare<T, [](T a, T b) { return a < b; }>, p, "dab"};
    t["setp.le." + type] = {compare<T, [](T a, T b) { return a <= b; }>, p, "dab"};
    t["setp.gt." + type] = {compare<T, [](T a, T b) { return (a > b); }>, p, "dab"};
    t["setp.ge." + type] = {compare<T, [](T a, T b) { return a >= b; }>, p, "dab"};
    t["setp.equ." + type] = {compare<T, [](T a, T b) { return (!(a < b || a > b)); }>, p, "dab"};
    t["setp.neu." + type] = {compare<T, [](T a, T b) { return a != b; }>, p, "dab"};
    t["setp.ltu." + type] = {compare<T, [](T a, T b) { return !(a >= b); }>, p, "dab"};
    t["setp.leu." + type] = {compare<T, [](T a, T b) { return !(a > b); }>, p, "dab"};
    t["setp.gtu." + type] = {compare<T, [](T a, T b) { return !(a <= b); }>, p, "dab"};
    t["setp.geu." + type] = {compare<T, [](T a, T b) { return !(a < b); }>, p, "dab"};
    t["setp.num." + type] = {compare<T, [](T a, T b) { return !std::isnan(a) && !std::isnan(b); }>, p, "dab"};
    t["setp.nan." + type] = {compare<T, [](T a, T b) { return std::isnan(a) || std::isnan(b); }>, p, "dab"};
    t["selp." + type] = {select<T>, Class::move, "dabc"};
    const auto v = Class::convert;
    t["cvt.rzi." + type + "." + type] = {unary<T, T, [](T a) { return std::trunc(a); }>, v, "da"};
    t["cvt.rni." + type + "." + type] = {unary<T, T, [](T a) { return std::nearbyint(a); }>, v, "da"};
    t["cvt.rmi." + type + "." + type] = {unary<T, T, [](T a) { return std::floor(a); }>, v, "da"};
    t["cvt.rpi." + type + "." + type] = {unary<T, T, [](T a) { return std::ceil(a); }>, v, "da"};
}
template <typename I, typename F>
void add_conversions(Table& t, const std::string& i, const std::string& f) {
    const auto k = Class::convert;
    t["cvt.rn." + f + "." + i] = {unary<F, I, [](I a) { return F(a); }>, k, "da"};
    t["cvt.rzi." + i + "." + f] = {unary<I, F, [](F a) { return saturate<I>(std::trunc(a)); }>, k, "da"};
    t["cvt.rni." + i + "." + f] = {unary<I, F, [](F a) { return saturate<I>(std::nearbyint(a)); }>, k, "da"};
    t["cvt.rmi." + i + "." + f] = {unary<I, F, [](F a) { return saturate<I>(std::floor(a)); }>, k, "da"};
    t["cvt.rpi." + i + "." + f] = {unary<I, F, [](F a) { return saturate<I>(std::ceil(a)); }>, k, "da"};
}
template <typename To, typename From>
void add_resize(Table& t, const std::string& to, const std::string& from) {
    t["cvt." + to + "." + from] = {unary<To, From, [](From a) { return To(a); }>, Class::convert, "da"};
}
template <typename To>
void add_resizes(Table& t, const std::string& to) {
    add_resize<To, i16>(t, to, "s16");
    add_resize<To, u16>(t, to, "u16");
    add_resize<To, i32>(t, to, "s32");
    add_resize<To, u32>(t, to, "u32");
    add_resize<To, i64>(t, to, "s64");
    add_resize<To, u64>(t, to, "u64");
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
        t["ld.global.nc" + suffix] = read;
        t["ld.global.nc.L1::no_allocate" + suffix] = read;
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

void add_rest(Table& t) {
    const auto v = Class::convert;
    t["cvt.f32.f16"] = {unary<float, u16, [](u16 a) { return to_f32(f16{a}); }>, v, "da"};
    t["cvt.f32.bf16"] = {unary<float, u16, [](u16 a) { return to_f32(bf16{a}); }>, v, "da"};
    t["cvt.rn.f16.f32"] = {unary<u16, float, [](float a) { return to_f16(a).bits; }>, v, "da"};
    t["cvt.rn.bf16.f32"] = {unary<u16, float, [](float a) { return to_bf16(a).bits; }>, v, "da"};
    t["cvt.rn.bf16x2.f32"] = {pack_pair<bf16>, v, "dab"};
    t["cvt.rn.f16x2.f32"] = {pack_pair<f16>, v, "dab"};
    t["cvt.f64.f32"] = {unary<double, float, [](float a) { return double(a); }>, v, "da"};
    t["cvt.rn.f32.f64"] = {unary<float, double, [](double a) { return float(a); }>, v, "da"};
    t["cvt.sat.f32.f32"] = {
        unary<float, float, [](float a) { return (std::isnan(a) || a <= 0 ? 0.0f
                                                  : a > 1                 ? 1.0f
                                                                          : a); }>, v,
        "da"};
    t["ex2.approx.ftz.f32"] = {approximate<[](double a) { return std::exp2(a); }, 2>, Class::f32, "da"};
    t["lg2.approx.ftz.f32"] = {approximate<[](double a) { return std::log2(a); }, 1>, Class::f32, "da"};
    t["rsqrt.approx.ftz.f32"] = {approximate<[](double a) { return 1 / std::sqrt(a); }, 1>, Class::f32, "da"};
    t["rcp.approx.ftz.f32"] = {approximate<[](double a) { return 1 / a; }, 1>, Class::f32, "da"};
    t["rcp.approx.ftz.f64"] = {rcp_approx_f64, Class::f64, "da"};
    const auto k = Class::integer;
    t["mul.wide.s32"] = {multiply_wide<i64, i32>, k, "dab"};
    t["mul.wide.u32"] = {multiply_wide<u64, u32>, k, "dab"};
    t["mul.wide.s16"] = {multiply_wide<i32, i16>, k, "dab"};
    t["mul.wide.u16"] = {multiply_wide<u32, u16>, k, "dab"};
    t["mad.wide.s32"] = {multiply_add_wide<i64, i32>, k, "dabc"};
    t["mad.wide.u32"] = {multiply_add_wide<u64, u32>, k, "dabc"};
    t["mad.wide.u16"] = {multiply_add_wide<u32, u16>, k, "dabc"};
    t["bfi.b32"] = {insert_bits<u32>, k, "dabce"};
    t["bfi.b64"] = {insert_bits<u64>, k, "dabce"};
    t["bfe.u32"] = {extract_bits<u32>, k, "dabc"};
    t["bfe.u64"] = {extract_bits<u64>, k, "dabc"};
    t["prmt.b32"] = {permute_bytes, k, "dabc"};
    t["popc.b32"] = {unary<u32, u32, [](u32 a) { return u32(std::popcount(a)); }>, k, "da"};
    t["clz.b32"] = {unary<u32, u32, [](u32 a) { return u32(std::countl_zero(a)); }>, k, "da"};
    t["clz.b64"] = {unary<u32, u64, [](u64 a) { return u32(std::countl_zero(a)); }>, k, "da"};
    for (const char* name : {"bra", "bra.uni"}) t[name] = {nothing, Class::control, "l"};
    for (const char* name : {"ret", "exit"}) t[name] = {nothing, Class::control, ""};
    t["shfl.sync.up.b32"] = {shuffle<Shuffle::up>, Class::shuffle, "pabce"};
    t["shfl.sync.down.b32"] = {shuffle<Shuffle::down>, Class::shuffle, "pabce"};
    t["shfl.sync.bfly.b32"] = {shuffle<Shuffle::bfly>, Class::shuffle, "pabce"};
    t["shfl.sync.idx.b32"] = {shuffle<Shuffle::idx>, Class::shuffle, "pabce"};
    t["vote.sync.ballot.b32"] = {vote_ballot, Class::shuffle, "dab"};
    t["bar.warp.sync"] = {warp_barrier, Class::barrier, "a"};
    t["bar.sync"] = {block_barrier, Class::barrier, "z"};
    t["griddepcontrol.wait"] = {dependency_wait, Class::barrier, ""};
    t["griddepcontrol.launch_dependents"] = {nothing, Class::other, ""};
    for (const char* name : {"membar.gl", "membar.cta", "fence.acq_rel.gpu", "fence.sc.gpu"})
        t[name] = {nothing, Class::barrier, ""};
    t["cp.async.cg.shared.global"] = {copy_async, Class::async_copy, "mnsc", 16};
    t["cp.async.cg.shared.global/3"] = {copy_async, Class::async_copy, "mns", 16};
    t["cp.async.commit_group"] = {copy_commit, Class::async_copy, ""};
    t["cp.async.wait_group"] = {copy_wait, Class::async_copy, "i"};
    t["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"] = {mma<bf16>, Class::mma, "4424"};
    t["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"] = {mma<f16>, Class::mma, "4424"};
    t["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] = {ldmatrix<false>, Class::ldmatrix, "4m", 16};
    t["ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"] = {ldmatrix<true>, Class::ldmatrix, "4m", 16};
}

Table make_table() {
    Table t;
    add_integer<i16>(t, "s16");
    add_integer<u16>(t, "u16");
    add_integer<i32>(t, "s32");
    add_integer<u32>(t, "u32");
    add_integer<i64>(t, "s64");
    add_integer<u64>(t, "u64");
    add_bits<u8>(t, "pred");
    add_bits<u16>(t, "b16");
    add_bits<u32>(t, "b32");
    add_bits<u64>(t, "b64");
    add_float<float>(t, "f32");
    add_float<double>(t, "f64");
    for (const auto& [f, unused] : {std::pair{"f32", 0}, {"f64", 0}}) {
        (void)unused;
        const bool single = f[1] == '3';
        auto add = [&]<typename I>(I, const char* i) {
            if (single)
                add_conversions<I, float>(t, i, f);
            else
                add_conversions<I, double>(t, i, f);
        };
        add(i32(), "s32");
        add(u32(), "u32");
        add(i64(), "s64");
        add(u64(), "u64");
    }
    add_resizes<i16>(t, "s16");
    add_resizes<u16>(t, "u16");
    add_resizes<i32>(t, "s32");
    add_resizes<u32>(t, "u32");
    add_resizes<i64>(t, "s64");
    add_resizes<u64>(t, "u64");
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
    add_rest(t);
    return t;
}

const Table& table() {
    static const Table rules = make_table();
    return rules;
}

}  // namespace

const Rule* find_rule(const std::string& opcode) {
    const auto it = table().find(opcode);
    return it == table().end() ? nullptr : &it->second;
}

std::vector<std::string> all_opcodes() {
    std::vector<std::string> names;
    for (const auto& [name, rule] : table()) names.push_back(name);
    return names;
}

}  // namespace llmgen::ptx
