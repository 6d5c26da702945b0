// What the files of attention share: a call, its tasks, and the working memory of a thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "ops/cpu/attention_fast.h"

namespace llmgen::cpu {

inline constexpr int kTaskRows = 48;

inline std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

/// To L2, which has room for what the next block needs.
inline void draw_near(const void* from, std::int64_t bytes) {
    for (std::int64_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(static_cast<const char*>(from) + at, 0, 2);
}

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

    /// A row's token and query head. Rows are counted on, not divided.
    struct Row {
        int token, head;  // of those that share the kv head
        void step(const Job& job) {
            if (++head < job.group) return;
            head = 0;
            ++token;
        }
    };
    Row row(const Job& job, int index) const {
        return {(first_row + index) / job.group, (first_row + index) % job.group};
    }
    /// Keys that a row sees: begin to end - 1.
    int end(Row row) const { return first_position + row.token + 1; }
    int begin(const Job& job, Row row) const {
        return job.shape.window > 0 ? std::max(0, end(row) - job.shape.window) : 0;
    }
    /// And that any row sees.
    int first_key(const Job& job) const { return begin(job, row(job, 0)); }
    int end_key(const Job& job) const { return end(row(job, n_rows - 1)); }
    /// Where a row's head begins in q and out, in elements.
    std::int64_t offset(const Job& job, const Tensor& rows, Row row) const {
        return (first_token + row.token) * rows.stride[0] +
               std::int64_t(kv_head * job.group + row.head) * job.shape.head_dim;
    }
};

/// A thread's working memory, cut from one piece: packed q, and (max, sum, output) of each row.
struct AttentionRunner::State {
    static std::size_t floats(int head_dim) {
        const std::int64_t rows = kTaskRows + kRowLanes;
        return std::size_t(2 * round_up(rows * head_dim, 16) + 2 * round_up(rows, 16) +
                           2 * kMaxQueryRows * kKeyBlock + round_up(kMaxQueryRows * head_dim, 16) + 32);
    }
    State(float* memory, int head_dim) {
        const std::int64_t rows = kTaskRows + kRowLanes;
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
    alignas(64) float part_max[kRowLanes] = {}, part_sum[kRowLanes] = {};
    std::array<KeyRange, kTaskRows> keys = {};  // that each row of the task sees

    void begin(const Job& job, const Task& task) {
        Task::Row row = task.row(job, 0);
        for (int r = 0; r < task.n_rows; ++r, row.step(job))
            keys[std::size_t(r)] = {task.begin(job, row), task.end(row)};
    }
};

/// What a task's rows come to, or one of its blocks: max, sum and outputs.
struct AttentionRunner::Part {
    float *max, *sum, *out;
};

/// A split's working memory, cut from one piece: each task's packed queries and results, and the blocks' that
/// wait for those before them.
struct AttentionRunner::Split {
    Split(int rows, int head_dim)
        : query_floats(round_up(std::int64_t(rows) * head_dim, 16)),
          part_floats(2 * kRowLanes + query_floats) {}
    std::int64_t floats(std::int64_t n_tasks, std::int64_t n_units) const {
        return n_tasks * (query_floats + part_floats) + n_units * part_floats;
    }
    void lay_out(float* memory, std::int64_t n_tasks) {
        queries = memory;
        totals = queries + n_tasks * query_floats;
        parts = totals + n_tasks * part_floats;
    }
    float* query(std::int64_t task) const { return queries + task * query_floats; }
    Part total(std::int64_t task) const { return part_at(totals + task * part_floats); }
    Part part(std::int64_t unit) const { return part_at(parts + unit * part_floats); }
    static Part part_at(float* at) { return {at, at + kRowLanes, at + 2 * kRowLanes}; }

    std::int64_t query_floats, part_floats;
    float *queries = nullptr, *totals = nullptr, *parts = nullptr;
};

}  // namespace llmgen::cpu
