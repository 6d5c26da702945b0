// Sums and maxima over a warp and over a block. Every lane gets the result, and gets the same bits: the
// butterfly adds the same pairs in every lane.
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

}  // namespace llmgen::kernels
