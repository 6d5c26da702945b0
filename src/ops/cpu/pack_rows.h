// Rows of activations into the order that the tile kernels read: rows innermost.
//
//   f32    [depth][rows]
//   bf16   [depth / 2][rows][2]      depth even; an odd last value gets a zero for partner
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/cpu/isa.h"

namespace llmgen::cpu {

/// `n_rows` (at most 12) rows of `n` values of type `source_type` at `rows`, packed as `type`.
using PackRows = void (*)(
    void* packed, DType type, const void* const* rows, DType source_type, int n_rows, std::int64_t n);

PackRows pack_rows(Isa isa);
/// For CPUs with bf16 dot products; null where the compiler knows no such instructions.
PackRows pack_rows_avx512bf16();

}  // namespace llmgen::cpu
