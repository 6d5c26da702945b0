#include "engine/runner.h"

#include <algorithm>

#include "base/error.h"

namespace llmgen {

static_assert(kTokensPerPage == kPageSize);

Runner::Runner(Model& model, Ops& ops, const RunnerLimits& limits)
    : model_(model), ops_(ops), limits_(limits) {
    model.reserve(limits.max_tokens, limits.max_seqs, limits.max_logits, limits.max_context);

    const AttentionShape shape = model.attention_shape();
    const DType act = activation_type(ops.compute());
    const std::int64_t pages = limits.n_pages;
    const std::size_t half =
        std::size_t(pages * shape.n_kv_heads * kPageSize * shape.head_dim) * size_of(act);
    kv_ = ops.allocate(half * 2 * std::size_t(model.n_layers()), "keys and values");
    std::vector<KvCache> layers;
    char* next = static_cast<char*>(kv_->data());
    for (int i = 0; i < model.n_layers(); ++i, next += 2 * half)
        layers.push_back({Tensor(next, act, {pages, shape.n_kv_heads, kPageSize, shape.head_dim}),
                          Tensor(next + half, act, {pages, shape.n_kv_heads, kPageSize, shape.head_dim})});
    model.set_kv(std::move(layers));

    const std::int64_t max_pages = PagePool::pages_for(limits.max_context);
    room_.token_ids = index_buffer(limits.max_tokens);
    room_.positions = index_buffer(limits.max_tokens);
    room_.slots = index_buffer(limits.max_tokens);
    room_.first_token = index_buffer(limits.max_seqs + 1);
    room_.context_len = index_buffer(limits.max_seqs);
    room_.page_table = index_buffer(limits.max_seqs * max_pages);
    room_.logit_rows = index_buffer(limits.max_logits);
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
            host_.token_ids.push_back(sequence.tokens[std::size_t(p)]);
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

void Runner::run(const Plan& plan) {
    lay_out(plan);
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
    batch.host = &host_;

    const Tensor logits = model_.forward(batch);
    if (logits_.size() < std::size_t(logits.size())) logits_.resize(std::size_t(logits.size()));
    if (logits.size() > 0)
        ops_.download(logits_.data(), logits);
    else
        ops_.synchronize();
}

std::span<float> Runner::logits(int i) {
    const std::size_t vocab = std::size_t(model_.vocab_size());
    return std::span(logits_).subspan(std::size_t(i) * vocab, vocab);
}

}  // namespace llmgen
