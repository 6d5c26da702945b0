// What prefill and decode share: a warp's 16 rows of queries against keys and values in shared memory.
//
//   rows    row r of a sequence and kv head is new token r / group, query head r % group of that kv head;
//   packing the
//           heads of a group into one tile reads each key once
//   S = Q Kᵀ: A = Q in registers, B from K tiles by ldmatrix;  O += P V: A = P repacked from S's accumulators
//   (the two
//           layouts agree), B from V tiles by transposing ldmatrix
//   softmax online, in base 2: m = max so far of scale · log2(e) · s, l = Σ 2^(s - m), O unnormalised
//
// Tiles in shared memory have rows of D + 8 elements: an odd number of 16-byte units for every D here, so the
// eight rows of an ldmatrix phase fall on different banks.
//
// Keys past the context are never read (they may hold anything, NaN included): their rows are zero-filled,
// because 0 · NaN would reach the sum.
#pragma once

#include <type_traits>

#include "common/reduce.h"
#include "common/vector.h"
#include "kernels.h"

namespace llmgen::kernels {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr int kTileRows = 16;  // of one warp

/// The most rows that decode takes of a sequence and kv head: what the heads of one token fill, up to whole
/// tiles.
__host__ __device__ constexpr int decode_rows(int group) {
    return (group + kTileRows - 1) / kTileRows * kTileRows;
}

/// The rows of one sequence and kv head.
struct AttnRows {
    int first, n_new, context, group, kv_head;

    __device__ int count() const { return n_new * group; }
    /// Clamped: rows past the end repeat the last one and are not written.
    __device__ int token(int row) const { return (row < count() ? row : count() - 1) / group; }
    __device__ int head(int row) const {
        return kv_head * group + (row < count() ? row : count() - 1) % group;
    }
    __device__ int position(int row) const { return context - n_new + token(row); }
};

__device__ __forceinline__ AttnRows rows_of(const Attention& p, int seq, int kv_head) {
    const int first = p.first_token[seq];
    return {first, p.first_token[seq + 1] - first, p.context_len[seq], p.n_heads / p.n_kv_heads, kv_head};
}

/// The oldest key that a query at `position` sees.
__device__ __forceinline__ int oldest_key(int position, int window) {
    return window > 0 && position >= window ? position - window + 1 : 0;
}

/// Starts the copy of keys `key` … `key` + kKeys - 1 into a tile, by the kCopiers threads that call it with
/// their `rank`. The count of turns is a constant: with `i < n; i += kCopiers` nvcc, which can't know that
/// ranks are small, made twice the code, half of which nothing reaches.
template <int D, int kKeys, int kCopiers>
__device__ __forceinline__ void copy_tile(bf16* tile,
                                          const bf16* pool,
                                          const Attention& p,
                                          const int* pages,
                                          const AttnRows& rows,
                                          int key,
                                          int rank) {
    constexpr int kUnits = D / 8;  // of 16 bytes a row
    static_assert(kKeys * kUnits % kCopiers == 0);
    for (int turn = 0; turn < kKeys * kUnits / kCopiers; ++turn) {
        const int i = rank + turn * kCopiers, row = i / kUnits, unit = i % kUnits, position = key + row;
        const bool valid = position < rows.context;
        const std::int64_t page = valid ? pages[position / kPageTokens] : 0;
        const std::int64_t at = (page * p.n_kv_heads + rows.kv_head) * kPageTokens + position % kPageTokens;
        cp_async_16_or_zero(tile + row * (D + 8) + unit * 8, pool + at * D + unit * 8, valid);
    }
}

/// One warp's queries, running softmax and output.
template <int D>
struct WarpTile {
    static constexpr int kSteps = D / 16;
    /// With 256 channels, O takes half of the registers that a thread can have, and Q does not fit beside it:
    /// it stays in a tile of shared memory of each warp's own.
    static constexpr bool kSharedQ = D > 128;
    static constexpr int kQElements = kSharedQ ? kTileRows * (D + 8) : 0;
    std::uint32_t q[kSharedQ ? 1 : kSteps][4];
    const bf16* q_tile = nullptr;
    float o[D / 8][4];
    float m[2], l[2];  // of rows lane / 4 and lane / 4 + 8; l is this lane's share

