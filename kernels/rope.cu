// Rotary positions, and the one pass over q, k and v that norms heads, rotates them and puts keys and values
// into their pages.
//
// One warp per (token, head). The partner of channel d is (d + rotary_dim / 2), in another lane, so the head
// goes through shared memory, which also makes the in-place write of q safe. Traffic: qkv once in and q once
// out in f32, k and v once out; at 8B decode shapes 24 KiB in, 20 KiB out.
#include "rope.cuh"

namespace llmgen::kernels {
namespace {

constexpr int kWarps = 4;

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

template <typename T>
__global__ void rope_store_kernel(RopeStore p) {
    SHARED_ARRAY(float, heads, kWarps* kMaxHeadDim);
    const int warp = int(threadIdx.x) / kWarp, t = int(blockIdx.x), h = int(blockIdx.y) * kWarps + warp;
    grid_dependency_wait();
    grid_dependency_trigger();
    if (h >= p.n_heads + 2 * p.n_kv_heads) return;
    norm_rope_store_head<T>(p, t, h, heads + warp * kMaxHeadDim);
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
