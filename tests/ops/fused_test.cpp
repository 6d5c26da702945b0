// Steps in one against the single steps they stand for: the same bits on every backend, whatever the number
// of rows; and choosing tokens, where the backend does.
#include <gmock/gmock.h>

#include "backends.h"

namespace llmgen::test {
namespace {

class Fused : public EveryBackend {
protected:
    /// Rows for a norm, twice the same, with room for the result.
    struct Rows {
        Rows(Ops& ops, DType act, int n, int width)
            : h(ops, act, n, width),
              x(ops, DType::f32, n, width, Random(3).values(n * width)),
              weight(make_vector(ops, Random(4).values(width))) {}
        NormedRows view() const { return {h.view(), x.view(), weight, 1e-5f}; }
        Matrix h, x;
        Vector weight;
    };
    Weight weight(int out, int in, bool bias = false) {
        const std::vector<char> bytes = encode(DType::f32, Random(5).values(out * in, 0.3f));
        const std::vector<char> bias_bytes = encode(DType::f32, Random(6).values(out));
        const Tensor part = host_view(bytes, DType::f32, {out, in});
        const Tensor bias_part = host_view(bias_bytes, DType::f32, {out});
        return bias ? ops().make_weight({&part, 1}, {&bias_part, 1}) : ops().make_weight({&part, 1});
    }
    static constexpr int kRows[] = {1, 2, 5, 8, 9};
};

TEST_P(Fused, NormAndProduct) {
    for (const int n : kRows)
        for (const int in : {72, 37}) {
            const Rows rows(ops(), act(), n, in);
            const Weight w = weight(10, in, true);
            const Matrix fused(ops(), DType::f32, n, 10), single(ops(), DType::f32, n, 10);
            const Matrix fused_mlp(ops(), act(), n, 5), single_mlp(ops(), act(), n, 5);
            ops().norm_linear(fused.view(), rows.view(), w);
            ops().norm_linear_swiglu(fused_mlp.view(), rows.view(), w);
            ops().rmsnorm(rows.h.view(), rows.x.view(), rows.weight, 1e-5f);
            ops().linear(single.view(), rows.h.view(), w);
            ops().linear_swiglu(single_mlp.view(), rows.h.view(), w);
            EXPECT_TRUE(bit_equal(fused.values(), single.values())) << n << " rows of " << in;
            EXPECT_TRUE(bit_equal(fused_mlp.values(), single_mlp.values())) << n << " rows of " << in;
        }
}

TEST_P(Fused, QueriesKeysAndValues) {
    for (const int n : kRows)
        for (const bool norms : {false, true})
            for (const int head_dim : {32, 24}) {
                AttentionShape shape{.n_heads = 4, .n_kv_heads = 2, .head_dim = head_dim, .rotary_dim = 24};
                shape.scale = 1;
                const int in = 72, width = shape.qkv_width(), pages = 3;
                ops().reserve(shape, 16, 16, 64);
                const Rows rows(ops(), act(), n, in);
                const Weight w = weight(width, in, true);
                const Vector q_norm = norms ? make_vector(ops(), Random(7).values(head_dim)) : Vector{};
                const Vector k_norm = norms ? make_vector(ops(), Random(8).values(head_dim)) : Vector{};
                const Matrix angles(ops(), DType::f32, n, shape.rotary_dim,
                                    Random(9).values(n * shape.rotary_dim));
                const Tensor cos_sin(angles.view().data, DType::f32, {n, 2, shape.rotary_dim / 2});
                std::vector<int> slots, first, context, table;
                for (int t = 0; t < n; ++t) {  // a sequence each
                    slots.push_back((t * 7 + 13) % (pages * kPageSize));
                    first.push_back(t);
                    context.push_back(slots.back() % kPageSize + 1);
                    table.push_back(slots.back() / kPageSize);
                }
                first.push_back(n);
                const Integers device_slots(ops(), slots), device_first(ops(), first);
                const Integers device_context(ops(), context), device_table(ops(), table);
                Batch batch;
                batch.slots = device_slots.view();
                batch.first_token = device_first.view();
                batch.context_len = device_context.view();
                batch.page_table = device_table.view(n, 1);
                const std::vector<float> zeros(std::size_t(pages * 2 * kPageSize * head_dim));
                const auto pool = [&] { return Matrix(ops(), act(), 1, std::int64_t(zeros.size()), zeros); };
                const auto cache = [&](const Matrix& k, const Matrix& v) {
                    const auto view = [&](const Matrix& m) {
                        return Tensor(m.view().data, act(), {pages, 2, kPageSize, head_dim});
                    };
                    return KvCache{view(k), view(v)};
                };
                const Matrix k1 = pool(), v1 = pool(), k2 = pool(), v2 = pool();
                const Matrix fused(ops(), DType::f32, n, width), single(ops(), DType::f32, n, width);
                ops().norm_qkv_rope_store(fused.view(), rows.view(), w, cache(k1, v1), cos_sin, q_norm,
                                          k_norm, batch, shape);
                ops().rmsnorm(rows.h.view(), rows.x.view(), rows.weight, 1e-5f);
                ops().linear(single.view(), rows.h.view(), w);
                ops().qk_norm_rope_store_kv(single.view(), cache(k2, v2), cos_sin, q_norm, k_norm, 1e-5f,
                                            batch, shape);
                const std::vector<float> a = fused.values(), b = single.values();
                for (int t = 0; t < n; ++t)
                    for (int d = 0; d < shape.q_width(); ++d)
                        ASSERT_EQ(a[std::size_t(t * width + d)], b[std::size_t(t * width + d)])
                            << n << " rows, head_dim " << head_dim << (norms ? ", norms" : "");
                EXPECT_TRUE(bit_equal(k1.values(), k2.values()));
                EXPECT_TRUE(bit_equal(v1.values(), v2.values()));
            }
}

// Few rows and many, an intermediate width of whole panels and others.
TEST_P(Fused, NormedMlp) {
    const int hidden = 72;
    for (const int n : {1, 2, 5, 9, 32, 140})
        for (const int width : {96, 40, 33})
            for (const bool bias : {false, true}) {
                const Rows rows(ops(), act(), n, hidden);
                const Matrix other(ops(), DType::f32, n, hidden, Random(3).values(n * hidden));  // as rows.x
                const Matrix a(ops(), act(), n, width), b(ops(), act(), n, width);
                const Weight gate_up = weight(2 * width, hidden, bias), down = weight(hidden, width, bias);
                ops().norm_mlp(rows.x.view(), a.view(), rows.view(), gate_up, down);
                ops().rmsnorm(rows.h.view(), other.view(), rows.weight, 1e-5f);
                ops().linear_swiglu(b.view(), rows.h.view(), gate_up);
                ops().linear_add(other.view(), b.view(), down);
                EXPECT_TRUE(bit_equal(rows.x.values(), other.values())) << n << " rows, " << width;
            }
}

TEST_P(Fused, HeadWithGreedyChoice) {
    for (const int n : kRows) {
        const int vocab = 77;
        const Rows rows(ops(), act(), n, 72);
        const Weight head = weight(vocab, 72);
        const Matrix fused(ops(), DType::f32, n, vocab), single(ops(), DType::f32, n, vocab);
        const Integers ids(ops(), std::vector<int>(std::size_t(n), -7));
        const bool finds = ops().finds_largest();  // else the engine does, and there are only logits
        ops().norm_head(fused.view(), finds ? ids.view() : Tensor(), rows.view(), head);
        ops().norm_linear(single.view(), rows.view(), head);
        const std::vector<float> logits = fused.values();
        EXPECT_TRUE(bit_equal(logits, single.values()));
        if (!finds) continue;
        std::vector<int> got(static_cast<std::size_t>(n));
        ops().download(got.data(), ids.view());
        for (int t = 0; t < n; ++t) {
            const auto row = logits.begin() + t * vocab;
            EXPECT_EQ(got[std::size_t(t)], int(std::max_element(row, row + vocab) - row));
        }
    }
}

// On few rows and many, shared by outputs or by rows; each row of the head comes three times.
TEST_P(Fused, HeadFindsTheFirstOfEqualLogits) {
    if (!ops().finds_largest()) GTEST_SKIP() << "the engine looks for it";
    const int in = 72, distinct = 100, vocab = 3 * distinct;
    const std::vector<float> once = Random(5).values(distinct * in, 0.3f);
    std::vector<float> thrice;
    for (int i = 0; i < 3; ++i) thrice.insert(thrice.end(), once.begin(), once.end());
    const std::vector<char> bytes = encode(DType::f32, thrice);
    const Tensor part = host_view(bytes, DType::f32, {vocab, in});
    const Weight head = ops().make_weight({&part, 1});
    for (const int n : {1, 2, 13, 140}) {
        std::vector<float> x = Random(3).values(n * in);
        x[std::size_t(n / 2 * in + 3)] = std::numeric_limits<float>::quiet_NaN();
        const Matrix room(ops(), act(), n, in), from(ops(), DType::f32, n, in, x);
        const Vector ones = make_vector(ops(), std::vector<float>(std::size_t(in), 1.0f));
        const Matrix logits(ops(), DType::f32, n, vocab);
        const Integers ids(ops(), std::vector<int>(std::size_t(n), -7));
        ops().norm_head(logits.view(), ids.view(), {room.view(), from.view(), ones, 1e-5f}, head);
        std::vector<int> got(static_cast<std::size_t>(n));
        ops().download(got.data(), ids.view());
        const std::vector<float> values = logits.values();
        for (int t = 0; t < n; ++t) {
            const auto row = values.begin() + t * vocab;
            const int want = t == n / 2 ? -1 : int(std::max_element(row, row + vocab) - row);
            EXPECT_EQ(got[std::size_t(t)], want) << "row " << t << " of " << n;
            EXPECT_LT(want, distinct);
        }
    }
}

TEST_P(Fused, ChoosesRowsInAnyOrder) {
    if (!ops().chooses_tokens()) {
        EXPECT_THROW(ops().choose({}, {}, {}), Error);
        EXPECT_THROW(ops().begin_read({}), Error);
        EXPECT_THROW(ops().finish_read({}, 0), Error);
        return;
    }
    const int vocab = 50;
    std::vector<float> values = Random(10).values(4 * vocab, 3);
    values[std::size_t(2 * vocab + 5)] = std::numeric_limits<float>::quiet_NaN();
    values[7] = 9;                           // the best of row 0
    values[std::size_t(vocab + 8)] = 9;      // of row 1, until a bias comes
    values[std::size_t(3 * vocab + 9)] = 9;  // of row 3, until it is penalised
    const Matrix logits(ops(), DType::f32, 4, vocab, values);
    const std::vector<std::pair<int, float>> bias = {{3, 20.0f}, {8, 1.0f}}, penalties = {{9, 20.0f}};
    std::vector<TokenChoice> rows(4);
    rows[0].row = 3;
    rows[0].penalties = penalties;
    rows[0].repetition = 2;
    rows[1].row = 1;
    rows[1].biases = bias;
    rows[2].row = 2;
    rows[3].row = 0;
    rows[3].inverse_temperature = 1;
    rows[3].top_k = 1;
    const Integers ids(ops(), std::vector<int>(4, -7));
    ops().choose(ids.view(), logits.view(), std::span(rows).first(2));  // the others keep what they have
    const int first = ops().begin_read(ids.view());
    ops().choose(ids.view(), logits.view(), std::span(rows).last(2));
    ops().choose(ids.view(), logits.view(), {});  // nobody asks
    const int second = ops().begin_read(ids.view());
    std::vector<int> got(4);
    ops().finish_read(got, first);
    EXPECT_THAT(got, testing::ElementsAre(-7, 3, -7, testing::AllOf(testing::Ge(0), testing::Ne(9))));
    const int third = got[3];
    ops().finish_read(got, second);
    EXPECT_THAT(got, testing::ElementsAre(7, 3, -1, third));
}

INSTANTIATE_TEST_SUITE_P(Ops, Fused, testing::ValuesIn(every_backend()), case_name);

}  // namespace
}  // namespace llmgen::test
