// One task is up to 48 query rows (tokens times the heads that share a kv head) of one sequence and kv head,
// over all its blocks of 128 keys: a block's keys and values stay in the L1 cache while the task's tiles of
// 12 rows pass. Each tile keeps a running (max, sum, output) per row and merges block after block into it.
//
// Where there are fewer tasks than threads want (decode), every block of a task is worked out on its own and
// the merging, in the same order, follows. Both ways give the same bits.
#include "ops/cpu/attention_fast.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "ops/cpu/kv_layout.h"

namespace llmgen::cpu {
namespace {

constexpr int kTaskRows = 48;
// Below this many multiply-adds, 2 µs of one thread, a second costs more than it brings.
constexpr double kSerialWork = 200000;

std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

/// What one block of a split task leaves: max and sum of its rows, and their outputs.
std::int64_t split_floats(int head_dim) {
    return 2 * kRowLanes + round_up(std::int64_t(kMaxQueryRows) * head_dim, 16);
}

/// And its packed queries, the same for all its blocks.
std::int64_t split_query_floats(int head_dim) { return round_up(std::int64_t(kMaxQueryRows) * head_dim, 16); }

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
};

AttentionRunner::AttentionRunner(DType act, Isa isa, Team& team)
    : act_(act), team_(team), kernels_(attention_kernels(act, isa)), pack_(pack_rows(isa)) {}

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
    const int begin = std::max(0, task.begin(job, first) - origin);
    const int end = std::min(kKeyBlock, task.end(job, first + n - 1) - origin);
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
    kernels_.values[std::size_t(rows)](state.part, state.p, blocks.values, ahead.values,
                                       first_page * kPageSize, end, head_dim);
    return true;
}

/// Joins a block's results with the n rows' own so far.
void AttentionRunner::merge_rows(float* max,
                                 float* sum,
                                 float* out,
                                 int n,
                                 const float* part_max,
                                 const float* part_sum,
                                 const float* part,
                                 int head_dim) const {
    alignas(64) float a[kRowLanes], b[kRowLanes];
    kernels_.join(max, sum, part_max, part_sum, a, b);
    for (int r = 0; r < n; ++r)
        if (b[r] != 0 || a[r] != 1)  // else it sees nothing of this block: part was not written
            kernels_.merge(out + r * head_dim, a[r], part + r * head_dim, b[r], head_dim);
}

void AttentionRunner::run_whole(const Job& job, const Task& task, const Task* following, State& state) const {
    const int head_dim = job.shape.head_dim;
    pack_queries(job, task, state.q);
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
            merge_rows(state.max + first, state.sum + first, state.out + std::int64_t(first) * head_dim, n,
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

/// Blocks of single-tile tasks spread over threads, each leaving the outputs, max and sum of its rows; then
/// merged. Block by block, all kv heads of a sequence in turn: they share the pages of memory.
void AttentionRunner::run_split(const Job& job, float* memory, std::int64_t state_floats, int n_blocks) {
    const int head_dim = job.shape.head_dim;
    const std::int64_t part_floats = split_floats(head_dim);
    float* parts = memory + team_.size() * state_floats;
    float* queries = parts + n_blocks * part_floats;
    const std::int64_t query_floats = split_query_floats(head_dim);
    for (std::size_t t = 0; t < tasks_.size(); ++t)
        pack_queries(job, tasks_[t], queries + std::int64_t(t) * query_floats);
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
    const int chunk = std::max(1, n_blocks / (8 * team_.size()));
    std::atomic<int> taken = 0;  // libgomp's own dynamic loops cost 2 µs more
    team_.run([&](int self, int team) {
        State state(memory + self * state_floats, head_dim);
        const auto take = [&](int unit) {
            const Unit& own = units_[std::size_t(unit)];
            float* to = parts + unit * part_floats;
            state.q = queries + (own.task - tasks_.data()) * query_floats;
            state.part = to + 2 * kRowLanes;
            const Unit next = unit + 1 < n_blocks ? units_[std::size_t(unit + 1)] : Unit{};
            run_block(job, *own.task, 0, own.block, next, state);
            std::copy_n(state.part_max, kRowLanes, to);
            std::copy_n(state.part_sum, kRowLanes, to + kRowLanes);
        };
        for (int unit; (unit = taken.fetch_add(chunk)) < n_blocks;)
            for (const int end = std::min(unit + chunk, n_blocks); unit < end; ++unit) take(unit);
        team_.barrier();
        for (auto t = std::size_t(self); t < tasks_.size(); t += std::size_t(team)) {
            const Task& task = tasks_[t];
            std::fill_n(state.max, kRowLanes, -std::numeric_limits<float>::infinity());
            std::fill_n(state.sum, kRowLanes, 0.0f);
            std::fill_n(state.out, std::int64_t(task.n_rows) * head_dim, 0.0f);
            const auto [first, step] = first_unit_[t];
            for (int b = 0; b < task.n_blocks; ++b) {
                const float* part = parts + (first + std::int64_t(b) * step) * part_floats;
                merge_rows(state.max, state.sum, state.out, task.n_rows, part, part + kRowLanes,
                           part + 2 * kRowLanes, head_dim);
            }
            for (int row = 0; row < task.n_rows; ++row)
                finish_row(job, task, row, state.out + std::int64_t(row) * head_dim, state.sum[row]);
        }
    });
}

void AttentionRunner::run(
    const Tensor& out, const Tensor& q, const KvCache& kv, const Batch& batch, const AttentionShape& shape) {
    const Job job{out, q, kv, batch, shape, shape.n_heads / shape.n_kv_heads};
    plan(job);
    double work = 0;
    std::int64_t n_blocks = 0;
    bool single_tiles = true;
    for (const Task& task : tasks_) {
        work += 2.0 * task.n_rows * task.n_blocks * kKeyBlock * shape.head_dim;
        n_blocks += task.n_blocks;
        single_tiles &= task.n_rows <= kernels_.max_rows;
    }
    const auto state_floats = std::int64_t(State::floats(shape.head_dim));
    const int threads = work < kSerialWork ? 1 : team_.size();
    const auto n_tasks = std::int64_t(tasks_.size());
    const bool split = threads > 1 && single_tiles && n_tasks < 4 * threads && n_blocks > n_tasks;
    const std::int64_t parts =
        split ? n_blocks * split_floats(shape.head_dim) + n_tasks * split_query_floats(shape.head_dim) : 0;
    float* memory =
        static_cast<float*>(states_.get(std::size_t(team_.size() * state_floats + parts) * sizeof(float)));
    if (split) return run_split(job, memory, state_floats, int(n_blocks));
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
