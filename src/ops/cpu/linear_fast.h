// The launcher of the matrix products: cuts rows into tiles and outputs into panels, packs x, and spreads
// the work over threads.
#pragma once

#include <functional>

#include "ops/cpu/linear_kernels.h"
#include "ops/cpu/linear_onednn.h"
#include "ops/cpu/pack_rows.h"
#include "ops/cpu/row_products.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/team.h"
#include "ops/cpu/turned_panels.h"
#include "ops/ops.h"

namespace llmgen::cpu {

/// What stands before and after a product, row by row: done by the thread that has the rows near, without a
/// fork of its own. `before` fills rows begin to end - 1 of x, `after` goes on with those of out.
struct RowSteps {
    using Step = std::function<void(std::int64_t begin, std::int64_t end)>;
    /// Outputs first to first + width - 1 of rows `row` to row + rows - 1 stand in `out` and are still near;
    /// called by the thread `self` that has worked them out. A row's outputs come in ascending order from one
    /// thread, and those of a thread lie below those of the next.
    using Outputs =
        std::function<void(int self, std::int64_t first, std::int64_t width, std::int64_t row, int rows)>;
    Step before = {}, after = {};  // each may be empty
    Outputs outputs = {};
};

class LinearRunner {
public:
    /// With `onednn`, bf16 products of 16 rows and more go through oneDNN where it has a fast kernel.
    LinearRunner(DType act, Isa isa, Team& team, bool onednn);

    /// Around the products of a step.
    void begin_step() { row_products_.begin_step(); }
    void end_step() { row_products_.end_step(); }
    /// out = W x + b, x += W h + b or out = silu(g) · u, by `kind`. Contracts in ops.h.
    void run(TileOutput::Kind kind,
             const Tensor& out,
             const Tensor& x,
             const Weight& w,
             const RowSteps& steps = {});
    /// x += Wdown swiglu(Wgate_up h), where `steps` are the first product's. `mlp` is room for what lies
    /// between, which isn't used where that is packed for the second product as it comes.
    void run_mlp(const Tensor& x,
                 const Tensor& mlp,
                 const Tensor& h,
                 const Weight& gate_up,
                 const Weight& down,
                 const RowSteps& steps);

private:
    struct Job;
    Job job_of(TileOutput::Kind kind,
               const Tensor& out,
               const Tensor& x,
               const Weight& weight,
               const RowSteps& steps,
               TurnedPanels& turned) const;
    void run_jobs(Job& job, Job* then);
    void run_own_rows(const Job& job, const Job* then, std::int64_t begin, std::int64_t end) const;
    void cut(Job& job) const;
    void run_shared_rows(Job& job, Job* then) const;
    void run_row(Job& job);
    std::int64_t run_onednn(TileOutput::Kind kind, const Tensor& out, const Tensor& x, const Weight& w);
    void finish_columns(TileOutput::Kind kind,
                        const Tensor& out,
                        std::int64_t row,
                        std::int64_t first,
                        std::int64_t outputs,
                        const Weight& weight,
                        const float* sums) const;
    void finish(const TileOutput& tile, const float* sums, const float* up) const;
    void finish_packed(
        const Job& job, TileOutput tile, std::int64_t at, const float* sums, const float* up) const;
    void pack(const Job& job, std::int64_t begin, std::int64_t end) const;
    void pack_tile(const Job& job, std::int64_t row, int rows) const;
    void run_share(const Job& job, std::int64_t self, std::int64_t team) const;
    void run_units(const Job& job, int self, std::int64_t begin, std::int64_t end) const;
    Ahead ahead_of(const Job& job, std::int64_t panel, int tile, bool only_tile) const;
    void run_panel(const Job& job, int self, std::int64_t panel, int row, int row_end) const;

    Team& team_;
    LinearKernels bf16_weights_, f32_weights_;
    FinishTile finish_tile_, finish_swiglu_bf16_;
    PackRows pack_;
    RowProducts row_products_;
    std::unique_ptr<OneDnn> onednn_;
    TurnedPanels turned_, turned_then_;
    Scratch packed_, between_;
};

}  // namespace llmgen::cpu
