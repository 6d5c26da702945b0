// What the benchmark counts, through the engine itself: sampled ids, whatever their text looks like.
#include <gtest/gtest.h>

#include "app/bench/load.h"
#include "tests/app/checkpoint.h"

namespace llmgen::test {
namespace {

Engine tiny_engine() {
    EngineOptions options;
    options.model = tiny_checkpoint();
    options.device = "cpu";
    options.threads = 1;
    options.max_context = 256;
    return Engine::open(options);
}

Request forty_tokens() {
    Request request;
    request.prompt = TokenIds{1, 2, 3, 4, 5};
    request.sampling.temperature = 0;
    request.max_new_tokens = 40;
    request.ignore_eos = true;
    return request;
}

// A chunk can hold no text (half a character, a held-back stop string) or several tokens. TTFT is the first
// token's time, never the first chunk's or the first text's, and every id counts.
TEST(BenchTokens, TtftIsTheFirstTokenAndEveryIdCounts) {
    Engine engine = tiny_engine();
    Stream stream = engine.submit(forty_tokens());
    std::vector<int> ids;
    int chunks_without_text = 0;
    while (const auto chunk = stream.next()) {
        ids.insert(ids.end(), chunk->token_ids.begin(), chunk->token_ids.end());
        chunks_without_text += chunk->text.empty();
    }
    const Result& result = stream.result();
    EXPECT_EQ(ids.size(), 40u);
    EXPECT_EQ(ids, result.token_ids);
    EXPECT_GT(chunks_without_text, 0) << "the answer was meant to break characters";
    ASSERT_EQ(result.timing.token_times_s.size(), 40u);
    EXPECT_EQ(result.timing.ttft_s, result.timing.token_times_s.front());
    EXPECT_GT(result.timing.ttft_s, 0);
    EXPECT_LE(result.timing.queued_s, result.timing.ttft_s);
}

TEST(BenchTokens, ARecordIsTheEnginesOwnTimes) {
    Engine engine = tiny_engine();
    bool returned_early = false;
    // The answer takes a quarter of a millisecond: whoever submits it may be woken only after it. Were
    // submit() to wait for it, no try would do.
    for (int i = 0; i < 50 && !returned_early; ++i) {
        std::vector<Request> requests;
        requests.push_back(forty_tokens());
        const auto records = bench::drive(std::move(requests), {}, bench::serve_with(engine));
        ASSERT_EQ(records.size(), 1u);
        EXPECT_EQ(records[0].times.n_out(), 40);
        EXPECT_EQ(records[0].times.prompt_tokens, 5);
        EXPECT_EQ(records[0].token_ids.size(), 40u);
        returned_early = records[0].submit_s < records[0].times.e2e_s();
    }
    EXPECT_TRUE(returned_early) << "submit() returns while the work is under way";
}

// Without ignore_eos this model ends by itself: the benchmark must not take such an answer for a fast one.
TEST(BenchTokens, AModelThatStopsEarlyIsAnError) {
    Engine engine = tiny_engine();
    Request request = forty_tokens();
    request.stop_token_ids = {engine.generate(forty_tokens()).token_ids[9]};
    double submit_s = 0;
    const Result result = bench::serve_with(engine)(std::move(request), submit_s);
    ASSERT_LT(result.token_ids.size(), 40u);
    EXPECT_THROW(bench::expect_exact(result, 5, 40, false), Error);
    EXPECT_NO_THROW(bench::expect_exact(result, 5, int(result.token_ids.size()), false));
}

}  // namespace
}  // namespace llmgen::test
