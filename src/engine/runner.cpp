#include "engine/runner.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace llmgen {

static_assert(kTokensPerPage == kPageSize);

namespace {

/// Up to here each number of rows is a step of its own: the kernels for few rows are made for one number.
constexpr int kExactRows = 8;
/// The bounds of the context under which decode steps are recorded, the model's own beside them: a launch
/// made for long contexts is spread wider than short ones need.
constexpr int kContextBounds[] = {256, 1024};

/// Integers of one index tensor of a recorded step, in 16-byte units.
std::int64_t section_of(std::int64_t rows) { return (rows + 1 + 3) / 4 * 4; }

}  // namespace

Runner::Runner(Model& model, Ops& ops, const RunnerLimits& limits)
    : model_(model), ops_(ops), limits_(limits) {
    model.reserve(limits.max_tokens, limits.max_seqs, limits.max_logits, limits.max_context);

    host_memory_ = ops.info().name == "cpu";
    make_pages();

    const std::int64_t max_pages = PagePool::pages_for(limits.max_context);
    if (ops.records_steps()) decode_room_ = index_buffer(6 * section_of(limits.max_seqs));
    room_.token_ids = index_buffer(limits.max_tokens);
    room_.positions = index_buffer(limits.max_tokens);
    room_.slots = index_buffer(limits.max_tokens);
    room_.first_token = index_buffer(limits.max_seqs + 1);
    room_.context_len = index_buffer(limits.max_seqs);
    room_.page_table = index_buffer(limits.max_seqs * max_pages);
    room_.logit_rows = index_buffer(limits.max_logits);
    if (ops.finds_largest()) room_.greedy_ids = index_buffer(limits.max_logits);
}

void Runner::make_pages() {
    const AttentionShape shape = model_.attention_shape();
    const DType act = activation_type(ops_.compute());
    const std::int64_t pages = limits_.n_pages + (ops_.records_steps() ? 1 : 0);  // one for rows of padding
    const std::int64_t block = std::int64_t(shape.n_kv_heads) * kPageSize * shape.head_dim;
    const std::int64_t n_blocks = 2 * std::int64_t(model_.n_layers());
    kv_ = ops_.allocate(std::size_t(pages * block * n_blocks) * size_of(act), "keys and values");
    const auto view = [&](std::int64_t index) {
        const std::int64_t first = index * block * (host_memory_ ? 1 : pages);
        Tensor tensor(static_cast<char*>(kv_->data()) + first * std::int64_t(size_of(act)), act,
                      {pages, shape.n_kv_heads, kPageSize, shape.head_dim});
        if (host_memory_) tensor.stride[0] = block * n_blocks;
        return tensor;
    };
    std::vector<KvCache> layers;
    for (int i = 0; i < model_.n_layers(); ++i) layers.push_back({view(2 * i), view(2 * i + 1)});
    model_.set_kv(std::move(layers));
}

Tensor Runner::index_buffer(std::int64_t size) {
    buffers_.push_back(ops_.allocate(std::size_t(size) * sizeof(int), "batch"));
    return Tensor(buffers_.back()->data(), DType::i32, {size});
}

Tensor Runner::upload(const Tensor& room,
                      const std::vector<int>& values,
                      std::initializer_list<std::int64_t> dims) {
    CHECK(std::int64_t(values.size()) <= room.size(), "{} values, room for {}", values.size(), room.size());
    const Tensor view(room.data, DType::i32, dims);
    if (!values.empty()) ops_.upload(view, values.data());
    return view;
}

