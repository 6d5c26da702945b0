// Paged attention against f64, over head sizes, groups, windows, ragged batches and chunks.
#include "attention_case.h"

namespace llmgen::test {
namespace {

class AttentionBackend : public EveryBackend {
protected:
    void expect_exact(const AttentionCase& c,
                      const std::vector<float>& got,
                      const std::vector<int>& begin,
                      const std::vector<int>& end) {
        std::vector<double> want, bound;
        for (std::size_t s = 0; s < begin.size(); ++s)
            for (int position = begin[s]; position < end[s]; ++position) c.exact(s, position, want, bound);
        expect_within(got, want, bound);
    }
};

// One token alone; below, at and above a page and a block of keys; every ratio of heads.
const HeadShape kHeads[] = {{1, 1, 64, 0},  {9, 3, 64, 0},  {4, 4, 80, 0},   {6, 2, 96, 0},
                            {8, 1, 128, 0}, {2, 1, 256, 0}, {4, 2, 32, 0},   {7, 1, 16, 0},
                            {14, 2, 64, 0}, {3, 3, 8, 0},   {2, 2, 10, 0},   {9, 3, 64, 1},
                            {9, 3, 64, 5},  {4, 2, 32, 16}, {4, 2, 32, 100}, {8, 2, 128, 129}};

TEST_P(AttentionBackend, PrefillOfRaggedSequences) {
    for (const HeadShape& heads : kHeads) {
        SCOPED_TRACE(testing::Message() << heads.n_heads << "/" << heads.n_kv_heads << " heads of "
                                        << heads.head_dim << ", window " << heads.window);
        AttentionCase c(ops(), act(), heads, {1, 16, 17, 40, 150}, 7);
        const std::vector<int> begin(5, 0);
        expect_exact(c, c.step(begin, c.contexts()), begin, c.contexts());
    }
}

TEST_P(AttentionBackend, DecodeBesideChunks) {
    for (const HeadShape& heads : kHeads) {
        SCOPED_TRACE(testing::Message() << heads.n_heads << "/" << heads.n_kv_heads << " heads of "
                                        << heads.head_dim << ", window " << heads.window);
        const std::vector<int> contexts = {130, 1, 33, 290, 64};
        AttentionCase c(ops(), act(), heads, contexts, 8);
        const std::vector<int> none(5, 0), begin = {129, 0, 20, 289, 61};
        c.step(none, begin);  // a sequence with nothing new yet has 0 tokens
        expect_exact(c, c.step(begin, contexts), begin, contexts);
    }
}

TEST_P(AttentionBackend, LongContextDecode) {
    AttentionCase c(ops(), act(), {6, 2, 64, 0}, {1000, 385}, 9);
    const std::vector<int> none(2, 0), begin = {999, 384};
    c.step(none, begin);
    expect_exact(c, c.step(begin, c.contexts()), begin, c.contexts());
}

TEST_P(AttentionBackend, ScoresFarApartDoNotOverflow) {
    AttentionCase c(ops(), act(), {4, 2, 32, 0}, {200}, 10, 100.0f);
    const auto got = c.step({0}, {200});
    for (const float v : got) ASSERT_TRUE(std::isfinite(v));
    if (act() == DType::f32) expect_exact(c, got, {0}, {200});
}

TEST_P(AttentionBackend, ChunksAndSingleTokensGiveTheSameBits) {
    if (!GetParam().exact_rows) GTEST_SKIP() << "bounded, not bit-equal, on this backend";
    for (const HeadShape& heads : {HeadShape{9, 3, 64, 0}, HeadShape{4, 1, 80, 50}}) {
        const int n = 160;
        const auto run = [&](int chunk) {
            AttentionCase c(ops(), act(), heads, {n}, 12);
            std::vector<float> all;
            for (int begin = 0; begin < n; begin += chunk) {
                const auto part = c.step({begin}, {std::min(begin + chunk, n)});
                all.insert(all.end(), part.begin(), part.end());
            }
            return all;
        };
        const auto whole = run(n);
        EXPECT_TRUE(bit_equal(whole, run(7)));
        EXPECT_TRUE(bit_equal(whole, run(1)));
        EXPECT_TRUE(bit_equal(whole, run(128)));
    }
}

TEST_P(AttentionBackend, NeighboursChangeNothing) {
    if (!GetParam().exact_rows) GTEST_SKIP() << "bounded, not bit-equal, on this backend";
    const HeadShape heads{9, 3, 64, 0};
    // The same seed gives sequence 0 the same values whatever follows it.
    AttentionCase alone(ops(), act(), heads, {200}, 13), crowded(ops(), act(), heads, {200, 31, 500, 1}, 13);
    alone.step({0}, {199});
    crowded.step({0, 0, 0, 0}, {199, 10, 499, 0});
    const auto a = alone.step({199}, {200});
    auto b = crowded.step({199, 10, 499, 0}, {200, 31, 500, 1});
    b.resize(a.size());
    EXPECT_TRUE(bit_equal(a, b));
}

// The last of a prompt, several of one, the first alone, none of a sequence.
TEST_P(AttentionBackend, WantedRowsAreThoseOfAll) {
    if (!GetParam().exact_rows) GTEST_SKIP() << "bounded, not bit-equal, on this backend";
    for (const HeadShape& heads : {HeadShape{9, 3, 64, 0}, HeadShape{4, 1, 80, 50}}) {
        const std::vector<int> begin = {0, 3, 0, 129}, end = {150, 40, 17, 290};
        for (const std::vector<int>& wanted : {std::vector<int>{149}, {20, 149, 150, 203}, {186, 364}}) {
            AttentionCase c(ops(), act(), heads, end, 14);
            c.step({0, 0, 0, 0}, {0, 3, 0, 129});
            const int width = heads.attention().q_width();
            const std::vector<float> all = c.step(begin, end);
            std::vector<float> want;
            for (const int row : wanted)
                want.insert(want.end(), all.begin() + row * width, all.begin() + (row + 1) * width);
            EXPECT_TRUE(bit_equal(c.step(begin, end, wanted), want));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Attention, AttentionBackend, testing::ValuesIn(every_backend()), case_name);

}  // namespace
}  // namespace llmgen::test
