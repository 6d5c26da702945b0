// The launcher of attention: cuts a batch into tasks for threads, splits long contexts where there are few.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "ops/cpu/attention_kernels.h"
#include "ops/cpu/pack_rows.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/share.h"
#include "ops/cpu/team.h"
#include "ops/ops.h"

namespace llmgen::cpu {

class AttentionRunner {
public:
    AttentionRunner(DType act, Isa isa, Team& team);
    ~AttentionRunner();
    enum class Rows { all, wanted };
    /// Contracts: Ops::attention, attention_of_wanted.
    void run(const Tensor& out,
             const Tensor& q,
             const KvCache& kv,
             const Batch& batch,
             const AttentionShape& shape,
             Rows rows = Rows::all);

private:
    struct Job;
    struct Task;
    struct State;
    struct Part;
    struct Split;
    struct Unit {  // a task's block
        const Task* task = nullptr;
        int block = 0;
    };
    struct Blocks {
        PageBlocks keys, values;
    };
    void plan(const Job& job, Rows rows);
    void run_whole(const Job& job, const Task& task, const Task* following, State& state) const;
    void list_units();
    void run_split(const Job& job, const Split& split, float* memory, std::int64_t state_floats);
    void merge_parts(const Job& job, const Split& split, int self, int team) const;
    void pack_queries(const Job& job, const Task& task, float* packed) const;
    std::int64_t page_bytes(const Job& job) const;
    void draw_first(const Job& job, const Unit& unit) const;
    Blocks blocks_of(const Job& job, const Unit& unit) const;
    Blocks blocks_ahead(const Job& job, const Unit& next, int n_rows, const Blocks& here) const;
    bool run_block(const Job& job,
                   const Unit& unit,
                   int first,
                   const Blocks& blocks,
                   Blocks ahead,
                   State& state,
                   const Part& part) const;
    void merge_rows(float* max,
                    float* sum,
                    float* out,
                    int begin,
                    int end,
                    const float* part_max,
                    const float* part_sum,
                    const float* part,
                    int head_dim) const;
    void finish_rows(
        const Job& job, const Task& task, int begin, int end, const float* total, const float* sum) const;

    DType act_;
    Team& team_;
    AttentionKernels kernels_;
    PackRows pack_;
    // Kept between steps, so that none allocates once it has seen its sizes.
    std::vector<Task> tasks_;
    std::vector<std::pair<int, int>> first_unit_;  // of each task, and how far apart its units stand
    std::vector<Unit> units_;
    std::unique_ptr<Share[]> shares_;  // one a thread
    Scratch states_;
};

}  // namespace llmgen::cpu