void Runner::lay_out(const Plan& plan) {
    host_.token_ids.clear();
    host_.positions.clear();
    host_.slots.clear();
    host_.context_len.clear();
    host_.page_table.clear();
    host_.logit_rows.clear();
    host_.first_token.assign(1, 0);
    host_.max_pages = 1;
    for (const PlanRow& row : plan.rows)
        host_.max_pages = std::max(host_.max_pages, PagePool::pages_for(row.first + row.n_new));

    for (const PlanRow& row : plan.rows) {
        const Sequence& sequence = *row.sequence;
        const std::vector<int>& pages = sequence.pages.pages;
        for (int p = row.first; p < row.first + row.n_new; ++p) {
            const bool last = p + 1 == row.first + row.n_new;
            if ((last && row.samples()) || (sequence.all_logits && p < sequence.n_prompt))
                host_.logit_rows.push_back(host_.n_tokens());
            const bool known = p < int(sequence.tokens.size());
            host_.token_ids.push_back(known ? sequence.tokens[std::size_t(p)] : 0);
            host_.positions.push_back(p);
            host_.slots.push_back(pages[std::size_t(p / kPageSize)] * kPageSize + p % kPageSize);
        }
        host_.first_token.push_back(host_.n_tokens());
        host_.context_len.push_back(row.first + row.n_new);
        const int n_pages = PagePool::pages_for(row.first + row.n_new);
        host_.page_table.insert(host_.page_table.end(), pages.begin(), pages.begin() + n_pages);
        host_.page_table.resize(host_.context_len.size() * std::size_t(host_.max_pages), 0);
    }
}

/// Whether every sequence has one new token and wants its logits: of such steps there are few shapes, which
/// come again and again.
bool Runner::only_decodes() const {
    return host_.n_seqs() > 0 && host_.n_tokens() == host_.n_seqs() && host_.n_logits() == host_.n_seqs();
}

/// Rows that nobody asked for, so that fewer numbers of rows occur: sequences of one token, in a page that no
/// sequence has.
void Runner::pad() {
    const int real = host_.n_seqs();
    if (real <= kExactRows) return;
    const int rows = std::min((real + kExactRows - 1) / kExactRows * kExactRows, limits_.max_seqs);
    for (int i = real; i < rows; ++i) {
        host_.token_ids.push_back(0);
        host_.positions.push_back(0);
        host_.slots.push_back(limits_.n_pages * kPageSize + i - real);
        host_.logit_rows.push_back(i);
        host_.first_token.push_back(i + 1);
        host_.context_len.push_back(1);
        host_.page_table.push_back(limits_.n_pages);
        host_.page_table.resize(host_.context_len.size() * std::size_t(host_.max_pages), 0);
    }
}

/// Uploads a step that will be recorded: where a tensor lies depends on the number of rows alone. Its ids are
/// read from where its choices go, so a step that follows finds them there.
Batch Runner::upload_recorded(bool follows) {
    const std::int64_t rows = host_.n_seqs(), section = section_of(rows);
    staging_.assign(std::size_t(6 * section), 0);
    std::int64_t at = 0;
    const auto place = [&](const std::vector<int>& values) {
        std::ranges::copy(values, staging_.begin() + at);
        const Tensor view(decode_room_.as<int>() + at, DType::i32, {std::int64_t(values.size())});
        at += section;
        return view;
    };
    Batch batch;
    batch.token_ids = place(host_.token_ids);
    batch.positions = place(host_.positions);
    batch.slots = place(host_.slots);
    batch.first_token = place(host_.first_token);
    batch.context_len = place(host_.context_len);
    batch.logit_rows = place(host_.logit_rows);
    const std::int64_t known = follows ? section : 0;
    ops_.upload(Tensor(decode_room_.as<int>() + known, DType::i32, {6 * section - known}),
                &staging_[std::size_t(known)]);
    const std::int64_t max_pages = PagePool::pages_for(limits_.max_context);
    batch.page_table = Tensor(room_.page_table.data, DType::i32, {rows, max_pages});
    ops_.upload(batch.page_table.columns(0, host_.max_pages), host_.page_table.data());
    return batch;
}

