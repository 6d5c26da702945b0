// The inner loops of attention: up to 12 query rows against one block of 128 keys (8 pages).
//
//   scores [R][128] = q [R][head_dim] times the keys' blocks      (as a panel of 16 outputs a page)
//   p      [R][128] = exp(scale · scores - max), 0 where not seen
//   out    [R][head_dim] = p times the values' blocks
//
// Blocks of 128 begin at multiples of 128 keys whatever the query, each sum runs over the keys or channels in
// order, and blocks are merged in order: so a row's result is the same bit for bit in a prefill, a chunk or a
// decode step, split over threads or not.
#pragma once

#include <array>
#include <cstdint>

#include "base/dtype.h"
#include "ops/batch.h"
#include "ops/cpu/isa.h"

namespace llmgen::cpu {

inline constexpr int kKeyBlock = 128;
inline constexpr int kBlockPages = kKeyBlock / kPageSize;
inline constexpr int kMaxQueryRows = 12;
inline constexpr int kRowLanes = 16;  // that arrays of one value a row have room for

/// The pages of one block: pointers to this head's keys or values in each.
using PageBlocks = std::array<const void*, kBlockPages>;

/// scores [R][128] for pages begin to end - 1. q is packed with the rows innermost as linear_kernels.h has
/// it. `next` is what will be read after this block: few rows wait for memory, so for up to 6 of them each
/// line read draws its fellow of the next block near.
using ScoresKernel = void (*)(float* scores,
                              const void* q,
                              const PageBlocks& keys,
                              const PageBlocks& next,
                              int begin,
                              int end,
                              int head_dim);
/// out [R][head_dim] = p [R][128] (f32 or bf16 by p_type) times the values of keys begin to end - 1 (begin:
/// the first of a page). What lies behind `end` in its page is never used: it may be NaN.
using ValuesKernel = void (*)(float* out,
                              const void* p,
                              const PageBlocks& values,
                              const PageBlocks& next,
                              int begin,
                              int end,
                              int head_dim);
inline constexpr int kPrefetchRows = 6;

/// The keys begin to end - 1.
struct KeyRange {
    int begin, end;
};

/// Rows whose scores become weights.
struct SoftmaxRows {
    void* p;              // [rows][128] of p_type: the weights
    DType p_type;         // f32 or bf16
    const float* scores;  // [rows][128]
    const KeyRange* seen;
    int rows;
    float scale;
    float *max, *sum;  // of each row: -inf and 0 where it sees none
};

struct AttentionKernels {
    DType q_type = DType::f32;
    DType p_type = DType::f32;
    std::array<ScoresKernel, kMaxQueryRows + 1> scores = {};  // by rows; null where there is none
    std::array<ValuesKernel, kMaxQueryRows + 1> values = {};
    int max_rows = 0;

    void (*softmax)(const SoftmaxRows& rows);
    /// Joins the (max, sum) of 16 rows with those of a further block, and says by which factors their
    /// outputs join. A row that sees none of the block (part_sum 0) stays as it is, with b = 0. Arrays of 16.
    void (*join)(float* max, float* sum, const float* part_max, const float* part_sum, float* a, float* b);
    /// total = total · a + part · b
    void (*merge)(float* total, float a, const float* part, float b, int n);
    /// out = total · factor, in out's type.
    void (*finish)(void* out, DType type, const float* total, float factor, int n);

    /// The smallest tile that holds `rows` (at most max_rows) rows.
    int tile_rows(int rows) const {
        while (!scores[std::size_t(rows)]) ++rows;
        return rows;
    }
};

AttentionKernels attention_kernels(DType act, Isa isa);
/// Replaces the two products by bf16 dot products.
void use_avx512bf16(AttentionKernels& kernels);

}  // namespace llmgen::cpu
