// Attention for what the tiled kernels don't know: f32 keys, other head dimensions. Made to be right: one
// block per (token, query head), each warp takes every fourth key, lanes share the channels.
#include "attn.cuh"

namespace llmgen::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kMaxPerLane = 8;  // head_dim up to 256

template <typename T>
__global__ void __launch_bounds__(kThreads) attn_generic_kernel(Attention p) {
    SHARED_ARRAY(float, warp_o, kWarps* kMaxPerLane* kWarp);
    SHARED_ARRAY(float, warp_m, kWarps);
    SHARED_ARRAY(float, warp_l, kWarps);
    grid_dependency_wait();
    grid_dependency_trigger();
    const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
    const int t = int(blockIdx.x), h = int(blockIdx.y), kv_head = h / (p.n_heads / p.n_kv_heads);
    int seq = 0;
    while (seq + 1 < p.n_seqs && p.first_token[seq + 1] <= t) ++seq;
    const int position = p.context_len[seq] - (p.first_token[seq + 1] - t);
    const int* pages = p.page_table + std::int64_t(seq) * p.page_stride;
    const float* q = p.q + t * p.q_stride + std::int64_t(h) * p.head_dim;

    float m = -INFINITY, l = 0, o[kMaxPerLane] = {};
    for (int key = oldest_key(position, p.window) + warp; key <= position; key += kWarps) {
        const std::int64_t row =
            (std::int64_t(pages[key / kPageTokens]) * p.n_kv_heads + kv_head) * kPageTokens +
            key % kPageTokens;
        const T* k = static_cast<const T*>(p.k) + row * p.head_dim;
        const T* v = static_cast<const T*>(p.v) + row * p.head_dim;
        float s = 0;
        for (int d = lane; d < p.head_dim; d += kWarp) s = fma_f32(q[d], as_f32(k[d]), s);
        s = warp_sum(s) * p.scale;
        const float top = max_f32(m, s), shrink = expf(m - top), weight = expf(s - top);
        m = top;
        l = l * shrink + weight;
#pragma unroll
        for (int i = 0; i < kMaxPerLane; ++i) {
            const int d = lane + i * kWarp;
            if (d < p.head_dim) o[i] = o[i] * shrink + weight * as_f32(v[d]);
        }
    }
#pragma unroll
    for (int i = 0; i < kMaxPerLane; ++i) warp_o[(warp * kMaxPerLane + i) * kWarp + lane] = o[i];
    if (lane == 0) {
        warp_m[warp] = m;
        warp_l[warp] = l;
    }
    sync_block();
    float top = -INFINITY, total = 0;
    for (int w = 0; w < kWarps; ++w) top = max_f32(top, warp_m[w]);
    for (int w = 0; w < kWarps; ++w) total += warp_l[w] * expf(warp_m[w] - top);
    T* out = static_cast<T*>(p.out) + t * p.out_stride + std::int64_t(h) * p.head_dim;
    for (int d = int(threadIdx.x); d < p.head_dim; d += kThreads) {
        float value = 0;
        for (int w = 0; w < kWarps; ++w) value += warp_o[w * kMaxPerLane * kWarp + d] * expf(warp_m[w] - top);
        out[d] = from_f32<T>(value / total);
    }
}

}  // namespace

void attn_generic(const Attention& p, int n_tokens, Dependent dependent, Stream stream) {
    if (n_tokens == 0) return;
    const Shape shape{unsigned(n_tokens), unsigned(p.n_heads), 1, kThreads, 0};
    launch("attn_generic", p.kv_type == DType::f32 ? attn_generic_kernel<float> : attn_generic_kernel<bf16>,
           shape, dependent, stream, p);
}

}  // namespace llmgen::kernels
