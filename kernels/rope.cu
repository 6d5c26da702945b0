// Rotary positions, and the one pass over q, k and v that norms heads, rotates them and puts keys and values
// into their pages.
//
// One warp per (token, head). The partner of channel d is (d + rotary_dim / 2), in another lane, so the head
// goes through shared memory, which also makes the in-place write of q safe. Traffic: qkv once in and q once
// out in f32, k and v once out; at 8B decode shapes 24 KiB in, 20 KiB out.
#include "common/reduce.h"
#include "kernels.h"

namespace llmgen::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxHeadDim = 256;

__global__ void rope_angles_kernel(
    float* cos_sin, const int* positions, const float* inv_freq, float factor, int n_tokens, int half) {
    const int i = int(blockIdx.x) * kWarps * kWarp + int(threadIdx.x);
    if (i >= n_tokens * half) return;
    const int t = i / half, d = i % half;
    const float angle = float(positions[t]) * inv_freq[d];
    float* out = cos_sin + std::size_t(t) * std::size_t(2 * half);
    out[d] = cosf(angle) * factor;
    out[half + d] = sinf(angle) * factor;
}

/// The factor of rmsnorm over a head.
__device__ float head_scale(const float* head, int head_dim, float eps) {
    const int lane = int(threadIdx.x) % kWarp;
    float sum = 0;
    for (int d = lane; d < head_dim; d += kWarp) sum = fma_f32(head[d], head[d], sum);
    return rsqrt_f32(warp_sum(sum) / float(head_dim) + eps);
}

/// Channel d of the head after rotation.
__device__ float rotated(const float* head, const float* cos_sin, int d, int half) {
    if (d < half) return head[d] * cos_sin[d] - head[d + half] * cos_sin[half + d];
    if (d < 2 * half) return head[d] * cos_sin[d - half] + head[d - half] * cos_sin[d];
    return head[d];
}

template <typename T>
__global__ void rope_store_kernel(RopeStore p) {
    SHARED_ARRAY(float, heads, kWarps* kMaxHeadDim);
    const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
    const int t = int(blockIdx.x), h = int(blockIdx.y) * kWarps + warp;
    grid_dependency_wait();
    grid_dependency_trigger();
    if (h >= p.n_heads + 2 * p.n_kv_heads) return;
    float* source = p.qkv + t * p.qkv_stride + std::int64_t(h) * p.head_dim;
    float* head = heads + warp * kMaxHeadDim;
    for (int d = lane; d < p.head_dim; d += kWarp) head[d] = source[d];
    sync_warp();

    const bool is_q = h < p.n_heads, is_v = h >= p.n_heads + p.n_kv_heads;
    const float* norm = is_q ? p.q_norm : is_v ? nullptr : p.k_norm;
    if (norm != nullptr) {
        const float scale = head_scale(head, p.head_dim, p.eps);
        sync_warp();
        for (int d = lane; d < p.head_dim; d += kWarp) head[d] = head[d] * scale * norm[d];
        sync_warp();
    }
    const int half = is_v ? 0 : p.rotary_dim / 2;
    const float* cos_sin = p.cos_sin + std::size_t(t) * std::size_t(p.rotary_dim);
    if (is_q) {
        for (int d = lane; d < p.head_dim; d += kWarp) source[d] = rotated(head, cos_sin, d, half);
        return;
    }
    const int slot = p.slots[t], kv_head = is_v ? h - p.n_heads - p.n_kv_heads : h - p.n_heads;
    const std::int64_t row =
        (std::int64_t(slot / kPageTokens) * p.n_kv_heads + kv_head) * kPageTokens + slot % kPageTokens;
    T* target = static_cast<T*>(is_v ? p.v : p.k) + row * p.head_dim;
    for (int d = lane; d < p.head_dim; d += kWarp) target[d] = from_f32<T>(rotated(head, cos_sin, d, half));
}

}  // namespace

void rope_angles(float* cos_sin,
                 const int* positions,
                 const float* inv_freq,
                 float factor,
                 int n_tokens,
                 int half,
                 Stream stream) {
    const int n = n_tokens * half;
    if (n == 0) return;
    const Shape shape{unsigned((n + kWarps * kWarp - 1) / (kWarps * kWarp)), 1, 1, kWarps * kWarp, 0};
    launch("rope_angles", rope_angles_kernel, shape, Dependent::no, stream, cos_sin, positions, inv_freq,
           factor, n_tokens, half);
}

void qk_norm_rope_store_kv(const RopeStore& p, Dependent dependent, Stream stream) {
    if (p.n_tokens == 0) return;
    const int heads = p.n_heads + 2 * p.n_kv_heads;
    const Shape shape{unsigned(p.n_tokens), unsigned((heads + kWarps - 1) / kWarps), 1, kWarps * kWarp, 0};
    launch("qk_norm_rope_store_kv",
           p.kv_type == DType::f32 ? rope_store_kernel<float> : rope_store_kernel<bf16>, shape, dependent,
           stream, p);
}

}  // namespace llmgen::kernels
