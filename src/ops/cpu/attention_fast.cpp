// One task is up to 48 query rows (tokens times the heads that share a kv head) of one sequence and kv head,
// over all its blocks of 128 keys: a block's keys and values stay in the L1 cache while the task's tiles of
// 12 rows pass. Each tile keeps a running (max, sum, output) per row and merges block after block into it.
//
// Where there are fewer tasks than threads want (decode), every block of a task is worked out on its own and
// the merging, in the same order, follows. Both ways give the same bits.
#include "ops/cpu/attention_fast.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>

#include "ops/cpu/kv_layout.h"

namespace llmgen::cpu {
namespace {

constexpr int kTaskRows = 48;
// Below this many multiply-adds, 5 µs of one thread, a second costs more than it brings.
constexpr double kSerialWork = 500000;

std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

/// To L2, which has room for what the next block needs.
void draw_near(const void* from, std::int64_t bytes) {
    for (std::int64_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(static_cast<const char*>(from) + at, 0, 2);
}

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
        for (int row = 0; row < task.n_rows; ++row)
            keys[std::size_t(row)] = {task.begin(job, row), task.end(job, row)};
    }
};

/// What a split task's rows come to, or one of its blocks: max, sum and outputs.
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

AttentionRunner::AttentionRunner(DType act, Isa isa, Team& team)
    : act_(act),
      team_(team),
      kernels_(attention_kernels(act, isa)),
      pack_(pack_rows(isa)),
      shares_(std::make_unique<Share[]>(std::size_t(team.size()))) {}

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

/// Of the keys or values of one head in a page.
std::int64_t AttentionRunner::page_bytes(const Job& job) const {
    return std::int64_t(kPageSize) * job.shape.head_dim * std::int64_t(size_of(act_));
}

/// Where a thread begins nobody has drawn anything near yet.
void AttentionRunner::draw_first(const Job& job, const Unit& unit) const {
    const int end =
        (unit.task->end(job, unit.task->n_rows - 1) - 1) / kPageSize + 1 - unit.block * kBlockPages;
    const auto n_pages = std::size_t(std::min(end, kBlockPages));
    Blocks blocks{};
    find_pages(job, *unit.task, unit.block, 0, int(n_pages), blocks);
    for (std::size_t page = 0; page < n_pages; ++page) draw_near(blocks.keys[page], page_bytes(job));
    for (std::size_t page = 0; page < n_pages; ++page) draw_near(blocks.values[page], page_bytes(job));
}

/// This head's keys and values in the pages first to end - 1 of a block.
void AttentionRunner::find_pages(
    const Job& job, const Task& task, int block, int first, int end, Blocks& blocks) const {
    for (int page = first; page < end; ++page) {
        const std::int64_t id = task.pages[block * kBlockPages + page];
        const std::int64_t offset = block_offset(job.kv.k, id, task.kv_head) * std::int64_t(size_of(act_));
        blocks.keys[std::size_t(page)] = static_cast<const char*>(job.kv.k.data) + offset;
        blocks.values[std::size_t(page)] = static_cast<const char*>(job.kv.v.data) + offset;
    }
}

/// One tile of rows against one block: state.part, part_max and part_sum; false where no row sees a key of
/// it. `next` is the task and block that this thread most likely reads after it.
bool AttentionRunner::run_block(
    const Job& job, const Task& task, int first, int block, const Unit& next, State& state) const {
    const int n = std::min(kernels_.max_rows, task.n_rows - first), rows = kernels_.tile_rows(n);
    const int head_dim = job.shape.head_dim, origin = block * kKeyBlock;
    const KeyRange* keys = state.keys.data() + first;
    const int begin = std::max(0, keys[0].begin - origin);
    const int end = std::min(kKeyBlock, keys[n - 1].end - origin);
    std::fill_n(state.part_sum, kRowLanes, 0.0f);
    if (begin >= end) return false;
    const int first_page = begin / kPageSize, end_page = (end + kPageSize - 1) / kPageSize;
    Blocks blocks{};
    find_pages(job, task, block, first_page, end_page, blocks);
    Blocks ahead = blocks;
    if (rows <= kPrefetchRows && next.task) {
        const int last = (next.task->end(job, next.task->n_rows - 1) - 1) / kPageSize + 1;
        find_pages(job, *next.task, next.block, first_page,
                   std::min(end_page, last - next.block * kBlockPages), ahead);
    }
    kernels_.scores[std::size_t(rows)](state.scores, state.q + std::int64_t(first) * head_dim, blocks.keys,
                                       ahead.keys, first_page, end_page, head_dim);
    KeyRange seen[kMaxQueryRows];
    for (int r = 0; r < rows; ++r) {
        const KeyRange& all = keys[std::min(r, n - 1)];
        seen[r] = {std::max(0, all.begin - origin), std::min(kKeyBlock, all.end - origin)};
        // The softmax that follows reads nothing: so that memory doesn't stand idle, a page of the next
        // values a row.
        const auto page = std::size_t(first_page + r);
        if (int(page) >= end_page || ahead.values[page] == blocks.values[page]) continue;
        draw_near(ahead.values[page], page_bytes(job));
        ahead.values[page] = blocks.values[page];
    }
    kernels_.softmax(state.p, kernels_.p_type, state.scores, seen, rows, job.shape.scale, state.part_max,
                     state.part_sum);
    kernels_.values[std::size_t(rows)](state.part, state.p, blocks.values, ahead.values,
                                       first_page * kPageSize, end, head_dim);
    return true;
}

/// Joins a block's results with the rows' own so far; outputs only of rows begin to end - 1.
void AttentionRunner::merge_rows(float* max,
                                 float* sum,
                                 float* out,
                                 int begin,
                                 int end,
                                 const float* part_max,
                                 const float* part_sum,
                                 const float* part,
                                 int head_dim) const {
    alignas(64) float a[kRowLanes], b[kRowLanes];
    kernels_.join(max, sum, part_max, part_sum, a, b);
    for (int r = begin; r < end; ++r)
        if (b[r] != 0 || a[r] != 1)  // else it sees nothing of this block: part was not written
            kernels_.merge(out + r * head_dim, a[r], part + r * head_dim, b[r], head_dim);
}

void AttentionRunner::run_whole(const Job& job, const Task& task, const Task* following, State& state) const {
    const int head_dim = job.shape.head_dim;
    pack_queries(job, task, state.q);
    state.begin(job, task);
    std::fill_n(state.max, task.n_rows + kRowLanes, -std::numeric_limits<float>::infinity());
    std::fill_n(state.sum, task.n_rows + kRowLanes, 0.0f);
    std::fill_n(state.out, std::int64_t(task.n_rows) * head_dim, 0.0f);
    const int end_block = task.first_block + task.n_blocks;
    for (int block = task.first_block; block < end_block; ++block)
        for (int first = 0; first < task.n_rows; first += kernels_.max_rows) {
            const int n = std::min(kernels_.max_rows, task.n_rows - first);
            // Rows past the tile's are the next tile's: they join nothing here.
            Unit next{&task, block + 1};
            if (block + 1 == end_block) next = {following, following ? following->first_block : 0};
            if (!run_block(job, task, first, block, next, state)) continue;
            std::fill(state.part_sum + n, state.part_sum + kRowLanes, 0.0f);
            merge_rows(state.max + first, state.sum + first, state.out + std::int64_t(first) * head_dim, 0, n,
                       state.part_max, state.part_sum, state.part, head_dim);
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
                run_block(job, *at.task, 0, at.block, there ? units_[std::size_t(following)] : Unit{}, state);
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
        for (int row = begin; row < end; ++row)
            finish_row(job, task, row, total.out + std::int64_t(row) * head_dim, sum[row]);
    }
}

void AttentionRunner::run(
    const Tensor& out, const Tensor& q, const KvCache& kv, const Batch& batch, const AttentionShape& shape) {
    const Job job{out, q, kv, batch, shape, shape.n_heads / shape.n_kv_heads};
    plan(job);
    double work = 0;
    std::int64_t n_blocks = 0;
    bool single_tiles = true;
    int most_rows = 0;
    for (const Task& task : tasks_) {
        work += 2.0 * task.n_rows * task.n_blocks * kKeyBlock * shape.head_dim;
        n_blocks += task.n_blocks;
        most_rows = std::max(most_rows, task.n_rows);
        single_tiles &= task.n_rows <= kernels_.max_rows;
    }
    const auto state_floats = std::int64_t(State::floats(shape.head_dim));
    const int threads = work < kSerialWork ? 1 : team_.size();
    const auto n_tasks = std::int64_t(tasks_.size());
    const bool split = threads > 1 && single_tiles && n_tasks < 4 * threads && n_blocks > n_tasks;
    Split room(split ? kernels_.tile_rows(most_rows) : 0, shape.head_dim);
    const std::int64_t states = team_.size() * state_floats;
    auto* memory = static_cast<float*>(
        states_.get(std::size_t(states + (split ? room.floats(n_tasks, n_blocks) : 0)) * sizeof(float)));
    if (split) {
        room.lay_out(memory + states, n_tasks);
        list_units();
        return run_split(job, room, memory, state_floats);
    }
    if (threads == 1) {
        State state(memory, shape.head_dim);
        for (const Task& task : tasks_)
            run_whole(job, task, &task < &tasks_.back() ? &task + 1 : nullptr, state);
        return;
    }
    // The kv heads of a sequence share its pages: where tasks are small, one thread takes them in turn.
    const std::int64_t heads = shape.n_kv_heads,
                       chunk = single_tiles && n_tasks >= 8 * threads * heads ? heads : 1;
    std::atomic<std::int64_t> taken = 0;
    team_.run([&](int self, int) {
        State state(memory + self * state_floats, shape.head_dim);
        for (std::int64_t begin; (begin = taken.fetch_add(chunk)) < n_tasks;)
            for (std::int64_t t = begin, end = std::min(begin + chunk, n_tasks); t < end; ++t) {
                const std::int64_t next = t + 1 < end ? t + 1 : t + 1 + (threads - 1) * chunk;
                run_whole(job, tasks_[std::size_t(t)], next < n_tasks ? &tasks_[std::size_t(next)] : nullptr,
                          state);
            }
    });
}

}  // namespace llmgen::cpu
