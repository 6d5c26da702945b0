// Highway helpers shared by the SIMD files; included once per target, so with Highway's own kind of guard.
#if defined(LLMGEN_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LLMGEN_SIMD_INL_H
#undef LLMGEN_SIMD_INL_H
#else
#define LLMGEN_SIMD_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

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

/// Hardware prefetchers stop at 4-KiB borders and ramp up again: without this a GEMV reaches 2/3 of the
/// bandwidth. 128 bytes a call, 2 KiB ahead.
HWY_INLINE void prefetch_stream(const void* p) {
    hwy::Prefetch(static_cast<const char*>(p) + 2048);
    hwy::Prefetch(static_cast<const char*>(p) + 2048 + 64);
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

/// v / (1 + exp(-v)); exp(88) is still finite, beyond it the quotient is 0 to the last bit that counts.
HWY_INLINE F32 silu(F32 v) {
    const DF32 d;
    const F32 e = hn::Exp(d, hn::Min(hn::Neg(v), hn::Set(d, 88.0f)));
    return hn::Div(v, hn::Add(hn::Set(d, 1.0f), e));
}

}  // namespace llmgen::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
