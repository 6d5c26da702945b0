// Attention for what the tiled kernels don't know: f32 keys, other head dimensions. Made to be right, not
// fast: one block per (token, query head); each warp takes every fourth run of 32 keys, a lane scoring one
// key and then summing the channels lane, lane + 32, … of the values.
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
    SHARED_ARRAY(float, key_weight, kThreads);
    SHARED_ARRAY(std::int64_t, key_row, kThreads);
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
    for (int first = oldest_key(position, p.window) + warp * kWarp; first <= position; first += kThreads) {
        const int key = first + lane, n_keys = position - first < kWarp ? position - first + 1 : kWarp;
        float s = -INFINITY;
        if (key <= position) {
            const std::int64_t row =
                (std::int64_t(pages[key / kPageTokens]) * p.n_kv_heads + kv_head) * kPageTokens +
                key % kPageTokens;
            key_row[warp * kWarp + lane] = row * p.head_dim;
            const T* k = static_cast<const T*>(p.k) + row * p.head_dim;
            s = 0;
            for (int d = 0; d < p.head_dim; ++d) s = fma_f32(q[d], as_f32(k[d]), s);
            s *= p.scale;
        }
        const float top = max_f32(m, warp_max(s)), shrink = expf(m - top), weight = expf(s - top);
        key_weight[warp * kWarp + lane] = weight;
        m = top;
        l = l * shrink + warp_sum(weight);
        sync_warp();
#pragma unroll
        for (int i = 0; i < kMaxPerLane; ++i) {
            const int d = lane + i * kWarp;
            if (d >= p.head_dim) break;
            float sum = 0;
            for (int j = 0; j < n_keys; ++j)
                sum = fma_f32(key_weight[warp * kWarp + j],
                              as_f32(static_cast<const T*>(p.v)[key_row[warp * kWarp + j] + d]), sum);
            o[i] = o[i] * shrink + sum;
        }
        sync_warp();
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
