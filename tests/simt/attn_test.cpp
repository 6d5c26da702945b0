// The three attention kernels against plain loops in double: ragged batches, chunks, windows, grouped heads,
// every head_dim, keys and values scattered over pages of a pool that is NaN elsewhere.
#include <algorithm>
#include <numeric>

#include "kernels.h"
#include "simt/testing.h"

namespace llmgen::simt {
namespace {

using kernels::Dependent;

struct Sequence {
    int context, n_new;
};

struct AttnCase {
    int head_dim, n_heads, n_kv_heads;
    std::vector<Sequence> seqs;
    int window = 0;
};

/// The batch on the host and on the device, with the exact answer.
template <typename T>
class Attn {
public:
    explicit Attn(const AttnCase& c) : c_(c), values_(31) {
        lay_out();
        fill();
    }

    kernels::Attention arguments() {
        kernels::Attention p{};
        out = std::make_unique<DeviceArray<T>>(n_tokens * q_width() + 1);
        p.out = out->get();
        p.out_stride = q_width();
        p.q = q_->get();
        p.q_stride = q_stride();
        p.k = k_->get();
        p.v = v_->get();
        p.kv_type = sizeof(T) == 4 ? DType::f32 : DType::bf16;
        p.first_token = first_->get();
        p.context_len = context_->get();
        p.page_table = table_->get();
        p.page_stride = max_pages_;
        p.n_seqs = int(c_.seqs.size());
        p.n_heads = c_.n_heads;
        p.n_kv_heads = c_.n_kv_heads;
        p.head_dim = c_.head_dim;
        p.window = c_.window;
        p.scale = scale();
        return p;
    }
    int n_tiles() const {
        int n = 0;
        for (const Sequence& s : c_.seqs)
            n += kernels::attn_prefill_tiles(s.n_new, c_.n_heads, c_.n_kv_heads);
        return n;
    }
    int longest() const {
        int longest = 0;
        for (const Sequence& s : c_.seqs) longest = std::max(longest, s.context);
        return longest;
    }
    /// Compares the rows of sequences for which `takes` holds; the others must be untouched.
    template <typename Takes>
    void check(bool tiled, Takes takes) {
        std::vector<T> got;
        std::vector<double> want, bound;
        const auto all = out->host();
        int t = 0;
        for (std::size_t s = 0; s < c_.seqs.size(); ++s)
            for (int i = 0; i < c_.seqs[s].n_new; ++i, ++t)
                for (int h = 0; h < c_.n_heads; ++h) {
                    const std::size_t at = std::size_t(t * q_width() + h * c_.head_dim);
                    if (!takes(c_.seqs[s])) {
                        ASSERT_TRUE(std::isnan(as_double(all[at])));
                        continue;
                    }
                    got.insert(got.end(), all.begin() + long(at), all.begin() + long(at) + c_.head_dim);
                    exact(int(s), i, t, h, tiled, want, bound);
                }
        ASSERT_TRUE(std::isnan(as_double(all.back())));
        expect_within(got, want, bound, "attention");
    }

    int n_tokens = 0;
    std::unique_ptr<DeviceArray<T>> out;

private:
    int q_width() const { return c_.n_heads * c_.head_dim; }
    int q_stride() const { return q_width() + 2 * c_.n_kv_heads * c_.head_dim; }  // as a view of qkv
    float scale() const { return 1 / std::sqrt(float(c_.head_dim)); }

    void lay_out() {
        int pages = 1;  // page 0 belongs to nobody
        std::vector<int> first = {0}, context;
        for (const Sequence& s : c_.seqs) {
            n_tokens += s.n_new;
            first.push_back(n_tokens);
            context.push_back(s.context);
            max_pages_ = std::max(max_pages_, (s.context + 15) / 16);
            pages += (s.context + 15) / 16;
        }
        std::vector<int> order(std::size_t(pages - 1));
        std::iota(order.begin(), order.end(), 1);
        for (std::size_t i = order.size(); i > 1; --i)
            std::swap(order[i - 1], order[std::size_t(values_.below(int(i)))]);
        std::vector<int> table;
        for (const Sequence& s : c_.seqs)
            for (int page = 0; page < max_pages_; ++page) {
                const bool used = page < (s.context + 15) / 16;
                table.push_back(used ? order.back() : 0);
                if (used) order.pop_back();
            }
        n_pages_ = pages;
        pages_ = table;
        first_ = std::make_unique<DeviceArray<int>>(first);
        context_ = std::make_unique<DeviceArray<int>>(context);
        table_ = std::make_unique<DeviceArray<int>>(table);
    }

