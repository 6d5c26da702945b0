// The one layout of a weight matrix that GEMV and GEMM share: panels of 32 outputs, inputs running inside.
//
//   f32    [out / 32][in][32]            one row of 32 outputs an input: two AVX-512 vectors
//   bf16   [out / 32][in / 2][32][2]     by pairs of inputs, as bf16 dot products want them
//
// A panel is one contiguous stream, so a GEMV reads memory in order, and a panel (32 * in values) stays in
// the L1 or L2 cache while a GEMM runs all rows over it. Lanes are outputs: no sum runs across lanes, each
// output is one chain of multiply-adds over the inputs in order, whatever the number of rows. oneDNN knows
// the bf16 layout as BA16a32b2a where `in` is a multiple of 32, so AMX needs no second copy. Outputs and
// inputs beyond the matrix (padding to 32 and to 2) are zeros.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/tensor.h"
#include "ops/cpu/memory.h"
#include "ops/cpu/pack_panel.h"
#include "ops/cpu/team.h"
#include "ops/ops.h"

namespace llmgen::cpu {

inline constexpr int kPanel = 32;

/// A weight that stands in the checkpoint's rows yet: see borrow_weight().
struct BorrowedRows {
    std::vector<Tensor> parts;
    std::shared_ptr<const void> owner;
    RowsKernels kernels;
    Arena* arena = nullptr;
    Team* team = nullptr;
    int uses_left = 0;

    const bf16* row(std::int64_t o) const;
    /// The 32 rows of a panel; past the last row that row again.
    void rows_of(std::int64_t panel, const void** rows) const;
    /// out [32] = or, to `add`, += the product of one row x of bf16 with a panel.
    void multiply(float* out, std::int64_t panel, const void* x, std::int64_t depth, bool add) const;
};

struct PanelWeight final : PackedWeight {
    DType dtype = DType::f32;  // f32 | bf16
    std::int64_t out = 0;
    std::int64_t in = 0;
    // Changed by use() alone.
    mutable Arena::Piece memory;
    mutable std::unique_ptr<BorrowedRows> borrowed;  // null once packed

    std::int64_t n_panels() const { return (out + kPanel - 1) / kPanel; }
    std::size_t bytes() const { return std::size_t(n_panels() * panel_size()) * size_of(dtype); }
    /// Inputs with their padding.
    std::int64_t depth() const { return dtype == DType::f32 ? in : (in + 1) / 2 * 2; }
    std::int64_t panel_size() const { return depth() * kPanel; }  // in elements
    std::int64_t offset(std::int64_t o, std::int64_t i) const {
        const std::int64_t panel = o / kPanel * panel_size(), lane = o % kPanel;
        return dtype == DType::f32 ? panel + i * kPanel + lane
                                   : panel + i / 2 * (2 * kPanel) + lane * 2 + i % 2;
    }
    float at(std::int64_t o, std::int64_t i) const;
    /// Before a step with `rows` rows, by the thread that starts it: packs what was borrowed for long enough.
    void use(std::int64_t rows) const;
};

/// The packed form of a weight that this backend made.
const PanelWeight& panels_of(const Weight& w);

/// Contract: Ops::make_weight.
Weight pack_weight(std::span<const Tensor> parts,
                   std::span<const Tensor> bias_parts,
                   Compute compute,
                   Arena& arena,
                   Team& team);

/// Contract: Ops::borrow_weight. Bf16 rows stay where they are at first and are packed once they were used so
/// often that packing pays: an answer of a few tokens is over by then, and packing takes longer than all of
/// it where memory is new (clearing 256 MB: 12 ms, or 700 ms in a virtual machine whose host has to find it).
/// `index`: the how manieth such weight; they are packed one after the other, not all in one step. Else packs
/// at once.
Weight borrow_weight(std::span<const Tensor> parts,
                     std::span<const Tensor> bias_parts,
                     std::shared_ptr<const void> owner,
                     Arena& arena,
                     Team& team,
                     int index);

}  // namespace llmgen::cpu
