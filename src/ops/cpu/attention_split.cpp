// Attention of few rows over long contexts (decode): every block of a task is worked out on its own, by
// whichever thread, and the merging follows in the same order as where one thread takes a whole task: the
// same bits.
#include <algorithm>
#include <limits>

#include "ops/cpu/attention_job.h"

namespace llmgen::cpu {

/// Where a thread begins nobody has drawn anything near yet.
void AttentionRunner::draw_first(const Job& job, const Unit& unit) const {
    const Blocks blocks = blocks_of(job, unit);
    for (const void* keys : blocks.keys)
        if (keys) draw_near(keys, page_bytes(job));
    for (const void* values : blocks.values)
        if (values) draw_near(values, page_bytes(job));
}

/// All blocks of all tasks: block by block, the kv heads of a sequence in turn, because they share the pages
/// of memory.
void AttentionRunner::list_units() {
    first_unit_.clear();
    units_.clear();
    for (std::size_t t = 0; t < tasks_.size();) {
        std::size_t end = t;
        for (; end < tasks_.size() && tasks_[end].pages == tasks_[t].pages &&
               tasks_[end].first_row == tasks_[t].first_row;
             ++end)
            first_unit_.emplace_back(int(units_.size() + end - t), 0);
        for (std::size_t i = t; i < end; ++i) first_unit_[i].second = int(end - t);
        for (int b = 0; b < tasks_[t].n_blocks; ++b)
            for (std::size_t i = t; i < end; ++i) units_.push_back({&tasks_[i], tasks_[i].first_block + b});
        t = end;
    }
}

/// Blocks of single-tile tasks spread over threads. Whoever has a task's first block merges all that follow
/// in its share at once; those of the other shares wait in memory until all are done.
void AttentionRunner::run_split(const Job& job,
                                const Split& split,
                                float* memory,
                                std::int64_t state_floats) {
    const int n_units = int(units_.size()), head_dim = job.shape.head_dim;
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
        pack_queries(job, tasks_[t], split.query(std::int64_t(t)));
        const Part total = split.total(std::int64_t(t));
        std::fill_n(total.max, kRowLanes, -std::numeric_limits<float>::infinity());
        std::fill_n(total.sum, kRowLanes, 0.0f);
        std::fill_n(total.out, split.query_floats, 0.0f);
    }
    for (int i = 0; i < team_.size(); ++i)
        shares_[std::size_t(i)].set(n_units * i / team_.size(), n_units * (i + 1) / team_.size());
    team_.run([&](int self, int team) {
        State state(memory + self * state_floats, head_dim);
        float* own_part = state.part;
        if (const Share& own = shares_[std::size_t(self)]; own.front() < n_units)
            draw_first(job, units_[std::size_t(own.front())]);
        for (int i = 0; i < team_.size(); ++i) {
            Share& share = shares_[std::size_t((self + i) % team_.size())];
            for (int unit; (unit = i == 0 ? share.take_first() : share.take_last()) >= 0;) {
                const Unit& at = units_[std::size_t(unit)];
                const auto t = at.task - tasks_.data();
                const int following = i == 0 ? unit + 1 : unit - 1;
                const bool there = following >= 0 && following < n_units;
                const bool at_once = i == 0 && first_unit_[std::size_t(t)].first >= share.begin;
                const Part part = split.part(unit), total = split.total(t);
                state.q = split.query(t);
                state.begin(job, *at.task);
                state.part = at_once ? own_part : part.out;
                const Blocks blocks = blocks_of(job, at);
                const Unit next = there ? units_[std::size_t(following)] : Unit{};
                run_block(job, at, 0, blocks, blocks_ahead(job, next, at.task->n_rows, blocks), state,
                          {state.part_max, state.part_sum, state.part});
                if (at_once) {
                    merge_rows(total.max, total.sum, total.out, 0, at.task->n_rows, state.part_max,
                               state.part_sum, state.part, head_dim);
                } else {
                    std::copy_n(state.part_max, kRowLanes, part.max);
                    std::copy_n(state.part_sum, kRowLanes, part.sum);
                }
            }
        }
        team_.barrier();
        merge_parts(job, split, self, team);
    });
}

/// One thread's share of all rows: merges the blocks that were left, in order.
void AttentionRunner::merge_parts(const Job& job, const Split& split, int self, int team) const {
    const int head_dim = job.shape.head_dim;
    int n_rows = 0, before = 0;
    for (const Task& task : tasks_) n_rows += task.n_rows;
    for (std::size_t t = 0; t < tasks_.size(); before += tasks_[t++].n_rows) {
        const Task& task = tasks_[t];
        const int begin = std::max(0, n_rows * self / team - before);
        const int end = std::min(task.n_rows, n_rows * (self + 1) / team - before);
        if (begin >= end) continue;
        const auto [first, step] = first_unit_[t];
        int owner = team_.size() - 1;
        while (shares_[std::size_t(owner)].begin > first) --owner;
        const int merged = std::max(0, shares_[std::size_t(owner)].front() - first + step - 1) / step;
        const Part total = split.total(std::int64_t(t));
        alignas(64) float max[kRowLanes], sum[kRowLanes];
        std::copy_n(total.max, kRowLanes, max);
        std::copy_n(total.sum, kRowLanes, sum);
        for (int b = merged; b < task.n_blocks; ++b) {
            const Part part = split.part(first + std::int64_t(b) * step);
            merge_rows(max, sum, total.out, begin, end, part.max, part.sum, part.out, head_dim);
        }
        finish_rows(job, task, begin, end, total.out, sum);
    }
}

}  // namespace llmgen::cpu