    std::size_t row_of(int seq, int position, int kv_head) const {
        const int page = pages_[std::size_t(seq * max_pages_ + position / 16)];
        return std::size_t((page * c_.n_kv_heads + kv_head) * 16 + position % 16) * std::size_t(c_.head_dim);
    }

    void fill() {
        const std::size_t size = std::size_t(n_pages_ * c_.n_kv_heads * 16 * c_.head_dim);
        k_ = std::make_unique<DeviceArray<T>>(size);
        v_ = std::make_unique<DeviceArray<T>>(size);
        for (std::size_t s = 0; s < c_.seqs.size(); ++s)
            for (int position = 0; position < c_.seqs[s].context; ++position)
                for (int h = 0; h < c_.n_kv_heads; ++h) {
                    const auto k = values_.vector<T>(std::size_t(c_.head_dim), 2),
                               v = values_.vector<T>(k.size());
                    std::copy(k.begin(), k.end(), k_->get() + row_of(int(s), position, h));
                    std::copy(v.begin(), v.end(), v_->get() + row_of(int(s), position, h));
                }
        q_host_ = values_.vector<float>(std::size_t(n_tokens * q_stride()), 2);
        q_ = std::make_unique<DeviceArray<float>>(q_host_);
    }

    // Error of a tiled row: P rounded to bf16 (unit round-off of bf16, relative), the scores' own error,
    // twice because the maximum has it too, and the last rounding.
    void exact(
        int s, int i, int t, int h, bool tiled, std::vector<double>& want, std::vector<double>& bound) {
        const Sequence seq = c_.seqs[std::size_t(s)];
        const int position = seq.context - seq.n_new + i, kv_head = h / (c_.n_heads / c_.n_kv_heads);
        const int oldest = c_.window > 0 ? std::max(0, position - c_.window + 1) : 0;
        std::vector<double> p;
        double largest = -1e300, sum = 0, score_error = 0;
        for (int key = oldest; key <= position; ++key) {
            double score = 0, magnitude = 0;
            for (int d = 0; d < c_.head_dim; ++d) {
                const float value = q_host_[std::size_t(t * q_stride() + h * c_.head_dim + d)];
                const double q = tiled ? double(to_f32(to_bf16(value))) : double(value);
                const double term =
                    q * as_double(k_->get()[row_of(s, key, kv_head) + std::size_t(d)]) * scale();
                score += term;
                magnitude += std::abs(term);
            }
            p.push_back(score);
            largest = std::max(largest, score);
            score_error = std::max(score_error, magnitude * (c_.head_dim + 8) * 0x1p-24);
        }
        for (double& value : p) sum += value = std::exp(value - largest);
        const double relative = (tiled ? unit<T>() : 0) + 2 * score_error + (seq.context / 4 + 64) * 0x1p-24;
        for (int d = 0; d < c_.head_dim; ++d) {
            double value = 0, magnitude = 0;
            for (int key = oldest; key <= position; ++key) {
                const double term = p[std::size_t(key - oldest)] / sum *
                                    as_double(v_->get()[row_of(s, key, kv_head) + std::size_t(d)]);
                value += term;
                magnitude += std::abs(term);
            }
            want.push_back(value);
            bound.push_back(magnitude * relative + std::abs(value) * 1.01 * unit<T>());
        }
    }

