// Highway helpers shared by the SIMD files; included once per target, so with Highway's own kind of guard.
#if defined(LLMGEN_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LLMGEN_SIMD_INL_H
#undef LLMGEN_SIMD_INL_H
#else
#define LLMGEN_SIMD_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cmath>

#include "base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace llmgen::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Fixed vectors of at most 16 f32, so that arrays of them can be registers.
using DF32 = hn::CappedTag<float, 16>;
using DU32 = hn::CappedTag<std::uint32_t, 16>;
using F32 = hn::Vec<DF32>;
using U32 = hn::Vec<DU32>;
constexpr int kLanes = int(hn::MaxLanes(DF32()));

HWY_INLINE void prefetch_128(const char* p) {
    hwy::Prefetch(p);
    hwy::Prefetch(p + 64);
}

/// The lower and the upper of two bf16 in each lane, as f32.
HWY_INLINE F32 low_bf16(U32 pair) { return hn::BitCast(DF32(), hn::ShiftLeft<16>(pair)); }
HWY_INLINE F32 high_bf16(U32 pair) {
    return hn::BitCast(DF32(), hn::And(pair, hn::Set(DU32(), 0xffff0000u)));
}

/// Nearest even bf16 in the lower half of each lane; NaN stays NaN.
HWY_INLINE U32 round_bf16(F32 v) {
    const DU32 du;
    const U32 bits = hn::BitCast(du, v);
    const U32 odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const U32 rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu))));
    const U32 nan = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40u));
    return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), nan, rounded);
}

/// One vector, rounded.
HWY_INLINE void store_bf16(bf16* to, F32 v) {
    const hn::Rebind<std::uint16_t, DU32> du16;
    hn::StoreU(hn::DemoteTo(du16, hn::BitCast(hn::RebindToSigned<DU32>(), round_bf16(v))), du16,
               reinterpret_cast<std::uint16_t*>(to));
}

HWY_INLINE void store_bf16(bf16* to, const float* values, std::int64_t n) {
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store_bf16(to + i, hn::LoadU(DF32(), values + i));
    for (; i < n; ++i) to[i] = to_bf16(values[i]);
}

/// exp(v) for v <= 88, within 2 units of 2^-24 relative; below -87 it stays at exp(-87). Two thirds of the
/// instructions of Highway's own, which also serves larger, smaller and special values.
HWY_INLINE F32 fast_exp(F32 v) {
    const DF32 d;
#if HWY_TARGET == HWY_SCALAR  // no fused multiply-add, on which the reduction depends
    return hn::Set(d, std::exp(hn::GetLane(hn::Max(v, hn::Set(d, -87.0f)))));
#else
    const hn::RebindToSigned<DF32> di;
    v = hn::Max(v, hn::Set(d, -87.0f));
    // v = (n + f) ln 2 with |f| <= 1/2; 1 / ln 2 in two parts.
    const F32 n = hn::Round(hn::Mul(v, hn::Set(d, 1.44269504f)));
    F32 f = hn::MulSub(v, hn::Set(d, 1.44269504f), n);
    f = hn::MulAdd(v, hn::Set(d, 1.92596299e-8f), f);
    // Minimax fit of 2^f with p(0) = 1: relative error 2e-9.
    F32 p = hn::Set(d, 1.5353362e-4f);
    p = hn::MulAdd(p, f, hn::Set(d, 1.3398875e-3f));
    p = hn::MulAdd(p, f, hn::Set(d, 9.61843692e-3f));
    p = hn::MulAdd(p, f, hn::Set(d, 5.55033237e-2f));
    p = hn::MulAdd(p, f, hn::Set(d, 0.240226477f));
    p = hn::MulAdd(p, f, hn::Set(d, 0.693147182f));
    p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
    const auto exponent = hn::ShiftLeft<23>(hn::ConvertTo(di, n));
    return hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
#endif
}

/// v / (1 + exp(-v)); exp(88) is still finite, beyond it the quotient is 0 to the last bit that counts.
HWY_INLINE F32 silu(F32 v) {
    const DF32 d;
    const F32 e = fast_exp(hn::Min(hn::Neg(v), hn::Set(d, 88.0f)));
    return hn::Div(v, hn::Add(hn::Set(d, 1.0f), e));
}

}  // namespace llmgen::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