/// What the launches of a recorded step depend on: the number of rows and the bound of the context.
std::uint64_t Runner::bound_context() {
    const int longest = std::ranges::max(host_.context_len);
    host_.context_bound = limits_.max_context;
    for (const int bound : kContextBounds)
        if (longest <= bound) host_.context_bound = std::min(host_.context_bound, bound);
    return std::uint64_t(host_.n_seqs()) << 32 | std::uint64_t(host_.context_bound);
}

Batch Runner::upload_batch() {
    Batch batch;
    const std::int64_t n_tokens = host_.n_tokens();
    const std::int64_t n_seqs = host_.n_seqs();
    batch.token_ids = upload(room_.token_ids, host_.token_ids, {n_tokens});
    batch.positions = upload(room_.positions, host_.positions, {n_tokens});
    batch.slots = upload(room_.slots, host_.slots, {n_tokens});
    batch.first_token = upload(room_.first_token, host_.first_token, {n_seqs + 1});
    batch.context_len = upload(room_.context_len, host_.context_len, {n_seqs});
    batch.page_table = upload(room_.page_table, host_.page_table, {n_seqs, host_.max_pages});
    batch.logit_rows = upload(room_.logit_rows, host_.logit_rows, {host_.n_logits()});
    return batch;
}

void Runner::run(const Plan& plan) {
    lay_out(plan);
    recorded_ = ops_.records_steps() && only_decodes();
    enqueue(false);
    if (host_.n_logits() == 0) ops_.synchronize();
}

void Runner::run_next(const Plan& plan) {
    CHECK(can_follow() && int(plan.rows.size()) == n_logits_, "{} rows after {}", plan.rows.size(),
          n_logits_);
    lay_out(plan);
    enqueue(true);
}

void Runner::enqueue(bool follows) {
    n_logits_ = host_.n_logits();
    host_.context_bound = 0;
    if (recorded_) pad();
    Batch batch = recorded_ ? upload_recorded(follows) : upload_batch();
    batch.host = &host_;
    if (room_.greedy_ids)
        batch.greedy_ids = recorded_ ? batch.token_ids : room_.greedy_ids.rows(host_.n_logits());

    // Of a backend that records, only such steps as come again go through step().
    const bool whole = recorded_ || !ops_.records_steps();
    device_logits_ = whole ? ops_.step(recorded_ ? bound_context() : 0, [&] { return model_.forward(batch); })
                           : model_.forward(batch);
    device_ids_ = batch.greedy_ids;
    have_.assign(std::size_t(host_.n_logits()), 0);
}

std::span<float> Runner::logits(int i) {
    const std::size_t vocab = std::size_t(model_.vocab_size()), n = have_.size();
    if (host_memory_)
        return {device_logits_.rows(i, 1).as<float>(), vocab};  // 6 MB a step of 32 rows not copied
    if (logits_.size() < n * vocab) logits_.resize(n * vocab);
    const std::span<float> row = std::span(logits_).subspan(std::size_t(i) * vocab, vocab);
    if (!have_[std::size_t(i)]) ops_.download(row.data(), device_logits_.rows(i, 1));
    have_[std::size_t(i)] = 1;
    return row;
}

int Runner::largest(int i) const { return host_memory_ && device_ids_ ? device_ids_.as<int>()[i] : -1; }

// Greedy's choice was made along with the logits; the others take another launch.
int Runner::begin_choice(std::span<const TokenChoice> rows) {
    rest_.clear();
    std::ranges::copy_if(rows, std::back_inserter(rest_), [](const TokenChoice& c) {
        return c.inverse_temperature != 0 || !c.biases.empty() || !c.penalties.empty();
    });
    ops_.choose(device_ids_, device_logits_, rest_);
    return ops_.begin_read(device_ids_);
}

std::span<const int> Runner::finish_choice(int ticket) {
    ids_.resize(have_.size());  // a step that follows has as many rows
    ops_.finish_read(ids_, ticket);
    return ids_;
}

}  // namespace llmgen
