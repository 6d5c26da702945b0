// The launcher of attention: cuts a batch into tasks for threads, splits long contexts where there are few.
#pragma once

#include <utility>
#include <vector>

#include "ops/cpu/attention_kernels.h"
#include "ops/cpu/pack_rows.h"
#include "ops/cpu/scratch.h"
#include "ops/ops.h"

namespace llmgen::cpu {

class AttentionRunner {
public:
    AttentionRunner(DType act, Isa isa, int threads);
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
    void plan(const Job& job);
    void run_whole(const Job& job, const Task& task, State& state) const;
    void run_split(const Job& job, float* memory, std::int64_t state_floats, int n_blocks);
    void pack_queries(const Job& job, const Task& task, float* packed) const;
    bool run_block(const Job& job, const Task& task, int first, int block, State& state) const;
    void merge_row(float& max,
                   float& sum,
                   float* out,
                   float part_max,
                   float part_sum,
                   const float* part,
                   int head_dim) const;
    void finish_row(const Job& job, const Task& task, int row, const float* total, float sum) const;

    DType act_;
    int threads_;
    AttentionKernels kernels_;
    PackRows pack_;
    // Kept between steps, so that none allocates once it has seen its sizes.
    std::vector<Task> tasks_;
    std::vector<std::int64_t> part_of_task_;
    std::vector<std::pair<int, int>> unit_task_;
    Scratch states_;
};

}  // namespace llmgen::cpu
