// Sums and maxima over a warp and over a block, and which block comes last. Every lane gets the result, and
// gets the same bits: the butterfly adds the same pairs in every lane.
#pragma once

#include "common/device.h"

namespace llmgen::kernels {

inline constexpr int kWarp = 32;

__device__ __forceinline__ float warp_sum(float value) {
    for (int bits = kWarp / 2; bits > 0; bits /= 2) value += shfl_xor(value, bits);
    return value;
}

__device__ __forceinline__ float warp_max(float value) {
    for (int bits = kWarp / 2; bits > 0; bits /= 2) value = max_f32(value, shfl_xor(value, bits));
    return value;
}

/// Sum over a block of up to 1024 threads, a multiple of 32. `partial` holds a float per warp and is free
/// again after the next sync_block() of the caller.
__device__ __forceinline__ float block_sum(float value, float* partial) {
    const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp,
              n_warps = int(blockDim.x) / kWarp;
    value = warp_sum(value);
    if (lane == 0) partial[warp] = value;
    sync_block();
    return warp_sum(lane < n_warps ? partial[lane] : 0.0f);
}

__device__ __forceinline__ float block_max(float value, float* partial) {
    const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp,
              n_warps = int(blockDim.x) / kWarp;
    value = warp_max(value);
    if (lane == 0) partial[warp] = value;
    sync_block();
    return warp_max(lane < n_warps ? partial[lane] : -INFINITY);
}

/// Whether this block is the last of `n` to come here by `counter`; what the others have written is there to
/// be read then. The counter is zero again.
__device__ __forceinline__ bool arrives_last(int* counter, int n) {
    SHARED_ARRAY(int, is_last, 1);
    sync_block();
    if (threadIdx.x == 0) {
        fence_grid();
        is_last[0] = atomic_add(counter, 1) == n - 1;
        if (is_last[0]) *counter = 0;
        fence_grid();
    }
    sync_block();
    return is_last[0];
}

}  // namespace llmgen::kernels
