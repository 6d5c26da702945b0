// SIMD loops over single rows: norms, rotations and their way into the cache.
#pragma once

#include <cstdint>
#include <limits>

#include "base/dtype.h"
#include "ops/cpu/isa.h"

namespace llmgen::cpu {

/// The largest of the values of a row that were looked at, and where it stands first.
struct Largest {
    float value = -std::numeric_limits<float>::infinity();
    int at = -1;
    bool sound = true;  // none was NaN or +infinity
};

struct RowKernels {
    /// Contract: Ops::rmsnorm, one row; out f32 or bf16 by `type`.
    void (*rmsnorm)(void* out, DType type, const float* x, const float* weight, std::int64_t n, float eps);
    /// (a, b) → (a cos - b sin, b cos + a sin) over the pairs (d, d + half).
    void (*rotate)(float* head, const float* cos, const float* sin, int half);
    /// Looks at values first to first + n - 1 of a row, which follow those seen before.
    void (*find_largest)(Largest& found, const float* values, int first, int n);
    /// One token's key and value of one head into rows of their page's blocks (kv_layout.h).
    void (*store_kv)(
        void* k_block, void* v_block, DType type, const float* k, const float* v, int row, int head_dim);
    /// The same for the 16 tokens of a page, whose keys and values lie `stride` floats apart; null where
    /// there is no faster way than one by one.
    void (*store_kv_page)(void* k_block,
                          void* v_block,
                          DType type,
                          const float* k,
                          const float* v,
                          std::int64_t stride,
                          int head_dim) = nullptr;
    /// Draws near, for writing, what the same store_kv will write.
    void (*prefetch_kv)(const void* k_block, const void* v_block, DType type, int row, int head_dim);
};

RowKernels row_kernels(Isa isa);
/// Replaces what rounds to bf16.
void use_avx512bf16(RowKernels& kernels);

}  // namespace llmgen::cpu
