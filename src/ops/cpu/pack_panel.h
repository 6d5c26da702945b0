// Weights from rows to panels by transpositions in registers: a quarter of the time of moving pair by pair.
// And the product of one row of x with weights that stand in rows yet, each output's chain of multiply-adds
// in the order of the packed kernels: the same bits.
#pragma once

#include <cstdint>

namespace llmgen::cpu {

/// The depth of such a panel is a multiple of this.
inline constexpr std::int64_t kPackStep = 32;

/// panel [depth / 2][32][2] from 32 rows of `depth` bf16 each.
using PackPanel = void (*)(void* panel, const void* const* rows, std::int64_t depth);

/// out [32] = or += the product of x [depth] bf16 with the panel of those rows. Draws near what lies behind
/// them.
using MultiplyRows = void (*)(float* out, const void* const* rows, const void* x, std::int64_t depth);

struct RowsKernels {
    PackPanel pack = nullptr;
    MultiplyRows multiply = nullptr, multiply_add = nullptr;
};

/// Null where the compiler knows no such instructions. For CPUs with bf16 dot products of 512 bits only.
RowsKernels rows_kernels_avx512bf16();

}  // namespace llmgen::cpu
