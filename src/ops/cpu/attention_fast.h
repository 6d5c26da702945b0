// The launcher of attention: cuts a batch into tasks for threads, splits long contexts where there are few.
#pragma once

#include <utility>
#include <vector>

#include "ops/cpu/attention_kernels.h"
#include "ops/cpu/pack_rows.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/team.h"
#include "ops/ops.h"

namespace llmgen::cpu {

class AttentionRunner {
public:
    AttentionRunner(DType act, Isa isa, Team& team);
    ~AttentionRunner();
    /// Contract: Ops::attention.
    void run(const Tensor& out,
             const Tensor& q,
             const KvCache& kv,
             const Batch& batch,
             const AttentionShape& shape);

private:
    struct Job;
    struct Task;
    struct State;
    struct Unit {  // a task's block
        const Task* task = nullptr;
        int block = 0;
    };
    struct Blocks {
        PageBlocks keys, values;
    };
    void plan(const Job& job);
    void run_whole(const Job& job, const Task& task, const Task* following, State& state) const;
    void run_split(const Job& job, float* memory, std::int64_t state_floats, int n_blocks);
    void pack_queries(const Job& job, const Task& task, float* packed) const;
    void find_pages(const Job& job, const Task& task, int block, int first, int end, Blocks& blocks) const;
    bool run_block(
        const Job& job, const Task& task, int first, int block, const Unit& next, State& state) const;
    void merge_rows(float* max,
                    float* sum,
                    float* out,
                    int n,
                    const float* part_max,
                    const float* part_sum,
                    const float* part,
                    int head_dim) const;
    void finish_row(const Job& job, const Task& task, int row, const float* total, float sum) const;

    DType act_;
    Team& team_;
    AttentionKernels kernels_;
    PackRows pack_;
    // Kept between steps, so that none allocates once it has seen its sizes.
    std::vector<Task> tasks_;
    std::vector<std::pair<int, int>> first_unit_;  // of each task, and how far apart its units stand
    std::vector<Unit> units_;
    Scratch states_;
};

}  // namespace llmgen::cpu
