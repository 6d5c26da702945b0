// A paged batch for the tests of rope, the KV store and attention, with the exact answer in f64. Keys and
// values go in through the op itself, because their order inside a page is the backend's own.
#pragma once

#include <algorithm>
#include <numeric>

#include "backends.h"
#include "ops/batch.h"

namespace llmgen::test {

/// What one sequence has: `context` keys in all, the last `n_new` of them this step's.
struct Sequence {
    int context, n_new;
};

struct HeadShape {
    int n_heads, n_kv_heads, head_dim, window;
    AttentionShape attention(int rotary_dim = 0) const {
        AttentionShape shape;
        shape.n_heads = n_heads;
        shape.n_kv_heads = n_kv_heads;
        shape.head_dim = head_dim;
        shape.rotary_dim = rotary_dim;
        shape.scale = float(1 / std::sqrt(double(head_dim)));
        shape.window = window;
        return shape;
    }
};

/// Pages handed out in a shuffled order, so that neighbours in a sequence are none in memory. On the CPU a
/// page's keys and values stand together, as the engine has them there; elsewhere all keys before all values.
class PagedCache {
public:
    PagedCache(Ops& ops, DType act, const HeadShape& shape, int n_pages, std::uint64_t seed)
        : free_(std::size_t(n_pages)) {
        std::iota(free_.begin(), free_.end(), 0);
        Random random(seed);
        for (std::size_t i = free_.size(); i > 1; --i)
            std::swap(free_[i - 1], free_[std::size_t(random.below(int(i)))]);
        // NaN patterns: keys that no sequence has must not reach any sum.
        const std::int64_t block = std::int64_t(shape.n_kv_heads) * kPageSize * shape.head_dim;
        const bool by_page = ops.info().name == "cpu";
        const std::vector<char> poison(std::size_t(n_pages * block) * size_of(act), char(0xff));
        buffer_ = ops.allocate(2 * poison.size(), "test KV");
        for (int i = 0; i < 2; ++i) {
            Tensor& t = i == 0 ? cache.k : cache.v;
            const std::int64_t first = i * block * (by_page ? 1 : n_pages) * std::int64_t(size_of(act));
            t = Tensor(static_cast<char*>(buffer_->data()) + first, act,
                       {n_pages, shape.n_kv_heads, kPageSize, shape.head_dim});
            if (by_page) t.stride[0] = 2 * block;
            ops.upload(t, poison.data());
        }
    }
    int take() {
        const int page = free_.back();
        free_.pop_back();
        return page;
    }
    KvCache cache;

private:
    std::vector<int> free_;
    std::unique_ptr<Buffer> buffer_;
};

/// A step's batch in the backend's memory.
class DeviceBatch {
public:
    DeviceBatch(Ops& ops, HostBatch host) : host_(std::move(host)) {
        const auto put = [&](const std::vector<int>& values) {
            arrays_.emplace_back(ops, values);
            return arrays_.back().view();
        };
        arrays_.reserve(7);
        batch_.token_ids = put(host_.token_ids);
        batch_.positions = put(host_.positions);
        batch_.slots = put(host_.slots);
        batch_.first_token = put(host_.first_token);
        batch_.context_len = put(host_.context_len);
        put(host_.page_table);
        batch_.page_table = arrays_.back().view(host_.n_seqs(), host_.max_pages);
        batch_.logit_rows = put(host_.logit_rows);
        batch_.host = &host_;
    }
    const Batch& get() const { return batch_; }

private:
    HostBatch host_;
    std::vector<Integers> arrays_;
    Batch batch_;
};

/// The step that computes keys begin[s] to end[s] - 1 of each sequence.
inline HostBatch step_of(const std::vector<std::vector<int>>& pages,
                         const std::vector<int>& begin,
                         const std::vector<int>& end) {
    HostBatch batch;
    batch.first_token = {0};
    for (const auto& p : pages) batch.max_pages = std::max(batch.max_pages, int(p.size()));
    for (std::size_t s = 0; s < pages.size(); ++s) {
        for (int position = begin[s]; position < end[s]; ++position) {
            batch.token_ids.push_back(0);
            batch.positions.push_back(position);
            batch.slots.push_back(pages[s][std::size_t(position / kPageSize)] * kPageSize +
                                  position % kPageSize);
        }
        batch.first_token.push_back(batch.n_tokens());
        batch.context_len.push_back(end[s]);
        std::vector<int> row = pages[s];
        row.resize(std::size_t(batch.max_pages));
        batch.page_table.insert(batch.page_table.end(), row.begin(), row.end());
    }
    return batch;
}

/// Sequences with random q, k, v at every position, run through the backend in steps of the caller's choice.
class AttentionCase {
public:
    AttentionCase(Ops& ops,
                  DType act,
                  const HeadShape& heads,
                  std::vector<int> contexts,
                  std::uint64_t seed,
                  float scale = 1)
        : ops_(ops),
          act_(act),
          heads_(heads),
          contexts_(std::move(contexts)),
          pages_(ops, act, heads, n_pages(contexts_) + 3, seed) {
        Random random(seed);
        for (const int context : contexts_) {
            qkv_.push_back(random.values(std::int64_t(context) * heads.attention().qkv_width(), scale));
            tables_.emplace_back();
            for (int page = 0; page * kPageSize < context; ++page) tables_.back().push_back(pages_.take());
        }
    }

