// The metric arithmetic, from token times that can be checked by hand.
#include <gtest/gtest.h>

#include "app/bench/metrics.h"

namespace llmgen::bench {
namespace {

RequestTimes times(std::vector<double> token_times, double arrival = 0, int prompt = 10, double queued = 0) {
    RequestTimes t;
    t.token_times_s = std::move(token_times);
    t.arrival_s = arrival;
    t.prompt_tokens = prompt;
    t.queued_s = queued;
    return t;
}

TEST(BenchMetrics, OneRequest) {
    // The example that the design's cases quote: 4 tokens at 0.5, 0.52, 0.54 and 0.6 s.
    const RequestTimes t = times({0.5, 0.52, 0.54, 0.6});
    EXPECT_DOUBLE_EQ(t.ttft_s(), 0.5);
    EXPECT_NEAR(t.tpot_s(), 0.1 / 3, 1e-15);
    const auto itl = t.itl_s();
    ASSERT_EQ(itl.size(), 3u);
    EXPECT_NEAR(itl[0], 0.02, 1e-12);
    EXPECT_NEAR(itl[1], 0.02, 1e-12);
    EXPECT_NEAR(itl[2], 0.06, 1e-12);
    const RunMetrics m = measure({t});
    EXPECT_NEAR(m.decode_tokens_per_s, 30, 1e-9);       // 3 tokens in 0.1 s: the prompt isn't output
    EXPECT_NEAR(m.output_tokens_per_s, 4 / 0.6, 1e-9);  // 6.67
    EXPECT_NEAR(m.total_tokens_per_s, 14 / 0.6, 1e-9);  // the prompt's tokens apart
    EXPECT_NEAR(m.requests_per_s, 1 / 0.6, 1e-9);
    EXPECT_NEAR(m.prefill_tokens_per_s, 20, 1e-9);  // 10 tokens in 0.5 s
    EXPECT_NEAR(m.mean_concurrency, 1, 1e-12);
    EXPECT_NEAR(m.mean_decoding, 1, 1e-12);
}

TEST(BenchMetrics, OneTokenHasNoTpot) {
    const RunMetrics m = measure({times({0.25})});
    EXPECT_EQ(m.tpot.n, 0);
    EXPECT_EQ(m.itl.n, 0);
    EXPECT_EQ(m.ttft.n, 1);
    EXPECT_DOUBLE_EQ(m.e2e.median, 0.25);
    EXPECT_DOUBLE_EQ(m.decode_tokens_per_s, 0);
    // Beside a longer answer it is left out of the TPOT, not counted as 0.
    EXPECT_DOUBLE_EQ(measure({times({0.25}), times({0.25, 0.5})}).tpot.median, 0.25);
}

TEST(BenchMetrics, QueueCountsInTtftAndNotInPrefill) {
    const RunMetrics m = measure({times({1.5, 2.0}, 0, 100, 1.0)});
    EXPECT_DOUBLE_EQ(m.ttft.median, 1.5);
    EXPECT_DOUBLE_EQ(m.queued.median, 1.0);
    EXPECT_DOUBLE_EQ(m.prefill_tokens_per_s, 200);
}

TEST(BenchMetrics, PrefillOfABatchCountsEachMomentOnce) {
    // Four prompts of 100 tokens computed together, first tokens at 0.5, 0.6, 0.7 and 0.8 s: 400 tokens in
    // 0.8 s, not a mean of each one's own pace.
    const RunMetrics m = measure(
        {times({0.5, 1}, 0, 100), times({0.6, 1}, 0, 100), times({0.7, 1}, 0, 100), times({0.8, 1}, 0, 100)});
    EXPECT_NEAR(m.prefill_tokens_per_s, 500, 1e-9);
    // What came from the cache was not computed, and time in the queue is not computing.
    RequestTimes cached = times({1.5, 2}, 0, 100, 1.0);
    cached.cached_tokens = 50;
    EXPECT_NEAR(measure({cached}).prefill_tokens_per_s, 100, 1e-9);
}

TEST(BenchMetrics, TwoRequestsThatOverlap) {
    // a: 0 … 3 s, tokens at 1, 2, 3.   b: arrives at 1, tokens at 2, 3, 4 (since the run's begin).
    const RunMetrics m = measure({times({1, 2, 3}), times({1, 2, 3}, 1)});
    EXPECT_DOUBLE_EQ(m.wall_s, 4);
    EXPECT_DOUBLE_EQ(m.output_tokens_per_s, 1.5);
    EXPECT_DOUBLE_EQ(m.requests_per_s, 0.5);
    EXPECT_DOUBLE_EQ(m.mean_concurrency, 1.5);           // 3 s + 3 s in flight over 4 s
    EXPECT_DOUBLE_EQ(m.decode_tokens_per_s, 4.0 / 3.0);  // 2 + 2 tokens; somebody decodes from 1 to 4
    EXPECT_DOUBLE_EQ(m.mean_decoding, 4.0 / 3.0);        // 2 s + 2 s of those 3
}

TEST(BenchMetrics, TimeInWhichNobodyDecodesDoesNotCount) {
    const RunMetrics m = measure({times({1, 2}), times({1, 2}, 10)});
    EXPECT_DOUBLE_EQ(m.decode_tokens_per_s, 1);
    EXPECT_DOUBLE_EQ(m.mean_decoding, 1);  // so a step's floor is that of one sequence, not of two
    EXPECT_DOUBLE_EQ(m.wall_s, 12);
}

TEST(BenchMetrics, WallBeginsAtTheFirstArrival) {
    EXPECT_DOUBLE_EQ(measure({times({1}, 5), times({1}, 3)}).wall_s, 3);
}

TEST(BenchMetrics, Percentiles) {
    EXPECT_DOUBLE_EQ(percentile({7}, 0.99), 7);
    EXPECT_DOUBLE_EQ(percentile({1, 2, 3, 4}, 0.5), 2.5);
    EXPECT_DOUBLE_EQ(percentile({1, 2, 3, 4}, 0), 1);
    EXPECT_DOUBLE_EQ(percentile({1, 2, 3, 4}, 1), 4);
    std::vector<double> hundred;
    for (int i = 1; i <= 101; ++i) hundred.push_back(i);
    EXPECT_DOUBLE_EQ(percentile(hundred, 0.9), 91);
    EXPECT_DOUBLE_EQ(percentile(hundred, 0.99), 100);
}

TEST(BenchMetrics, SummaryOfUnsortedValues) {
    const Summary s = summarize({4, 1, 3, 2});
    EXPECT_EQ(s.n, 4);
    EXPECT_DOUBLE_EQ(s.mean, 2.5);
    EXPECT_NEAR(s.stdev, 1.2909944487358056, 1e-12);  // of a sample: sqrt(5 / 3)
    EXPECT_DOUBLE_EQ(s.min, 1);
    EXPECT_DOUBLE_EQ(s.max, 4);
    EXPECT_EQ(summarize({}).n, 0);
    EXPECT_DOUBLE_EQ(summarize({3}).stdev, 0);
}

TEST(BenchMetrics, SpreadIsBetweenRepetitions) {
    // Medians of 1 and 3 s: what differs between runs is 1 and 3, whatever lies inside each.
    const PointMetrics p = pool({{times({1}), times({1}), times({9})}, {times({3}), times({3}), times({3})}});
    EXPECT_EQ(p.ttft_medians.n, 2);
    EXPECT_DOUBLE_EQ(p.ttft_medians.mean, 2);
    EXPECT_NEAR(p.ttft_medians.stdev, 1.4142135623730951, 1e-12);
    EXPECT_EQ(p.pooled.ttft.n, 6);
    EXPECT_DOUBLE_EQ(p.pooled.ttft.median, 3);
    EXPECT_EQ(p.pooled.requests, 6);
}

TEST(BenchMetrics, ManyTokensAtOneTime) {
    // Two tokens of one step (speculation): a gap of 0 is a gap.
    const RunMetrics m = measure({times({1, 1, 2})});
    EXPECT_EQ(m.itl.n, 2);
    EXPECT_DOUBLE_EQ(m.itl.min, 0);
    EXPECT_DOUBLE_EQ(m.tpot.median, 0.5);
}

}  // namespace
}  // namespace llmgen::bench
