// The threads of the CPU backend: every thread is there for each loop, inside a step and outside; and a whole
// step gives the bits of its single ops.
#include <atomic>
#include <stdexcept>

#include "backends.h"
#include "ops/cpu/team.h"

namespace llmgen::test {
namespace {

/// Rounds of writing one's own value and, past a barrier, reading the next thread's.
void pass_round(cpu::Team& team, int rounds) {
    for (int round = 0; round < rounds; ++round) {
        std::vector<int> given(std::size_t(team.size()), -1), taken = given;
        team.run([&](int self, int n) {
            ASSERT_EQ(n, team.size());
            given[std::size_t(self)] = 10 * round + self;
            team.barrier();
            taken[std::size_t(self)] = given[std::size_t((self + 1) % n)];
        });
        for (int self = 0; self < team.size(); ++self)
            EXPECT_EQ(taken[std::size_t(self)], 10 * round + (self + 1) % team.size());
    }
}

TEST(Team, ThreadsMeetInsideStepsAndOutside) {
    for (const int threads : {1, 2, 3, 5}) {
        cpu::Team team(threads);
        pass_round(team, 3);
        for (int step = 0; step < 3; ++step) {
            EXPECT_EQ(team.step([&] {
                pass_round(team, 40);
                return step;
            }),
                      step);
            pass_round(team, 3);
        }
    }
}

TEST(Team, RangesCoverEachIndexOnce) {
    for (const int threads : {1, 3})
        for (const std::int64_t n : {0, 1, 2, 3, 7, 64}) {
            cpu::Team team(threads);
            std::vector<std::atomic<int>> seen(static_cast<std::size_t>(n));
            const auto count = [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t i = begin; i < end; ++i) ++seen[std::size_t(i)];
            };
            team.ranges(n, count);
            team.step([&] {
                team.ranges(n, count);
                return 0;
            });
            for (const auto& times : seen) EXPECT_EQ(times, 2);
        }
}

TEST(Team, WhatAStepThrowsPassesThroughAndTheTeamGoesOn) {
    cpu::Team team(3);
    EXPECT_THROW(team.step([&]() -> int {
        pass_round(team, 2);
        throw std::runtime_error("no memory");
    }),
                 std::runtime_error);
    pass_round(team, 2);
    EXPECT_EQ(team.step([&] { return team.step([] { return 7; }); }), 7);
}

class Step : public EveryBackend {};

/// Norm, products, the gate and attention over a context long enough to be split; of one row and of more.
TEST_P(Step, SameBitsAsItsOps) {
    constexpr int kWidth = 192, kContext = 400, kPages = kContext / kPageSize;
    const AttentionShape shape{
        .n_heads = 6, .n_kv_heads = 2, .head_dim = 32, .rotary_dim = 32, .scale = 0.2f};
    if (ops().records_steps()) GTEST_SKIP() << "steps of its own";
    ops().reserve(shape, 16, 16, kContext);
    const auto weight = [&](int out, int in) {
        const std::vector<char> bytes =
            encode(DType::bf16, Random(std::uint64_t(out)).values(out * in, 0.1f));
        const Tensor part = host_view(bytes, DType::bf16, {out, in});
        return ops().make_weight({&part, 1});
    };
    const Weight up = weight(512, kWidth), down = weight(kWidth, 256);
    const Vector norm = make_vector(ops(), Random(4).values(kWidth));
    const int block = 2 * kPageSize * 32;
    const Matrix k(ops(), act(), kPages, block, rounded(act(), Random(5).values(kPages * block)));
    const Matrix v(ops(), act(), kPages, block, rounded(act(), Random(6).values(kPages * block)));
    const auto pages_of = [&](const Matrix& m) {
        return Tensor(m.view().data, act(), {kPages, 2, kPageSize, 32});
    };
    std::vector<int> table(kPages);
    for (int i = 0; i < kPages; ++i) table[std::size_t(i)] = i;
    const Integers pages(ops(), table), context(ops(), {kContext});
    for (const int n : {1, 5}) {
        const Integers first(ops(), {0, n});
        Batch batch;
        batch.first_token = batch.slots = first.view();  // nothing is stored
        batch.context_len = context.view();
        batch.page_table = Tensor(pages.view().data, DType::i32, {1, kPages});
        const auto run = [&](bool whole) {
            const Matrix x(ops(), DType::f32, n, kWidth, Random(7).values(n * kWidth));
            const Matrix h(ops(), act(), n, kWidth), gate(ops(), act(), n, 256);
            const auto enqueue = [&] {
                for (int layer = 0; layer < 3; ++layer) {
                    ops().attention(h.view(), x.view(), {pages_of(k), pages_of(v)}, batch, shape);
                    ops().norm_linear_swiglu(gate.view(), {h.view(), x.view(), norm, 1e-5f}, up);
                    ops().linear_add(x.view(), gate.view(), down);
                }
                return x.view();
            };
            EXPECT_EQ((whole ? ops().step(0, enqueue) : enqueue()).data, x.view().data);
            return x.values();
        };
        const std::vector<float> single = run(false);
        for (int again = 0; again < 20; ++again) EXPECT_TRUE(bit_equal(run(true), single)) << n << " rows";
    }
}

INSTANTIATE_TEST_SUITE_P(Backends, Step, testing::ValuesIn(every_backend()), case_name);

}  // namespace
}  // namespace llmgen::test
