// What becomes of one head of q, k or v: a norm over its channels (Qwen3), the rotation, and its place.
//
//   (a, b) = (v[d], v[d + r / 2])  ->  (a cos - b sin, b cos + a sin),  r = rotary_dim; channels from r on
//   stay
//
// Two kernels do this, the one over many tokens and the one fused into the product of few; both through these
// functions, whose roundings are spelled out, so that they make the same bits.
#pragma once

#include "common/reduce.h"
#include "kernels.h"

namespace llmgen::kernels {

inline constexpr int kMaxHeadDim = 256;

enum class HeadKind { q, k, v };
__device__ __forceinline__ HeadKind kind_of(const RopeStore& p, int h) {
    return h < p.n_heads ? HeadKind::q : h < p.n_heads + p.n_kv_heads ? HeadKind::k : HeadKind::v;
}
__device__ __forceinline__ const float* norm_of(const RopeStore& p, HeadKind kind) {
    return kind == HeadKind::q ? p.q_norm : kind == HeadKind::k ? p.k_norm : nullptr;
}

__device__ __forceinline__ float rotated_low(float a, float b, float c, float s) {
    return fma_f32(a, c, -mul_rn(b, s));
}
__device__ __forceinline__ float rotated_high(float a, float b, float c, float s) {
    return fma_f32(b, c, mul_rn(a, s));
}

/// Writes channel d of head h: q back into qkv, k and v into their page.
template <typename T>
__device__ __forceinline__ void write_channel(const RopeStore& p, int t, int h, int d, float value) {
    const HeadKind kind = kind_of(p, h);
    if (kind == HeadKind::q) {
        p.qkv[t * p.qkv_stride + std::int64_t(h) * p.head_dim + d] = value;
        return;
    }
    const int slot = p.slots[t], kv_head = h - p.n_heads - (kind == HeadKind::v ? p.n_kv_heads : 0);
    const std::int64_t row =
        (std::int64_t(slot / kPageTokens) * p.n_kv_heads + kv_head) * kPageTokens + slot % kPageTokens;
    static_cast<T*>(kind == HeadKind::v ? p.v : p.k)[row * p.head_dim + d] = from_f32<T>(value);
}

/// The factor of rmsnorm over a head.
__device__ __forceinline__ float head_scale(const float* head, int head_dim, float eps) {
    const int lane = int(threadIdx.x) % kWarp;
    float sum = 0;
    for (int d = lane; d < head_dim; d += kWarp) sum = fma_f32(head[d], head[d], sum);
    return rsqrt_f32(warp_sum(sum) / float(head_dim) + eps);
}

/// Channel d of the head after rotation.
__device__ __forceinline__ float rotated(const float* head, const float* cos_sin, int d, int half) {
    if (d < half) return rotated_low(head[d], head[d + half], cos_sin[d], cos_sin[half + d]);
    if (d < 2 * half) return rotated_high(head[d - half], head[d], cos_sin[d - half], cos_sin[d]);
    return head[d];
}

/// All of it for one token and head, by one warp. `head`: kMaxHeadDim floats of shared memory of its own. The
/// head is read past L1, where other blocks of this launch may just have written it.
template <typename T>
__device__ __forceinline__ void norm_rope_store_head(const RopeStore& p, int t, int h, float* head) {
    const int lane = int(threadIdx.x) % kWarp;
    const float* source = p.qkv + t * p.qkv_stride + std::int64_t(h) * p.head_dim;
    for (int d = lane; d < p.head_dim; d += kWarp) head[d] = load_l2(source + d);
    sync_warp();
    const HeadKind kind = kind_of(p, h);
    if (const float* norm = norm_of(p, kind); norm != nullptr) {
        const float scale = head_scale(head, p.head_dim, p.eps);
        sync_warp();
        for (int d = lane; d < p.head_dim; d += kWarp) head[d] = mul_rn(mul_rn(head[d], scale), norm[d]);
        sync_warp();
    }
    const int half = kind == HeadKind::v ? 0 : p.rotary_dim / 2;
    const float* cos_sin = p.cos_sin + std::size_t(t) * std::size_t(p.rotary_dim);
    for (int d = lane; d < p.head_dim; d += kWarp)
        write_channel<T>(p, t, h, d, rotated(head, cos_sin, d, half));
}

}  // namespace llmgen::kernels
