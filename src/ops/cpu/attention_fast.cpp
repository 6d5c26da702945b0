// One task is up to 48 query rows (tokens times the heads that share a kv head) of one sequence and kv head,
// over all its blocks of 128 keys: a block's keys and values stay in the L1 cache while the task's tiles of
// 12 rows pass. Each tile keeps a running (max, sum, output) per row and merges block after block into it.
//
// Where there are fewer tasks than threads want (decode), every block of a task is worked out on its own and
// the merging, in the same order, follows. Both ways give the same bits.
#include "ops/cpu/attention_fast.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "ops/cpu/kv_layout.h"

namespace llmgen::cpu {
namespace {

constexpr int kTaskRows = 48;
// Below this many multiply-adds a second thread costs more than it brings.
constexpr double kSerialWork = 60000;

std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

}  // namespace

struct AttentionRunner::Job {
    const Tensor& out;
    const Tensor& q;
    const KvCache& kv;
    const Batch& batch;
    const AttentionShape& shape;
    int group;  // query heads a kv head
};

/// Rows first_row … first_row + n_rows - 1 of one sequence and kv head; row r is token r / group of the
/// sequence's new ones and query head r % group of those that share the kv head.
struct AttentionRunner::Task {
    int first_token;     // the sequence's first row in q and out
    int first_position;  // and where that token stands
    const int* pages;
    int kv_head, first_row, n_rows;
    int first_block, n_blocks;  // of keys that any row sees

