// Numbers. Arithmetic is as the PTX ISA documents it:
//
//   add sub mul div sqrt rcp fma   correctly rounded, subnormals kept, one rounding for fma; nothing is
//     contracted that the PTX doesn't contract. A NaN result is 0x7fffffff.
//   ex2.approx.ftz.f32             documented: 2 ulp. Here the correctly rounded value; where the launch
//     perturbs, as kernels' do, up to 2 ulp beside it, by a hash of the operand
//   lg2 rsqrt rcp .approx.ftz.f32  likewise, 1 ulp
//   rcp.approx.ftz.f64             reads and writes the upper 32 bits alone
//   float to integer               saturates; NaN becomes 0 (64 bits: the sign bit alone)
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>

#include "base/dtype.h"
#include "ptx/rules.h"

namespace llmgen::ptx {

namespace {

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

void add_single_rules(Table& t) {
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
}

}  // namespace

void add_number_rules(Table& t) {
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
    add_single_rules(t);
}

}  // namespace llmgen::ptx
