// y = W x for 1 to 8 rows x: what decode spends its time on. W is read once, as fast as memory gives it.
//
//   a warp owns two output rows: o and o + 1; for SwiGLU the gate's row o and the up projection's row o; for
//   q, k and v the two channels that rotate together lane l reads 16 bytes at column step · (32 · kPerVec) +
//   l · kPerVec of both rows, kUnroll steps in flight
//
// Bytes in flight: 2 rows x kUnroll x 16 B = 128 B a thread, 4 KiB a warp, 32 KiB for one block of 8 warps;
// the 29 KiB per SM that an H200 needs (NOTES.md) are there with a single resident block. A slot's next load
// is issued as soon as its values are used, so the count stays up through the loop. The first kUnroll steps
// are loaded before the grid dependency is waited for: weights never change.
//
// x comes from L1 (every warp of a block reads the same rows), or, with the norm fused in, from shared
// memory, where each block has put the normalised rows.
//
// The order of summation doesn't depend on the number of rows, so a row's result is the same bits alone or
// beside others. Error: (in / 32 + 6) · 2^-24 · Σ|w||x|, plus the rounding of y.
#pragma once

#include "choice.cuh"
#include "common/reduce.h"
#include "common/vector.h"
#include "kernels.h"
#include "rope.cuh"