    int token(const Job& job, int row) const { return (first_row + row) / job.group; }
    int head(const Job& job, int row) const { return kv_head * job.group + (first_row + row) % job.group; }
    /// Keys that a row sees: begin to end - 1.
    int end(const Job& job, int row) const { return first_position + token(job, row) + 1; }
    int begin(const Job& job, int row) const {
        return job.shape.window > 0 ? std::max(0, end(job, row) - job.shape.window) : 0;
    }
};

/// A thread's working memory, cut from one piece: packed q, and (max, sum, output) of each row.
struct AttentionRunner::State {
    static std::size_t floats(int head_dim) {
        const std::int64_t rows = kTaskRows + kMaxQueryRows;
        return std::size_t(2 * round_up(rows * head_dim, 16) + 2 * round_up(rows, 16) +
                           2 * kMaxQueryRows * kKeyBlock + round_up(kMaxQueryRows * head_dim, 16) + 32);
    }
    State(float* memory, int head_dim) {
        const std::int64_t rows = kTaskRows + kMaxQueryRows;
        const auto take = [&](std::int64_t n) {
            float* piece = memory;
            memory += round_up(n, 16);
            return piece;
        };
        q = take(rows * head_dim);
        out = take(rows * head_dim);
        max = take(rows);
        sum = take(rows);
        scores = take(kMaxQueryRows * kKeyBlock);
        p = take(kMaxQueryRows * kKeyBlock);
        part = take(kMaxQueryRows * head_dim);
    }
    float *q, *out, *max, *sum, *scores, *p, *part;
    float part_max[kMaxQueryRows], part_sum[kMaxQueryRows];
};

AttentionRunner::AttentionRunner(DType act, Isa isa, int threads)
    : act_(act), threads_(threads), kernels_(attention_kernels(act, isa)), pack_(pack_rows(isa)) {}

AttentionRunner::~AttentionRunner() = default;

void AttentionRunner::plan(const Job& job) {
    tasks_.clear();
    const int* first = job.batch.first_token.as<int>();
    for (std::int64_t s = 0; s < job.batch.context_len.dim(0); ++s) {
        const int n_new = first[s + 1] - first[s], n_rows = n_new * job.group;
        Task task{};
        task.first_token = first[s];
        task.first_position = job.batch.context_len.as<int>()[s] - n_new;
        task.pages = job.batch.page_table.as<int>() + s * job.batch.page_table.stride[0];
        // The last tokens see the most keys: first, so that threads end together.
        for (int row = (n_rows - 1) / kTaskRows * kTaskRows; row >= 0 && n_rows > 0; row -= kTaskRows)
            for (task.kv_head = 0; task.kv_head < job.shape.n_kv_heads; ++task.kv_head) {
                task.first_row = row;
                task.n_rows = std::min(kTaskRows, n_rows - row);
                task.first_block = task.begin(job, 0) / kKeyBlock;
                task.n_blocks = (task.end(job, task.n_rows - 1) - 1) / kKeyBlock + 1 - task.first_block;
                tasks_.push_back(task);
            }
    }
}

void AttentionRunner::pack_queries(const Job& job, const Task& task, float* packed) const {
    const int head_dim = job.shape.head_dim;
    for (int first = 0; first < task.n_rows; first += kernels_.max_rows) {
        const int n = std::min(kernels_.max_rows, task.n_rows - first), rows = kernels_.tile_rows(n);
        float* tile = packed + std::int64_t(first) * head_dim;
        const void* sources[kMaxQueryRows];
        for (int r = 0; r < rows; ++r) {
            // Rows that fill up the tile repeat the last one; nobody reads their results.
            const int row = first + std::min(r, n - 1);
            sources[r] = job.q.as<float>() + (task.first_token + task.token(job, row)) * job.q.stride[0] +
                         std::int64_t(task.head(job, row)) * head_dim;
        }
        pack_(tile, kernels_.q_type, sources, DType::f32, rows, head_dim);
    }
}

/// One tile of rows against one block: state.part, part_max and part_sum; false where no row sees a key of
/// it.
bool AttentionRunner::run_block(const Job& job, const Task& task, int first, int block, State& state) const {
    const int n = std::min(kernels_.max_rows, task.n_rows - first), rows = kernels_.tile_rows(n);
    const int head_dim = job.shape.head_dim, origin = block * kKeyBlock;
    const int begin = std::max(0, task.begin(job, first) - origin);
    const int end = std::min(kKeyBlock, task.end(job, first + n - 1) - origin);
    if (begin >= end) return false;
    const int first_page = begin / kPageSize, end_page = (end + kPageSize - 1) / kPageSize;
    PageBlocks keys, values;
    for (int page = first_page; page < end_page; ++page) {
        const std::int64_t id = task.pages[origin / kPageSize + page];
        const std::int64_t offset = block_offset(job.kv.k, id, task.kv_head) * std::int64_t(size_of(act_));
        keys[std::size_t(page)] = static_cast<const char*>(job.kv.k.data) + offset;
        values[std::size_t(page)] = static_cast<const char*>(job.kv.v.data) + offset;
    }
    kernels_.scores[std::size_t(rows)](state.scores, state.q + std::int64_t(first) * head_dim, keys,
                                       first_page, end_page, head_dim);
    const std::size_t p_row = kKeyBlock * size_of(kernels_.p_type);
    for (int r = 0; r < rows; ++r) {
        const int row = first + std::min(r, n - 1);
        const AttentionKernels::Softmax softmax =
            kernels_.softmax(reinterpret_cast<char*>(state.p) + std::size_t(r) * p_row, kernels_.p_type,
                             state.scores + r * kKeyBlock, std::max(0, task.begin(job, row) - origin),
                             std::min(kKeyBlock, task.end(job, row) - origin), job.shape.scale);
        state.part_max[r] = softmax.max;
        state.part_sum[r] = softmax.sum;
    }
    kernels_.values[std::size_t(rows)](state.part, state.p, values, first_page * kPageSize, end, head_dim);
    return true;
}

void AttentionRunner::merge_row(float& max,
                                float& sum,
                                float* out,
                                float part_max,
                                float part_sum,
                                const float* part,
                                int head_dim) const {
    if (part_sum == 0) return;  // the row sees no key of this block
    const float larger = std::max(max, part_max);
    const float a = std::exp(max - larger), b = std::exp(part_max - larger);
    sum = sum * a + part_sum * b;
    max = larger;
    kernels_.merge(out, a, part, b, head_dim);
}

void AttentionRunner::run_whole(const Job& job, const Task& task, State& state) const {
    const int head_dim = job.shape.head_dim;
    pack_queries(job, task, state.q);
    std::fill_n(state.max, task.n_rows, -std::numeric_limits<float>::infinity());
    std::fill_n(state.sum, task.n_rows, 0.0f);
    std::fill_n(state.out, std::int64_t(task.n_rows) * head_dim, 0.0f);
    for (int block = task.first_block; block < task.first_block + task.n_blocks; ++block)
        for (int first = 0; first < task.n_rows; first += kernels_.max_rows) {
            if (!run_block(job, task, first, block, state)) continue;
            for (int r = 0; r < std::min(kernels_.max_rows, task.n_rows - first); ++r)
                merge_row(state.max[first + r], state.sum[first + r],
                          state.out + std::int64_t(first + r) * head_dim, state.part_max[r],
                          state.part_sum[r], state.part + r * head_dim, head_dim);
        }
    for (int row = 0; row < task.n_rows; ++row)
        finish_row(job, task, row, state.out + std::int64_t(row) * head_dim, state.sum[row]);
}

void AttentionRunner::finish_row(
    const Job& job, const Task& task, int row, const float* total, float sum) const {
    const std::int64_t at = (task.first_token + task.token(job, row)) * job.out.stride[0] +
                            std::int64_t(task.head(job, row)) * job.shape.head_dim;
    kernels_.finish(static_cast<char*>(job.out.data) + at * std::int64_t(size_of(act_)), act_, total, 1 / sum,
                    job.shape.head_dim);
}

/// Blocks of single-tile tasks spread over threads, each leaving [max, sum, output] of its rows; then merged.
void AttentionRunner::run_split(const Job& job, float* memory, std::int64_t state_floats, int n_blocks) {
    const int head_dim = job.shape.head_dim, row_floats = head_dim + 2;
    float* parts = memory + threads_ * state_floats;
    std::vector<std::int64_t>& part_of = part_of_task_;
    part_of.clear();
    unit_task_.clear();
    std::int64_t n_rows = 0;
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
        part_of.push_back(n_rows);
        n_rows += std::int64_t(tasks_[t].n_rows) * tasks_[t].n_blocks;
        for (int b = 0; b < tasks_[t].n_blocks; ++b) unit_task_.emplace_back(int(t), b);
    }
#pragma omp parallel num_threads(threads_)
    {
        State state(memory + omp_get_thread_num() * state_floats, head_dim);
#pragma omp for schedule(dynamic)
        for (int unit = 0; unit < n_blocks; ++unit) {
            const auto [t, b] = unit_task_[std::size_t(unit)];
            const Task& task = tasks_[std::size_t(t)];
            pack_queries(job, task, state.q);
            const bool seen = run_block(job, task, 0, task.first_block + b, state);
            float* to = parts + (part_of[std::size_t(t)] + std::int64_t(b) * task.n_rows) * row_floats;
            for (int r = 0; r < task.n_rows; ++r, to += row_floats) {
                to[0] = seen ? state.part_max[r] : 0;
                to[1] = seen ? state.part_sum[r] : 0;
                if (seen) std::copy_n(state.part + r * head_dim, head_dim, to + 2);
            }
        }
#pragma omp for schedule(static)
        for (std::size_t t = 0; t < tasks_.size(); ++t) {
            const Task& task = tasks_[t];
            for (int row = 0; row < task.n_rows; ++row) {
                float max = -std::numeric_limits<float>::infinity(), sum = 0;
                std::fill_n(state.out, head_dim, 0.0f);
                for (int b = 0; b < task.n_blocks; ++b) {
                    const float* part =
                        parts + (part_of[t] + std::int64_t(b) * task.n_rows + row) * row_floats;
                    merge_row(max, sum, state.out, part[0], part[1], part + 2, head_dim);
                }
                finish_row(job, task, row, state.out, sum);
            }
        }
    }
}