    AttnCase c_;
    Values values_;
    int max_pages_ = 1, n_pages_ = 0;
    std::vector<int> pages_;
    std::vector<float> q_host_;
    std::unique_ptr<DeviceArray<T>> k_, v_;
    std::unique_ptr<DeviceArray<float>> q_;
    std::unique_ptr<DeviceArray<int>> first_, context_, table_;
};

DeviceArray<int> counters(int n_seqs, int n_heads, int n_kv_heads) {
    return std::vector<int>(kernels::attn_decode_arrivals(n_seqs, n_heads, n_kv_heads), 0);
}

void check_tiled(const AttnCase& c) {
    SCOPED_TRACE(testing::Message() << "head_dim " << c.head_dim << ", " << c.n_heads << "/" << c.n_kv_heads
                                    << " heads, window " << c.window << ", first sequence "
                                    << c.seqs[0].context << "/" << c.seqs[0].n_new);
    Attn<bf16> attn(c);
    const auto is_decode = [&](const Sequence& s) {
        return kernels::attn_is_decode(s.n_new, c.n_heads, c.n_kv_heads);
    };
    kernels::attn_prefill(attn.arguments(), attn.n_tiles(), Dependent::no, nullptr);
    attn.check(true, [&](const Sequence& s) { return !is_decode(s); });
    DeviceArray<float> scratch(
        kernels::attn_decode_scratch(int(c.seqs.size()), c.n_heads, c.n_kv_heads, c.head_dim));
    DeviceArray<int> arrivals = counters(int(c.seqs.size()), c.n_heads, c.n_kv_heads);
    auto p = attn.arguments();
    p.arrivals = arrivals;
    kernels::attn_decode(p, scratch, attn.longest(), Dependent::no, nullptr);
    attn.check(true, is_decode);
    for (const int left : arrivals.host()) ASSERT_EQ(left, 0);
}

// A ragged step: whole prompts, chunks that start inside a page, single tokens, two tokens; around 16, 64 and
// 4 pages.
const std::vector<Sequence> kRagged = {{40, 40}, {100, 33}, {1, 1},   {65, 1},
                                       {16, 16}, {64, 1},   {130, 2}, {17, 17}};

TEST(Attention, RaggedBatchesInEveryOrder) {
    in_every_order([] {
        check_tiled({64, 4, 1, kRagged});
        check_tiled({64, 6, 3, {{70, 70}, {90, 1}}, 20});
    });
}

TEST(Attention, EveryHeadDimInEveryOrder) {
    in_every_order([] {
        for (const int head_dim : {80, 96, 128, 256})
            check_tiled({head_dim, 4, 2, {{45, 20}, {39, 1}, {80, 1}}});
    });
}

TEST(Attention, GroupsOfEverySize) {
    for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {3, 3}, {5, 1}, {16, 1}, {17, 1}, {40, 2}})
        check_tiled({64, heads, kv_heads, {{33, 33}, {50, 1}, {20, 3}, {90, 1}}});
}

TEST(Attention, WindowsAroundPagesAndTiles) {
    for (const int window : {1, 2, 15, 16, 17, 63, 64, 65, 200})
        check_tiled({64, 4, 2, {{150, 150}, {150, 40}, {150, 1}, {7, 7}, {7, 1}}, window});
}

TEST(Attention, ContextsAroundPagesTilesAndSplits) {
    std::vector<Sequence> prompts, steps;
    for (const int n : {15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 127, 128, 129}) {
        prompts.push_back({n, n});
        steps.push_back({n, 1});
    }
    check_tiled({64, 2, 1, prompts});
    check_tiled({64, 2, 1, steps});
    check_tiled(
        {128, 4, 1, {{2049, 1}, {2048, 1}, {2047, 1}, {3000, 1}}});  // 32 splits, then of more than 64 keys
}

TEST(Attention, LargeScoresDoNotOverflow) {
    AttnCase c{64, 2, 1, {{80, 80}, {80, 1}}};
    Attn<bf16> attn(c);
    auto p = attn.arguments();
    p.scale = 500;  // one key takes all; no inf, no NaN
    kernels::attn_prefill(p, attn.n_tiles(), Dependent::no, nullptr);
    DeviceArray<float> scratch(kernels::attn_decode_scratch(2, 2, 1, 64));
    DeviceArray<int> arrivals = counters(2, 2, 1);
    p.arrivals = arrivals;
    kernels::attn_decode(p, scratch, 80, Dependent::no, nullptr);
    for (std::size_t i = 0; i < std::size_t(attn.n_tokens * 128); ++i)
        ASSERT_LE(std::abs(as_double((*attn.out)[i])), 2.0);
}