namespace llmgen::kernels {

inline constexpr int kGemvWarps = 8;
inline constexpr int kGemvThreads = kGemvWarps * kWarp;
inline constexpr int kGemvUnroll = 4;
/// Of normalised rows: a block fits the 99 KiB that the smallest cards since sm_80 give one, gemv_qkv's own
/// arrays included; and two fit an SM of the large ones.
inline constexpr std::size_t kMostNormShared = 88 << 10;

enum class GemvEnd { store, add, swiglu, argmax, qkv };

/// The two output rows of a warp; the second may lie past the end.
struct RowPair {
    int first, second;
};
template <GemvEnd kEnd>
__host__ __device__ inline int count_pairs(const Gemv& p) {
    return kEnd == GemvEnd::swiglu ? p.out / 2 : (p.out + 1) / 2;
}
template <GemvEnd kEnd>
__device__ __forceinline__ RowPair rows_of_pair(const Gemv& p, int pair) {
    if constexpr (kEnd == GemvEnd::swiglu) return {pair, pair + p.out / 2};
    if constexpr (kEnd == GemvEnd::qkv) {
        const int per_head = p.rope.head_dim / 2, h = pair / per_head, d = pair % per_head;
        const int half = h < p.rope.n_heads + p.rope.n_kv_heads ? p.rope.rotary_dim / 2 : 0;
        if (d < half) return {h * p.rope.head_dim + d, h * p.rope.head_dim + d + half};
    }
    return {2 * pair, 2 * pair + 1};
}

/// Puts the normalised rows into shared memory, [n_tokens, in], the same bits as rmsnorm() makes.
template <typename Act, int kTokens>
__device__ void normalise_rows(const Gemv& p, Act* rows) {
    SHARED_ARRAY(float, partial, kTokens* kGemvWarps);
    const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
    for (int t = 0; t < kTokens; ++t) {
        const float* x = static_cast<const float*>(p.x) + (t < p.n_tokens ? t : 0) * p.x_stride;
        float sum = 0;
        for (int d = int(threadIdx.x); d < p.in; d += kGemvThreads) sum = fma_f32(x[d], x[d], sum);
        sum = warp_sum(sum);
        if (lane == 0) partial[t * kGemvWarps + warp] = sum;
    }
    sync_block();
    for (int t = 0; t < p.n_tokens; ++t) {
        const float* x = static_cast<const float*>(p.x) + t * p.x_stride;
        const float sum = warp_sum(lane < kGemvWarps ? partial[t * kGemvWarps + lane] : 0.0f);
        const float scale = rsqrt_f32(sum / float(p.in) + p.eps);
        for (int d = int(threadIdx.x); d < p.in; d += kGemvThreads)
            rows[t * p.in + d] = from_f32<Act>(as_f32(from_f32<Act>(x[d] * scale)) * p.norm_weight[d]);
    }
    sync_block();
}

/// One token's pair of q, k or v: rotated and put where it belongs. Heads that are normalised first wait in
/// qkv until the last of their blocks has come.
template <typename Act>
__device__ __forceinline__ void write_qkv(const RopeStore& p, int t, RowPair rows, float a, float b) {
    const int h = rows.first / p.head_dim, d0 = rows.first % p.head_dim, d1 = rows.second % p.head_dim;
    const HeadKind kind = kind_of(p, h);
    if (norm_of(p, kind) != nullptr) {
        float* row = p.qkv + t * p.qkv_stride;
        row[rows.first] = a;
        row[rows.second] = b;
        return;
    }
    const int half = p.rotary_dim / 2;
    if (kind != HeadKind::v && d0 < half) {
        const float* cos_sin = p.cos_sin + std::size_t(t) * std::size_t(p.rotary_dim);
        const float c = cos_sin[d0], s = cos_sin[half + d0], low = a;
        a = rotated_low(low, b, c, s);
        b = rotated_high(low, b, c, s);
    }
    write_channel<Act>(p, t, h, d0, a);
    write_channel<Act>(p, t, h, d1, b);
}

/// The last block of a head to come here normalises the head, rotates it and puts it where it belongs.
template <typename Act>
__device__ void finish_head(const Gemv& p) {
    SHARED_ARRAY(float, heads, kGemvWarps* kMaxHeadDim);
    if (p.arrivals == nullptr) return;                    // no norms; blocks may span heads
    const int blocks = p.rope.head_dim / 2 / kGemvWarps;  // of a head
    const int h = int(blockIdx.x) / blocks, warp = int(threadIdx.x) / kWarp;
    if (norm_of(p.rope, kind_of(p.rope, h)) == nullptr) return;
    if (!arrives_last(&p.arrivals[h], blocks) || warp >= p.n_tokens) return;
    norm_rope_store_head<Act>(p.rope, warp, h, heads + warp * kMaxHeadDim);
}

template <GemvEnd kEnd, typename Act>
__device__ __forceinline__ void write_pair(const Gemv& p, int t, RowPair rows, float a, float b) {
    const auto [first, second] = rows;
    if (p.bias != nullptr) {
        a += p.bias[first];
        if (second < p.out) b += p.bias[second];
    }
    const std::int64_t base = t * p.y_stride + first;
    if constexpr (kEnd == GemvEnd::qkv) {
        write_qkv<Act>(p.rope, t, rows, a, b);
    } else if constexpr (kEnd == GemvEnd::swiglu) {
        static_cast<Act*>(p.y)[base] = from_f32<Act>(silu(a) * b);
    } else if constexpr (kEnd == GemvEnd::add) {
        static_cast<float*>(p.y)[base] += a;
        if (second < p.out) static_cast<float*>(p.y)[base + 1] += b;
    } else if constexpr (kEnd == GemvEnd::argmax) {
        Best best = best_of(a, first);
        if (second < p.out && best_of(b, second) > best) best = best_of(b, second);
        // A stale read only costs a needless atomic; reading first saves nearly all of them.
        if (best > p.best[t]) atomic_max(&p.best[t], best);
        if (p.y == nullptr) return;
        static_cast<float*>(p.y)[base] = a;
        if (second < p.out) static_cast<float*>(p.y)[base + 1] = b;
    } else if (p.y_type == DType::f32) {
        static_cast<float*>(p.y)[base] = a;
        if (second < p.out) static_cast<float*>(p.y)[base + 1] = b;
    } else {
        static_cast<Act*>(p.y)[base] = from_f32<Act>(a);
        if (second < p.out) static_cast<Act*>(p.y)[base + 1] = from_f32<Act>(b);
    }
}

template <GemvEnd kEnd, typename W, typename Act, int kTokens, bool kNorm>
__global__ void __launch_bounds__(kGemvThreads, kTokens == 8 ? 1 : 2) gemv_kernel(Gemv p) {
    constexpr int kVec = kPerVec<W>, kStep = kWarp * kVec;
    SHARED_DYNAMIC(Act, rows);
    const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
    const int n_pairs = count_pairs<kEnd>(p), pair = int(blockIdx.x) * kGemvWarps + warp;
    // Warps past the end take part in barriers; their rows are read as the last pair's and not written.
    const RowPair own = rows_of_pair<kEnd>(p, pair < n_pairs ? pair : n_pairs - 1);
    const int first = own.first, second = own.second < p.out ? own.second : first;
    const W* w0 = static_cast<const W*>(p.weight) + std::size_t(first) * std::size_t(p.in);
    const W* w1 = static_cast<const W*>(p.weight) + std::size_t(second) * std::size_t(p.in);

    Vec16 a[kGemvUnroll], b[kGemvUnroll];
    auto fetch = [&](int slot, int k) {
        if (k < p.in) {
            a[slot] = load16_stream(w0 + k);
            b[slot] = load16_stream(w1 + k);
        }
    };
#pragma unroll
    for (int slot = 0; slot < kGemvUnroll; ++slot) fetch(slot, slot * kStep + lane * kVec);
    grid_dependency_wait();
    grid_dependency_trigger();
    if constexpr (kNorm) normalise_rows<Act, kTokens>(p, rows);

    float sum[kTokens][2] = {};
    for (int k0 = lane * kVec; k0 < p.in; k0 += kGemvUnroll * kStep) {
#pragma unroll
        for (int slot = 0; slot < kGemvUnroll; ++slot) {
            const int k = k0 + slot * kStep;
            if (k >= p.in) break;
            float fa[kVec], fb[kVec];
            unpack<W>(a[slot], fa);
            unpack<W>(b[slot], fb);
            fetch(slot, k + kGemvUnroll * kStep);
#pragma unroll
            for (int t = 0; t < kTokens; ++t) {
                float x[kVec];
                const int row = t < p.n_tokens ? t : 0;
                if constexpr (kNorm)
                    load_f32<kVec>(rows + row * p.in + k, x);
                else
                    load_f32<kVec>(static_cast<const Act*>(p.x) + row * p.x_stride + k, x);
#pragma unroll
                for (int i = 0; i < kVec; ++i) {
                    sum[t][0] = fma_f32(fa[i], x[i], sum[t][0]);
                    sum[t][1] = fma_f32(fb[i], x[i], sum[t][1]);
                }
            }
        }
    }
    float mine[2] = {};
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
        const float s0 = warp_sum(sum[t][0]), s1 = warp_sum(sum[t][1]);
        if (lane == t) {
            mine[0] = s0;
            mine[1] = s1;
        }
    }
    if (pair < n_pairs && lane < p.n_tokens) write_pair<kEnd, Act>(p, lane, own, mine[0], mine[1]);
    if constexpr (kEnd == GemvEnd::qkv) finish_head<Act>(p);
}