void AttentionRunner::run(
    const Tensor& out, const Tensor& q, const KvCache& kv, const Batch& batch, const AttentionShape& shape) {
    const Job job{out, q, kv, batch, shape, shape.n_heads / shape.n_kv_heads};
    plan(job);
    double work = 0;
    std::int64_t n_blocks = 0, split_rows = 0;
    bool single_tiles = true;
    for (const Task& task : tasks_) {
        work += 2.0 * task.n_rows * task.n_blocks * kKeyBlock * shape.head_dim;
        n_blocks += task.n_blocks;
        split_rows += std::int64_t(task.n_rows) * task.n_blocks;
        single_tiles &= task.n_rows <= kernels_.max_rows;
    }
    const auto state_floats = std::int64_t(State::floats(shape.head_dim));
    const int threads = work < kSerialWork ? 1 : threads_;
    const auto n_tasks = std::int64_t(tasks_.size());
    const bool split = threads > 1 && single_tiles && n_tasks < 4 * threads && n_blocks > n_tasks;
    const std::int64_t split_floats = split ? split_rows * (shape.head_dim + 2) : 0;
    float* memory =
        static_cast<float*>(states_.get(std::size_t(threads_ * state_floats + split_floats) * sizeof(float)));
    if (split) return run_split(job, memory, state_floats, int(n_blocks));
    if (threads == 1) {
        State state(memory, shape.head_dim);
        for (const Task& task : tasks_) run_whole(job, task, state);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        State state(memory + omp_get_thread_num() * state_floats, shape.head_dim);
#pragma omp for schedule(dynamic)
        for (std::int64_t t = 0; t < n_tasks; ++t) run_whole(job, tasks_[std::size_t(t)], state);
    }
}

}  // namespace llmgen::cpu
