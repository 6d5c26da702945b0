// The inner loops of the matrix products: one tile of up to 12 rows times one panel of 32 outputs. The caller
// (linear_fast.cpp) cuts the work into tiles; a kernel only multiplies.
//
// x of a tile of R rows is packed with the rows innermost, so that the kernel reads one stream:
//   f32    [depth][R]
//   bf16   [depth / 2][R][2]        for kernels on bf16 dot products
// One row needs no packing.
//
// Every sum is one chain acc = fma(w, x, acc) over the inputs in order (bf16 dot products: pair by pair), so
// a row's result does not depend on R.
#pragma once

#include <array>
#include <cstdint>

#include "base/dtype.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/packed_weight.h"

namespace llmgen::cpu {

inline constexpr int kMaxTileRows = 12;

/// Memory that will be read soon, drawn near while a tile computes: 128 bytes at each of its depth's steps
/// (one input of f32, two of bf16), which lie `step` bytes apart. A tile of 12 rows works longer on a panel
/// than memory takes to bring the next one, but only if the two overlap.
struct Ahead {
    const char* at;
    std::int64_t step;
};

/// How far ahead one row reads its own panels. Hardware prefetchers may stop at 4-KiB borders and ramp up
/// again: on an Intel chip a GEMV without this reached 2/3 to 4/5 of the bandwidth; Zen 5 does without (-2
/// %).
inline constexpr std::int64_t kStreamAhead = 1024;

/// out [R][32], rows `stride` apart, = x [R][depth] times the panel.
using TileKernel = void (*)(
    float* out, std::int64_t stride, const void* panel, const void* x, std::int64_t depth, Ahead ahead);

struct LinearKernels {
    DType x_type = DType::f32;                               // of the packed x
    std::array<TileKernel, kMaxTileRows + 1> tile = {};      // by rows; null where there is none
    std::array<TileKernel, kMaxTileRows + 1> tile_add = {};  // out += instead of out =
    /// The tile to begin `rows` rows with: the largest, but 14 and 16 go better in eights than as 12 and a
    /// rest too small to fill the units.
    int tile_rows(std::int64_t rows) const {
        if ((rows == 14 || rows == 16) && tile[12]) return 8;
        int r = rows < kMaxTileRows ? int(rows) : kMaxTileRows;
        while (!tile[std::size_t(r)]) --r;
        return r;
    }
};

/// Kernels for weights of a type when activations are of type `act`.
LinearKernels linear_kernels(DType weight, DType act, Isa isa);
LinearKernels linear_kernels_avx512bf16();

/// What becomes of a tile's sums [rows][32]. Bias pointers are 32 wide or null.
struct TileOutput {
    enum class Kind { store, add, swiglu } kind = Kind::store;
    DType type = DType::f32;
    void* data = nullptr;     // row 0, first output of the panel
    std::int64_t stride = 0;  // elements between rows
    int rows = 0;
    int width = 0;  // outputs of this panel that exist
    const float* bias = nullptr;
    const float* up_bias = nullptr;  // swiglu: of the up projection
};
/// `up` [rows][32]: the up projection's sums for swiglu, else null.
using FinishTile = void (*)(const TileOutput& out, const float* sums, const float* up);
FinishTile finish_tile(Isa isa);
/// The same for a whole panel of swiglu in bf16, where the instruction set has a way of its own; else null.
FinishTile finish_swiglu_bf16(Isa isa);
FinishTile finish_swiglu_avx512bf16();

}  // namespace llmgen::cpu
