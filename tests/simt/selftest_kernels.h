// Kernels with planted bugs, for the emulator's self-test. Bug::none is right; every other one must be found.
#pragma once

#include "common/device.h"
#include "common/reduce.h"

namespace llmgen::selftest {

using namespace llmgen::kernels;

enum class Bug {
    none,
    no_barrier,         // between the writes and reads of shared memory
    past_shared,        // a write past the end of a shared array
    unwritten_shared,   // a read of a slot that nobody wrote
    lane_leaves,        // before a collective that names it
    past_global,        // a read past the end of a global array
    divergent_barrier,  // some threads never come
    late_barrier,       // a barrier after some threads left
    two_barriers,       // half of the threads at one, half at another
    no_async_wait,      // for cp.async
    no_reuse_barrier,   // before a ring slot is overwritten
    async_left,         // a copy that nobody waits for
    misaligned,         // a 16-byte load at an odd place
    early_read,         // of a predecessor's output
    early_write,        // to a predecessor's input
    no_dependency_wait,
    no_last_block,  // reads other blocks' partial sums without waiting for them
};

template <Bug kBug>
__device__ float sum_with_bug(float value) {
    SHARED_ARRAY(float, partial, 32);
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, n_warps = int(blockDim.x) / 32;
    value = warp_sum(value);
    if (lane == 0) partial[warp + (kBug == Bug::past_shared ? 32 : 0)] = value;
    if (kBug != Bug::no_barrier) sync_block();
    value = lane < n_warps + (kBug == Bug::unwritten_shared ? 1 : 0) ? partial[lane] : 0.0f;
    return warp_sum(value);
}

/// out[row] = Σ x[row]²
template <Bug kBug>
__global__ void sum_squares(float* out, const float* x, int n) {
    const float* row = x + std::size_t(blockIdx.x) * std::size_t(n);
    if (kBug == Bug::lane_leaves && threadIdx.x % 32 == 7) return;
    float sum = 0;
    const int end = n + (kBug == Bug::past_global && blockIdx.x + 1 == gridDim.x ? 1 : 0);
    for (int i = int(threadIdx.x); i < end; i += int(blockDim.x)) sum += row[i] * row[i];
    if (kBug == Bug::divergent_barrier && threadIdx.x < 64) sync_block();
    if (kBug == Bug::late_barrier && threadIdx.x >= 96) return;
    if (kBug == Bug::two_barriers) {
        if (threadIdx.x < 64)
            sync_block();
        else
            sync_block();
    }
    sum = sum_with_bug<kBug>(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

/// C[M, N] f32 = A[M, K] B[N, K]ᵀ over 64 x 64 tiles: 4 warps, a ring of two cp.async stages, ldmatrix, mma.
template <typename T, Bug kBug>
__global__ void gemm64(float* c, const T* a, const T* b, int n, int k) {
    constexpr int kRow = 32 + 8;  // padded: rows of 80 bytes fall on different banks
    SHARED_ARRAY(T, sa, 2 * 64 * kRow);
    SHARED_ARRAY(T, sb, 2 * 64 * kRow);
    const int t = int(threadIdx.x), lane = t % 32, warp = t / 32;
    const int m0 = int(blockIdx.y) * 64, n0 = int(blockIdx.x) * 64;
    auto load = [&](int stage, int k0) {
        for (int i = t; i < 64 * 4; i += 128) {
            const int row = i / 4, col = i % 4 * 8;
            cp_async_16(&sa[(stage * 64 + row) * kRow + col],
                        &a[std::size_t(m0 + row) * std::size_t(k) + std::size_t(k0 + col)]);
            cp_async_16(&sb[(stage * 64 + row) * kRow + col],
                        &b[std::size_t(n0 + row) * std::size_t(k) + std::size_t(k0 + col)]);
        }
        cp_async_commit();
    };
    float acc[8][4] = {};
    load(0, 0);
    for (int k0 = 0, stage = 0; k0 < k; k0 += 32, stage ^= 1) {
        if (k0 + 32 < k) {
            load(stage ^ 1, k0 + 32);
            if (kBug != Bug::no_async_wait) cp_async_wait<1>();
        } else if (kBug != Bug::async_left) {
            cp_async_wait<0>();
        }
        sync_block();
        for (int kk = 0; kk < 32; kk += 16) {
            std::uint32_t fa[4];
            ldmatrix_x4(fa, &sa[(stage * 64 + warp * 16 + lane % 16) * kRow + kk + lane / 16 * 8]);
            for (int j = 0; j < 8; j += 2) {
                std::uint32_t fb[4];
                ldmatrix_x4(
                    fb, &sb[(stage * 64 + j * 8 + lane % 8 + lane / 16 * 8) * kRow + kk + lane / 8 % 2 * 8]);
                const std::uint32_t b0[2] = {fb[0], fb[1]}, b1[2] = {fb[2], fb[3]};
                mma_m16n8k16<T>(acc[j], fa, b0);
                mma_m16n8k16<T>(acc[j + 1], fa, b1);
            }
        }
        if (kBug != Bug::no_reuse_barrier) sync_block();
    }
    for (int j = 0; j < 8; ++j)
        for (int e = 0; e < 4; ++e)
            c[std::size_t(m0 + warp * 16 + lane / 4 + e / 2 * 8) * std::size_t(n) +
              std::size_t(n0 + j * 8 + lane % 4 * 2 + e % 2)] = acc[j][e];
}

/// out[i] = in[n - 1 - i] + 1, as a dependent launch.
template <Bug kBug>
__global__ void reverse_plus_one(float* out, const float* in, int n) {
    const int i = int(blockIdx.x) * int(blockDim.x) + int(threadIdx.x);
    float value = 0;
    if (kBug == Bug::early_read) value = in[n - 1 - i];
    if (kBug == Bug::early_write) out[i] = 0;
    if (kBug != Bug::no_dependency_wait) grid_dependency_wait();
    if (kBug != Bug::early_read) value = in[n - 1 - i];
    out[i] = value + 1;
}

/// total = Σ x; each block adds up its part, the last one to come adds the parts.
template <Bug kBug>
__global__ void grid_sum(float* total, float* parts, unsigned* arrived, const float* x) {
    SHARED_ARRAY(unsigned, rank, 1);
    float sum = sum_with_bug<Bug::none>(x[blockIdx.x * blockDim.x + threadIdx.x]);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = sum;
        fence_grid();
        rank[0] = atomic_add(arrived, 1u);
    }
    sync_block();
    const bool last = kBug == Bug::no_last_block ? blockIdx.x + 1 == gridDim.x : rank[0] + 1 == gridDim.x;
    if (!last || threadIdx.x != 0) return;
    sum = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) sum += parts[i];
    *total = sum;
}

}  // namespace llmgen::selftest
