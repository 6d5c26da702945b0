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
#include <span>

#include "base/tensor.h"
#include "ops/cpu/memory.h"
#include "ops/ops.h"

namespace llmgen::cpu {

inline constexpr int kPanel = 32;

struct PanelWeight final : PackedWeight {
    DType dtype = DType::f32;  // f32 | bf16
    std::int64_t out = 0;
    std::int64_t in = 0;
    Arena::Piece memory;

    std::int64_t n_panels() const { return (out + kPanel - 1) / kPanel; }
    /// Inputs with their padding.
    std::int64_t depth() const { return dtype == DType::f32 ? in : (in + 1) / 2 * 2; }
    std::int64_t panel_size() const { return depth() * kPanel; }  // in elements
    std::int64_t offset(std::int64_t o, std::int64_t i) const {
        const std::int64_t panel = o / kPanel * panel_size(), lane = o % kPanel;
        return dtype == DType::f32 ? panel + i * kPanel + lane
                                   : panel + i / 2 * (2 * kPanel) + lane * 2 + i % 2;
    }
    float at(std::int64_t o, std::int64_t i) const;
};

/// The packed form of a weight that this backend made.
const PanelWeight& panels_of(const Weight& w);

/// Contract: Ops::make_weight.
Weight pack_weight(std::span<const Tensor> parts,
                   std::span<const Tensor> bias_parts,
                   Compute compute,
                   Arena& arena,
                   int threads);

}  // namespace llmgen::cpu