template <typename T>
void check_generic(const AttnCase& c) {
    Attn<T> attn(c);
    kernels::attn_generic(attn.arguments(), attn.n_tokens, Dependent::no, nullptr);
    attn.check(false, [](const Sequence&) { return true; });
}
TEST(Attention, GenericTakesAnyShape) {
    in_every_order([] {
        check_generic<float>({40, 4, 2, {{9, 9}, {33, 2}, {1, 1}, {50, 1}}, 0});
        check_generic<bf16>({8, 3, 1, {{20, 3}}, 5});
    });
    check_generic<float>({256, 2, 1, {{20, 3}}, 0});
    check_generic<float>({1, 2, 2, {{20, 3}}, 7});
}

// A sequence's result is the same bits alone and beside others, and whatever the graph's largest context is.
TEST(Attention, NeighboursChangeNothing) {
    const AttnCase alone{64, 4, 2, {{100, 1}}};
    const AttnCase together{64, 4, 2, {{100, 1}, {300, 1}, {20, 20}}};
    auto run = [](const AttnCase& c, int max_context) {
        Attn<bf16> attn(c);
        DeviceArray<float> scratch(kernels::attn_decode_scratch(int(c.seqs.size()), 4, 2, 64));
        DeviceArray<int> arrivals = counters(int(c.seqs.size()), 4, 2);
        auto p = attn.arguments();
        p.arrivals = arrivals;
        kernels::attn_decode(p, scratch, max_context, Dependent::no, nullptr);
        std::vector<std::uint16_t> bits;
        for (std::size_t i = 0; i < 256; ++i) bits.push_back((*attn.out)[i].bits);
        return bits;
    };
    const auto want = run(alone, 100);
    EXPECT_EQ(run(alone, 100000), want);
    // the batch's values are drawn in order, so the first sequence is the same only while its pages come
    // first
    EXPECT_EQ(run(AttnCase{64, 4, 2, {{100, 1}}}, 300), want);
    check_tiled(together);
}

// Decode as a dependent launch that overlaps: the kernel before writes q, the last block reads the splits.
TEST(Attention, DecodeOverlapsItsPredecessor) {
    in_every_order([] {
        const AttnCase c{64, 4, 2, {{200, 1}, {30, 1}}};
        Attn<bf16> attn(c);
        auto p = attn.arguments();
        DeviceArray<float> scratch(kernels::attn_decode_scratch(2, 4, 2, 64)), q(2 * 512);
        DeviceArray<int> rows(std::vector<int>{0, 1}), arrivals = counters(2, 4, 2);
        p.arrivals = arrivals;
        kernels::gather_rows(q, 512, p.q, p.q_stride, rows, 2, 512, nullptr);
        Machine::get().config.overlap = true;
        p.q = q;
        p.q_stride = 512;
        q.poison();
        kernels::gather_rows(q, 512, attn.arguments().q, 512, rows, 2, 512, nullptr);
        p.out = attn.out->get();
        kernels::attn_decode(p, scratch, 200, Dependent::yes, nullptr);
        Machine::get().synchronize();
        attn.check(true, [](const Sequence&) { return true; });
    });
}

TEST(Attention, ReadsTilesWithoutBankConflicts) {
    for (const int head_dim : {64, 80, 96, 128, 256}) {
        Setting setting;
        check_tiled({head_dim, 4, 1, {{20, 20}, {70, 1}}});
        EXPECT_GT(Machine::get().counters.mma, 0u);
        EXPECT_EQ(Machine::get().counters.ldmatrix_conflicts, 0u) << head_dim;
    }
}

}  // namespace
}  // namespace llmgen::simt