/// For rows that 16-byte loads can't walk: a lane takes every 32nd element.
template <GemvEnd kEnd, typename W, typename Act>
__global__ void __launch_bounds__(kGemvThreads) gemv_odd_kernel(Gemv p) {
    const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
    const int pair = int(blockIdx.x) * kGemvWarps + warp;
    grid_dependency_wait();
    grid_dependency_trigger();
    if (pair >= count_pairs<kEnd>(p)) return;
    const RowPair own = rows_of_pair<kEnd>(p, pair);
    const int first = own.first, second = own.second < p.out ? own.second : first;
    const W* w0 = static_cast<const W*>(p.weight) + std::size_t(first) * std::size_t(p.in);
    const W* w1 = static_cast<const W*>(p.weight) + std::size_t(second) * std::size_t(p.in);
    for (int t = 0; t < p.n_tokens; ++t) {
        const Act* x = static_cast<const Act*>(p.x) + t * p.x_stride;
        float s0 = 0, s1 = 0;
        for (int k = lane; k < p.in; k += kWarp) {
            const float value = as_f32(x[k]);
            s0 = fma_f32(as_f32(w0[k]), value, s0);
            s1 = fma_f32(as_f32(w1[k]), value, s1);
        }
        s0 = warp_sum(s0);
        s1 = warp_sum(s1);
        if (lane == 0) write_pair<kEnd, Act>(p, t, own, s0, s1);
    }
}

template <GemvEnd kEnd, typename W, typename Act, bool kNorm>
void launch_gemv_tokens(
    const Gemv& p, const Shape& shape, Dependent dependent, Stream stream, const char* name) {
    auto* kernel = p.n_tokens == 1   ? gemv_kernel<kEnd, W, Act, 1, kNorm>
                   : p.n_tokens == 2 ? gemv_kernel<kEnd, W, Act, 2, kNorm>
                   : p.n_tokens <= 4 ? gemv_kernel<kEnd, W, Act, 4, kNorm>
                                     : gemv_kernel<kEnd, W, Act, 8, kNorm>;
    launch(name, kernel, shape, dependent, stream, p);
}

template <GemvEnd kEnd, typename W, typename Act>
void launch_gemv(const Gemv& p, Dependent dependent, Stream stream, const char* name) {
    const int n_pairs = count_pairs<kEnd>(p);
    Shape shape{unsigned((n_pairs + kGemvWarps - 1) / kGemvWarps), 1, 1, kGemvThreads};
    if (p.norm_weight != nullptr) {
        shape.most_shared = kMostNormShared;
        shape.dynamic_shared = std::size_t(p.n_tokens) * std::size_t(p.in) * sizeof(Act);
        return launch_gemv_tokens<kEnd, W, Act, true>(p, shape, dependent, stream, name);
    }
    if constexpr (kEnd != GemvEnd::qkv) {  // that always has the norm
        const bool vectors = p.in % kPerVec<W> == 0 && p.x_stride * std::int64_t(sizeof(Act)) % 16 == 0 &&
                             reinterpret_cast<std::uintptr_t>(p.x) % 16 == 0;
        if (!vectors) return launch(name, gemv_odd_kernel<kEnd, W, Act>, shape, dependent, stream, p);
        launch_gemv_tokens<kEnd, W, Act, false>(p, shape, dependent, stream, name);
    }
}

/// bf16 activations go with bf16 weights; f32 activations with any.
template <GemvEnd kEnd>
void launch_gemv_types(const Gemv& p, Dependent dependent, Stream stream, const char* name) {
    if (p.n_tokens == 0 || p.out == 0) return;
    if (p.act_type == DType::bf16) return launch_gemv<kEnd, bf16, bf16>(p, dependent, stream, name);
    if (p.weight_type == DType::f32) return launch_gemv<kEnd, float, float>(p, dependent, stream, name);
    if (p.weight_type == DType::bf16) return launch_gemv<kEnd, bf16, float>(p, dependent, stream, name);
    launch_gemv<kEnd, f16, float>(p, dependent, stream, name);
}

}  // namespace llmgen::kernels
