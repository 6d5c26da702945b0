// The launcher of the matrix products: cuts rows into tiles and outputs into panels, packs x, and spreads
// the work over threads.
#pragma once

#include "ops/cpu/linear_kernels.h"
#include "ops/cpu/pack_rows.h"
#include "ops/cpu/scratch.h"
#include "ops/ops.h"

namespace llmgen::cpu {

class LinearRunner {
public:
    LinearRunner(DType act, Isa isa, int threads);

    /// out = W x + b, x += W h + b or out = silu(g) · u, by `kind`. Contracts in ops.h.
    void run(TileOutput::Kind kind, const Tensor& out, const Tensor& x, const Weight& w);

private:
    struct Job;
    void pack_tile(const Job& job, char* packed, std::int64_t row, int rows) const;
    void run_units(const Job& job, std::int64_t begin, std::int64_t end) const;
    void run_panel(const Job& job, std::int64_t panel, int row, int row_end) const;

    int threads_;
    LinearKernels bf16_weights_, f32_weights_;
    FinishTile finish_;
    PackRows pack_;
    Scratch packed_;
};

}  // namespace llmgen::cpu
