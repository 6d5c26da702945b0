// What choosing a token is made of: comparable keys, the exp of the host's sampler, whole-number sums over a
// block.
#pragma once

#include "common/reduce.h"
#include "kernels.h"

namespace llmgen::kernels {

inline constexpr int kChoiceThreads = 512;
inline constexpr int kChoiceWarps = kChoiceThreads / kWarp;

/// A number that orders as the logit does: NaN above all, -0 as 0.
__device__ __forceinline__ std::uint32_t key_of(float logit) {
    if (logit != logit) return 0xffffffffu;
    const std::uint32_t bits = f32_to_bits(logit + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float logit_of(std::uint32_t key) {
    return bits_to_f32(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}
__device__ __forceinline__ bool is_finite(float x) { return (f32_to_bits(x) & 0x7f800000u) != 0x7f800000u; }

__device__ __forceinline__ Best best_of(float logit, int id) {
    return (Best(key_of(logit)) << 32) | std::uint32_t(~id);
}
__device__ __forceinline__ int best_id(Best best) { return int(~std::uint32_t(best)); }
__device__ __forceinline__ float best_logit(Best best) { return logit_of(std::uint32_t(best >> 32)); }

__device__ __forceinline__ Best warp_best(Best best) {
    for (int bits = kWarp / 2; bits > 0; bits /= 2) {
        const Best other = shfl_xor(best, bits);
        best = other > best ? other : best;
    }
    return best;
}

/// The host sampler's exp for x ≤ 0: one rounding an operation, nothing contracted, so that weights are the
/// same bits.
__device__ __forceinline__ float exp_of_negative(float x) {
    const float clamped = x < -87.0f ? -87.0f : x;
    const float n = float(int(sub_rn(mul_rn(clamped, 1.44269504f), 0.5f)));
    const float r = sub_rn(sub_rn(clamped, mul_rn(n, 0.693359375f)), mul_rn(n, -2.12194440e-4f));
    float e = 1.9875691500e-4f;
    e = add_rn(mul_rn(e, r), 1.3981999507e-3f);
    e = add_rn(mul_rn(e, r), 8.3334519073e-3f);
    e = add_rn(mul_rn(e, r), 4.1665795894e-2f);
    e = add_rn(mul_rn(e, r), 1.6666665459e-1f);
    e = add_rn(mul_rn(e, r), 5.0000001201e-1f);
    e = add_rn(add_rn(mul_rn(mul_rn(e, r), r), r), 1.0f);
    const float scale = bits_to_f32(std::uint32_t(int(n) + 127) << 23);
    return x < -87.0f ? 0.0f : mul_rn(e, scale);
}

/// Sums of weights are whole numbers of 2^-45: the largest weight is 1, so 2^18 of them fit 64 bits.
using Mass = unsigned long long;
__device__ __forceinline__ Mass mass_of(float weight) { return Mass(double(weight) * 0x1p45 + 0.5); }

/// Sum over the block, in every thread. `slots` holds kChoiceWarps + 1 values.
template <typename T>
__device__ __forceinline__ T block_total(T value, T* slots) {
    const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
    for (int bits = kWarp / 2; bits > 0; bits /= 2) value += shfl_xor(value, bits);
    sync_block();  // the last use of the slots is over
    if (lane == 0) slots[warp] = value;
    sync_block();
    T total = 0;
    for (int w = 0; w < kChoiceWarps; ++w) total += slots[w];
    return total;
}

__device__ __forceinline__ Best block_best(Best best, Best* slots) {
    const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
    best = warp_best(best);
    sync_block();
    if (lane == 0) slots[warp] = best;
    sync_block();
    for (int w = 0; w < kChoiceWarps; ++w) best = slots[w] > best ? slots[w] : best;
    return best;
}

}  // namespace llmgen::kernels