    /// Attention outputs of the tokens begin[s] … end[s] - 1, in order; their keys and values are stored
    /// first. With `wanted`, rows of the step in ascending order, only theirs.
    std::vector<float> step(const std::vector<int>& begin,
                            const std::vector<int>& end,
                            const std::vector<int>& wanted = {}) {
        const AttentionShape shape = heads_.attention();
        HostBatch host = step_of(tables_, begin, end);
        host.logit_rows = wanted;
        const DeviceBatch batch(ops_, host);
        const int width = shape.qkv_width(), n_tokens = batch.get().host->n_tokens();
        std::vector<float> rows;
        for (std::size_t s = 0; s < contexts_.size(); ++s)
            rows.insert(rows.end(), qkv_[s].begin() + begin[s] * width, qkv_[s].begin() + end[s] * width);
        const Matrix qkv(ops_, DType::f32, n_tokens, width, rows);
        const Matrix out(ops_, act_, n_tokens, shape.q_width());
        const auto nothing = ops_.allocate(4, "test");
        const Tensor no_angles(nothing->data(), DType::f32, {n_tokens, 2, 0});
        ops_.reserve(shape, n_tokens, int(contexts_.size()),
                     *std::max_element(contexts_.begin(), contexts_.end()));
        ops_.qk_norm_rope_store_kv(qkv.view(), pages_.cache, no_angles, {}, {}, 0, batch.get(), shape);
        const Tensor q = qkv.view().columns(0, shape.q_width());
        if (wanted.empty()) {
            ops_.attention(out.view(), q, pages_.cache, batch.get(), shape);
            return out.values();
        }
        ops_.attention_of_wanted(out.view(), q, pages_.cache, batch.get(), shape);
        const std::vector<float> all = out.values();
        std::vector<float> chosen;
        for (const int row : wanted)
            chosen.insert(chosen.end(), all.begin() + row * shape.q_width(),
                          all.begin() + (row + 1) * shape.q_width());
        return chosen;
    }

    /// The same in f64 from the values as the cache holds them, each with its bound.
    void exact(std::size_t s, int position, std::vector<double>& want, std::vector<double>& bound) const;

    const std::vector<int>& contexts() const { return contexts_; }

private:
    static int n_pages(const std::vector<int>& contexts) {
        int n = 0;
        for (const int context : contexts) n += (context + kPageSize - 1) / kPageSize;
        return n;
    }

    Ops& ops_;
    DType act_;
    HeadShape heads_;
    std::vector<int> contexts_;
    PagedCache pages_;
    std::vector<std::vector<float>> qkv_;
    std::vector<std::vector<int>> tables_;
};

inline void AttentionCase::exact(std::size_t s,
                                 int position,
                                 std::vector<double>& want,
                                 std::vector<double>& bound) const {
    const AttentionShape shape = heads_.attention();
    const int hd = shape.head_dim, group = shape.n_heads / shape.n_kv_heads;
    const int oldest = shape.window > 0 ? std::max(0, position - shape.window + 1) : 0;
    const auto value = [&](int p, int channel) {
        return qkv_[s][std::size_t(p * shape.qkv_width() + channel)];
    };
    // bf16: q may be rounded before the product and the probabilities before theirs. Both: one rounding a
    // term.
    const bool half = act_ == DType::bf16;
    const double score_eps = (half ? 0x1p-8 : 0) + 0x1p-24 * (hd + 3);
    for (int h = 0; h < shape.n_heads; ++h) {
        const int k_at = shape.q_width() + h / group * hd, v_at = k_at + shape.n_kv_heads * hd;
        std::vector<double> p;
        double largest = -1e300, sum = 0, worst = 0;
        for (int i = oldest; i <= position; ++i) {
            double score = 0, size = 0;
            for (int d = 0; d < hd; ++d) {
                const double term = double(value(position, h * hd + d)) * rounded(act_, value(i, k_at + d));
                score += term;
                size += std::abs(term);
            }
            p.push_back(score * shape.scale);
            largest = std::max(largest, p.back());
            worst = std::max(worst, size * shape.scale);
        }
        for (double& x : p) sum += x = std::exp(x - largest);
        const double weight_eps =
            std::expm1(2 * score_eps * worst) + (half ? 0x1p-7 : 0) + 0x1p-24 * (double(p.size()) + 16);
        for (int d = 0; d < hd; ++d) {
            double result = 0, size = 0;
            for (int i = oldest; i <= position; ++i) {
                const double term = p[std::size_t(i - oldest)] / sum * rounded(act_, value(i, v_at + d));
                result += term;
                size += std::abs(term);
            }
            want.push_back(result);
            bound.push_back(weight_eps * size + (half ? 0x1p-8 : 0x1p-24) * std::abs(result));
        }
    }
}

}  // namespace llmgen::test
