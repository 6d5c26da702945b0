// How the CPU backend lays out the 16 keys and values of one (page, kv head). The engine moves whole pages
// and never looks inside, so the order is the backend's own: the one in which attention reads them as if they
// were the packed weights of two small matrix products.
//
//   K f32   [head_dim][16 keys]          scores of 16 keys = sum over d of q[d] * one vector
//   K bf16  [head_dim / 2][16 keys][2]   the same by pairs of channels, as bf16 dot products want them
//   V f32   [16 keys][head_dim]          out[d] = sum over keys of p * one vector of channels
//   V bf16  [16 / 2][head_dim][2 keys]   by pairs of keys
//
// Trap: the partner of an odd last value in V bf16 was never written and may be a NaN: mask it, zero times it
// is not enough.
#pragma once

#include <cstdint>

#include "base/tensor.h"
#include "ops/batch.h"

namespace llmgen::cpu {

inline std::int64_t key_offset(DType dtype, int row, int d) {
    return dtype == DType::f32 ? std::int64_t(d) * kPageSize + row
                               : std::int64_t(d / 2) * (2 * kPageSize) + row * 2 + d % 2;
}

inline std::int64_t value_offset(DType dtype, int row, int d, int head_dim) {
    return dtype == DType::f32 ? std::int64_t(row) * head_dim + d
                               : std::int64_t(row / 2) * (2 * head_dim) + 2 * d + row % 2;
}

/// Where the block of (page, kv_head) begins, in elements. The block itself is contiguous; pages may lie
/// apart.
inline std::int64_t block_offset(const Tensor& cache, std::int64_t page, std::int64_t kv_head) {
    return page * cache.stride[0] + kv_head * cache.stride[1];
}

}  // namespace llmgen::cpu
