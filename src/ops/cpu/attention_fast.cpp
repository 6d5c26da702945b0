// One task is up to 48 query rows (tokens times the heads that share a kv head) of one sequence and kv head,
// over all its blocks of 128 keys: a block's keys and values stay in the L1 cache while the task's tiles of
// 12 rows pass. Each tile keeps a running (max, sum, output) per row and merges block after block into it.
//
// Where there are fewer tasks than threads want (decode), see attention_split.cpp.
#include "ops/cpu/attention_fast.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "ops/cpu/attention_job.h"
#include "ops/cpu/kv_layout.h"

namespace llmgen::cpu {
namespace {

// Below this many multiply-adds, 5 µs of one thread, a second costs more than it brings.
constexpr double kSerialWork = 500000;

}  // namespace

AttentionRunner::AttentionRunner(DType act, Isa isa, Team& team)
    : act_(act),
      team_(team),
      kernels_(attention_kernels(act, isa)),
      pack_(pack_rows(isa)),
      shares_(std::make_unique<Share[]>(std::size_t(team.size()))) {}

AttentionRunner::~AttentionRunner() = default;

void AttentionRunner::plan(const Job& job, Rows rows) {
    tasks_.clear();
    const int* first = job.batch.first_token.as<int>();
    const int* wanted = job.batch.logit_rows.as<int>();
    const int* wanted_end = wanted + job.batch.logit_rows.dim(0);
    for (std::int64_t s = 0; s < job.batch.context_len.dim(0); ++s) {
        const int n_new = first[s + 1] - first[s];
        int begin = 0, end = n_new;  // of the tokens that are worked out
        if (rows == Rows::wanted) {
            const int* last = std::lower_bound(wanted, wanted_end, first[s + 1]);
            if (last == wanted) continue;
            begin = *wanted - first[s];
            end = last[-1] + 1 - first[s];
            wanted = last;
        }
        const int first_row = begin * job.group, n_rows = (end - begin) * job.group;
        Task task{};
        task.first_token = first[s];
        task.first_position = job.batch.context_len.as<int>()[s] - n_new;
        task.pages = job.batch.page_table.as<int>() + s * job.batch.page_table.stride[0];
        // The last tokens see the most keys: first, so that threads end together.
        for (int row = (n_rows - 1) / kTaskRows * kTaskRows; row >= 0 && n_rows > 0; row -= kTaskRows)
            for (task.kv_head = 0; task.kv_head < job.shape.n_kv_heads; ++task.kv_head) {
                task.first_row = first_row + row;
                task.n_rows = std::min(kTaskRows, n_rows - row);
                task.first_block = task.first_key(job) / kKeyBlock;
                task.n_blocks = (task.end_key(job) - 1) / kKeyBlock + 1 - task.first_block;
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
        Task::Row row = task.row(job, first);
        for (int r = 0; r < rows; ++r) {
            sources[r] = job.q.as<float>() + task.offset(job, job.q, row);
            if (r < n - 1) row.step(job);  // rows that fill up the tile repeat the last: nobody reads theirs
        }
        pack_(tile, kernels_.q_type, sources, DType::f32, rows, head_dim);
    }
}

/// Of the keys or values of one head in a page.
std::int64_t AttentionRunner::page_bytes(const Job& job) const {
    return std::int64_t(kPageSize) * job.shape.head_dim * std::int64_t(size_of(act_));
}

/// This head's keys and values in those pages of a block of which any row of the task sees a key; null for
/// the others.
AttentionRunner::Blocks AttentionRunner::blocks_of(const Job& job, const Unit& unit) const {
    const Task& task = *unit.task;
    const int origin = unit.block * kKeyBlock;
    const int first = std::max(0, task.first_key(job) - origin) / kPageSize;
    const int end = (std::min(kKeyBlock, task.end_key(job) - origin) + kPageSize - 1) / kPageSize;
    Blocks blocks{};
    for (int page = first; page < end; ++page) {
        const std::int64_t id = task.pages[unit.block * kBlockPages + page];
        const std::int64_t offset = block_offset(job.kv.k, id, task.kv_head) * std::int64_t(size_of(act_));
        blocks.keys[std::size_t(page)] = static_cast<const char*>(job.kv.k.data) + offset;
        blocks.values[std::size_t(page)] = static_cast<const char*>(job.kv.v.data) + offset;
    }
    return blocks;
}

/// What to draw near beside `here`: few rows wait for memory, so they read the next unit's, where there is
/// one.
AttentionRunner::Blocks AttentionRunner::blocks_ahead(const Job& job,
                                                      const Unit& next,
                                                      int n_rows,
                                                      const Blocks& here) const {
    if (n_rows > kPrefetchRows || !next.task) return here;
    Blocks there = blocks_of(job, next);
    for (std::size_t page = 0; page < kBlockPages; ++page)
        if (!there.keys[page]) {
            there.keys[page] = here.keys[page];
            there.values[page] = here.values[page];
        }
    return there;
}

/// One tile of rows, from row `first` on, against one block; false where no row sees a key of it. `ahead` is
/// what this thread most likely reads after it.
bool AttentionRunner::run_block(const Job& job,
                                const Unit& unit,
                                int first,
                                const Blocks& blocks,
                                Blocks ahead,
                                State& state,
                                const Part& part) const {
    const int n = std::min(kernels_.max_rows, unit.task->n_rows - first), rows = kernels_.tile_rows(n);
    const int head_dim = job.shape.head_dim, origin = unit.block * kKeyBlock;
    const KeyRange* keys = state.keys.data() + first;
    const int begin = std::max(0, keys[0].begin - origin);
    const int end = std::min(kKeyBlock, keys[n - 1].end - origin);
    std::fill_n(part.sum, kRowLanes, 0.0f);
    if (begin >= end) return false;
    const int first_page = begin / kPageSize, end_page = (end + kPageSize - 1) / kPageSize;
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
    kernels_.softmax(
        {state.p, kernels_.p_type, state.scores, seen, rows, job.shape.scale, part.max, part.sum});
    kernels_.values[std::size_t(rows)](part.out, state.p, blocks.values, ahead.values, first_page * kPageSize,
                                       end, head_dim);
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
    const int head_dim = job.shape.head_dim, end_block = task.first_block + task.n_blocks;
    pack_queries(job, task, state.q);
    state.begin(job, task);
    std::fill_n(state.max, task.n_rows + kRowLanes, -std::numeric_limits<float>::infinity());
    for (int block = task.first_block; block < end_block; ++block) {
        const Unit unit{&task, block};
        Unit next{&task, block + 1};
        if (block + 1 == end_block) next = {following, following ? following->first_block : 0};
        const Blocks blocks = blocks_of(job, unit), ahead = blocks_ahead(job, next, task.n_rows, blocks);
        for (int first = 0; first < task.n_rows; first += kernels_.max_rows) {
            const int n = std::min(kernels_.max_rows, task.n_rows - first);
            float *max = state.max + first, *sum = state.sum + first;
            float* out = state.out + std::int64_t(first) * head_dim;
            if (block == task.first_block) {  // nothing to merge with: as it comes
                run_block(job, unit, first, blocks, ahead, state, {max, sum, out});
                for (int r = 0; r < n; ++r)
                    if (sum[r] == 0) std::fill_n(out + std::int64_t(r) * head_dim, head_dim, 0.0f);
                continue;
            }
            const Part part{state.part_max, state.part_sum, state.part};
            if (!run_block(job, unit, first, blocks, ahead, state, part)) continue;
            // Rows past the tile's are the next tile's: they join nothing here.
            std::fill(state.part_sum + n, state.part_sum + kRowLanes, 0.0f);
            merge_rows(max, sum, out, 0, n, part.max, part.sum, part.out, head_dim);
        }
    }
    finish_rows(job, task, 0, task.n_rows, state.out, state.sum);
}

void AttentionRunner::finish_rows(
    const Job& job, const Task& task, int begin, int end, const float* total, const float* sum) const {
    const int head_dim = job.shape.head_dim;
    auto* out = static_cast<char*>(job.out.data);
    Task::Row row = task.row(job, begin);
    for (int r = begin; r < end; ++r, row.step(job))
        kernels_.finish(out + task.offset(job, job.out, row) * std::int64_t(size_of(act_)), act_,
                        total + std::int64_t(r) * head_dim, 1 / sum[r], head_dim);
}

void AttentionRunner::run(const Tensor& out,
                          const Tensor& q,
                          const KvCache& kv,
                          const Batch& batch,
                          const AttentionShape& shape,
                          Rows rows) {
    const Job job{out, q, kv, batch, shape, shape.n_heads / shape.n_kv_heads};
    plan(job, rows);
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