    /// `tile`: kQElements of shared memory; filled here unless another warp with the same rows does.
    __device__ void start(const Attention& p, const AttnRows& rows, int row0, bf16* tile, bool fills = true) {
        const int lane = int(threadIdx.x) % kWarp;
        q_tile = tile;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = row0 + lane / 4 + half * 8;
            const float* from = p.q + (rows.first + rows.token(row)) * p.q_stride +
                                std::int64_t(rows.head(row)) * D + lane % 4 * 2;
#pragma unroll
            for (int step = 0; step < kSteps; ++step) {
                const std::uint32_t low = pack2<bf16>(from[step * 16], from[step * 16 + 1]);
                const std::uint32_t high = pack2<bf16>(from[step * 16 + 8], from[step * 16 + 9]);
                if constexpr (kSharedQ) {
                    bf16* to = tile + (lane / 4 + half * 8) * (D + 8) + step * 16 + lane % 4 * 2;
                    if (!fills) continue;
                    *reinterpret_cast<std::uint32_t*>(to) = low;
                    *reinterpret_cast<std::uint32_t*>(to + 8) = high;
                } else {
                    q[step][half] = low;
                    q[step][half + 2] = high;
                }
            }
            m[half] = -INFINITY;
            l[half] = 0;
        }
#pragma unroll
        for (int j = 0; j < D / 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) o[j][e] = 0;
        if constexpr (kSharedQ) sync_warp();
    }

    /// Takes in keys `key` … `key` + kKeys - 1. `masked` when some of the rows don't see all of them.
    template <int kKeys>
    __device__ __forceinline__ void attend(const bf16* k_tile,
                                           const bf16* v_tile,
                                           const Attention& p,
                                           const AttnRows& rows,
                                           int row0,
                                           int key,
                                           bool masked) {
        const int lane = int(threadIdx.x) % kWarp;
        float s[kKeys / 8][4] = {};
#pragma unroll
        for (int j = 0; j < kKeys / 8; j += 2) {
            const bf16* row = k_tile + (j * 8 + lane % 8 + lane / 16 * 8) * (D + 8) + lane / 8 % 2 * 8;
#pragma unroll
            for (int step = 0; step < kSteps; ++step) {
                std::uint32_t b[4];
                ldmatrix_x4(b, row + step * 16);
                const std::uint32_t b0[2] = {b[0], b[1]}, b1[2] = {b[2], b[3]};
                std::uint32_t(&a)[4] = q[kSharedQ ? 0 : step];
                if constexpr (kSharedQ)
                    ldmatrix_x4(a, q_tile + lane % 16 * (D + 8) + lane / 16 * 8 + step * 16);
                mma_m16n8k16<bf16>(s[j], a, b0);
                mma_m16n8k16<bf16>(s[j + 1], a, b1);
            }
        }
        const float scale = p.scale * kLog2E;
        float top[2] = {m[0], m[1]};
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                s[j][e] *= scale;
                if (masked) {
                    const int position = rows.position(row0 + lane / 4 + e / 2 * 8);
                    const int at = key + j * 8 + lane % 4 * 2 + e % 2;
                    if (at > position || at < oldest_key(position, p.window)) s[j][e] = -INFINITY;
                }
                top[e / 2] = max_f32(top[e / 2], s[j][e]);
            }
        float shrink[2], base[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            top[half] = max_f32(top[half], shfl_xor(top[half], 1));
            top[half] = max_f32(top[half], shfl_xor(top[half], 2));
            base[half] = top[half] == -INFINITY ? 0.0f : top[half];  // nothing seen yet: no inf - inf
            shrink[half] = exp2_fast(m[half] - base[half]);
            m[half] = top[half];
            l[half] *= shrink[half];
        }
#pragma unroll
        for (int j = 0; j < D / 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) o[j][e] *= shrink[e / 2];
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                s[j][e] = exp2_fast(s[j][e] - base[e / 2]);
                l[e / 2] += s[j][e];
            }
#pragma unroll
        for (int block = 0; block < kKeys / 16; ++block) {
            const float(&low)[4] = s[2 * block];
            const float(&high)[4] = s[2 * block + 1];
            const std::uint32_t a[4] = {pack2<bf16>(low[0], low[1]), pack2<bf16>(low[2], low[3]),
                                        pack2<bf16>(high[0], high[1]), pack2<bf16>(high[2], high[3])};
            const bf16* row = v_tile + (block * 16 + lane % 16) * (D + 8) + lane / 16 * 8;
#pragma unroll
            for (int j = 0; j < D / 8; j += 2) {
                std::uint32_t b[4];
                ldmatrix_x4_trans(b, row + j * 8);
                const std::uint32_t b0[2] = {b[0], b[1]}, b1[2] = {b[2], b[3]};
                mma_m16n8k16<bf16>(o[j], a, b0);
                mma_m16n8k16<bf16>(o[j + 1], a, b1);
            }
        }
    }

    /// Makes l whole: adds the shares of the four lanes of a row.
    __device__ void finish() {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            l[half] += shfl_xor(l[half], 1);
            l[half] += shfl_xor(l[half], 2);
        }
    }
};

/// Calls `body` with head_dim as a constant.
template <typename Body>
void for_head_dim(int head_dim, Body body) {
    switch (head_dim) {
        case 64:
            return body(std::integral_constant<int, 64>());
        case 80:
            return body(std::integral_constant<int, 80>());
        case 96:
            return body(std::integral_constant<int, 96>());
        case 128:
            return body(std::integral_constant<int, 128>());
        case 256:
            return body(std::integral_constant<int, 256>());
    }
}

}  // namespace llmgen::kernels
