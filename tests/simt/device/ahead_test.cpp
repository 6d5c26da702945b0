// Decode steps that are enqueued before the ids of the last one were read: whoever ends, comes, is cancelled
// or preempted meanwhile, the answers are those of the CPU, and nothing is kept of the token computed too
// many.
#include <gtest/gtest.h>

#include "llmgen/llmgen.h"
#include "simt/fake/fake_cuda.h"
#include "tests/engine/requests.h"
#include "tests/support.h"

namespace llmgen::test {
namespace {

using simt::FakeCuda;

using Change = std::function<void(EngineOptions&)>;

Engine on_cpu(const Change& change = {}) { return open_engine(data("models/llama"), change); }
Engine on_device(const Change& change = {}) {
    return open_engine(data("models/llama"), [&](EngineOptions& o) {
        o.device = "cuda";
        if (change) change(o);
    });
}

TokenIds some_ids(int n, int seed) {
    TokenIds ids;
    for (int i = 0; i < n; ++i) ids.push_back((seed * 61 + i * i * 7 + i * 13) % 250 + 3);
    return ids;
}

void expect_same(const Result& got, const Result& want) {
    EXPECT_EQ(got.error, want.error);
    EXPECT_EQ(got.token_ids, want.token_ids);
    EXPECT_EQ(got.text, want.text);
    EXPECT_EQ(got.finish_reason, want.finish_reason);
    EXPECT_EQ(got.stop_token_id, want.stop_token_id);
    EXPECT_EQ(got.stop_string, want.stop_string);
    EXPECT_EQ(got.timing.token_times_s.size(), want.token_ids.size());
}

TEST(Ahead, TheNextStepIsEnqueuedBeforeTheLastIdsAreRead) {
    Engine engine = on_device();
    const std::size_t before = FakeCuda::get().n_calls("waited with kernels behind");
    const Result got = engine.generate(greedy(some_ids(7, 1), 12));
    // The prompt's step and the first of one row wait; of the eleven decode steps all but the last are
    // followed before they are read.
    EXPECT_EQ(engine.stats().steps_ahead, 10u);
    EXPECT_EQ(engine.stats().steps, 12u);
    EXPECT_EQ(FakeCuda::get().n_calls("waited with kernels behind"), before + 10);
    Engine cpu = on_cpu();
    expect_same(got, cpu.generate(greedy(some_ids(7, 1), 12)));
    EXPECT_EQ(cpu.stats().steps_ahead, 0u);
    EXPECT_EQ(cpu.stats().steps, 12u);
}

/// At least `n` bytes of the text from `from` on, no character cut.
std::string whole_characters(const std::string& text, std::size_t from, std::size_t n) {
    const auto next = [&](std::size_t at) {
        while (at < text.size() && (text[at] & 0xc0) == 0x80) ++at;
        return at;
    };
    const std::size_t begin = next(from), end = next(std::min(text.size(), begin + n));
    return text.substr(begin, end - begin);
}

/// Requests that end in every way, each a little later than the one before.
std::vector<Request> mixed(Engine& cpu) {
    std::vector<Request> requests;
    for (int i = 0; i < 9; ++i) requests.push_back(greedy(some_ids(3 + 5 * i, i), 10 + i));
    for (const std::size_t i : {1, 4, 7}) {  // by an end of sequence in the middle
        const TokenIds answer = cpu.generate(requests[i]).token_ids;
        requests[i].stop_token_ids = {answer[4 + i / 2]};
    }
    for (const std::size_t i : {2, 5}) {  // by text
        const std::string text = cpu.generate(requests[i]).text;
        if (text.size() > 6) requests[i].stop = {whole_characters(text, text.size() / 2, 2)};
    }
    return requests;
}

TEST(Ahead, WhoEndsInTheMiddleGetsNothingMoreAndLeavesNothing) {
    Engine cpu = on_cpu();
    const std::vector<Request> requests = mixed(cpu);
    Engine fresh = on_cpu();
    std::vector<Result> want;
    for (const Request& request : requests) want.push_back(fresh.generate(request));
    for (const simt::Moment moment : {simt::Moment::latest, simt::Moment::random}) {
        SCOPED_TRACE(testing::Message() << "moment " << int(moment));
        Engine device = on_device();
        FakeCuda::get().card.moment = moment;
        const std::vector<Result> got = together(device, requests);
        for (std::size_t i = 0; i < got.size(); ++i) {
            SCOPED_TRACE(testing::Message() << "request " << i);
            expect_same(got[i], want[i]);
        }
        const EngineStats stats = device.stats();
        EXPECT_GT(stats.steps_ahead, 6u);
        EXPECT_EQ(stats.pages_used, 0u);
        // What the cache holds is what was accepted, here as there: a second turn finds as much of it, and
        // goes on as there. Whoever ended early left a page that the token too many had been written to.
        for (std::size_t i = 0; i < want.size(); i += 3) {
            Request second = requests[i];
            TokenIds& ids = std::get<TokenIds>(second.prompt);
            ids.insert(ids.end(), want[i].token_ids.begin(), want[i].token_ids.end());
            for (const int id : some_ids(9, 70)) ids.push_back(id);
            second.stop.clear();
            second.stop_token_ids.clear();
            Engine other = on_cpu();
            other.generate(requests[i]);
            const Result turn = other.generate(second), here = device.generate(second);
            expect_same(here, turn);
            EXPECT_EQ(here.cached_tokens, turn.cached_tokens);
        }
    }
}

// Sampled ids against the engine's own sampler over the same device's logits; penalties depend on the last
// token and wait for it.
TEST(Ahead, SeedsBiasesAndPenalties) {
    Engine device = on_device();
    std::vector<Request> requests;
    for (int i = 0; i < 4; ++i) {
        Request& request = requests.emplace_back(greedy(some_ids(5 + i, 20 + i), 9));
        request.sampling.temperature = 0.7 + 0.3 * i;
        request.sampling.seed = std::uint64_t(40 + i);
        if (i == 2) request.sampling.logit_bias = {{7, 2.0}, {9, -1.0}};
        if (i == 3) request.sampling.top_p = 0.9;
    }
    std::vector<Result> want;
    for (Request request : requests) {
        request.logprobs = 0;  // the logits come to the host
        want.push_back(device.generate(request));
    }
    EXPECT_EQ(device.stats().steps_ahead, 0u);
    const std::vector<Result> got = together(device, requests);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].token_ids, want[i].token_ids) << i;
    const std::uint64_t ahead = device.stats().steps_ahead;
    EXPECT_GE(ahead, 7u);

    Request penalised = greedy(some_ids(5, 3), 9);
    penalised.sampling.repetition_penalty = 1.4;
    penalised.sampling.frequency_penalty = 0.3;
    Engine cpu = on_cpu();
    expect_same(device.generate(penalised), cpu.generate(penalised));
    EXPECT_EQ(device.stats().steps_ahead, ahead);
}

TEST(Ahead, ALongPromptJoinsInChunksAndOneIsCancelled) {
    const auto small_chunks = [](EngineOptions& o) {
        o.prefill_chunk = 16;
        o.prefix_cache = false;
    };
    Engine cpu = on_cpu(small_chunks), device = on_device(small_chunks);
    const Request first = greedy(some_ids(6, 5), 60), second = greedy(some_ids(50, 6), 12),
                  third = greedy(some_ids(4, 7), 200);
    Stream stream = device.submit(first), cancelled = device.submit(third);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(stream.next());
    Stream joins = device.submit(second);
    Request better =
        greedy(TokenIds{9}, 7);  // its first step looks like a decode, and it runs before the others
    better.priority = 5;
    Stream overtakes = device.submit(better);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(joins.next());
    cancelled.cancel();
    const Result want = cpu.generate(third), got = cancelled.result();
    EXPECT_EQ(got.finish_reason, FinishReason::cancelled);
    ASSERT_LT(got.token_ids.size(), want.token_ids.size());
    EXPECT_TRUE(std::equal(got.token_ids.begin(), got.token_ids.end(), want.token_ids.begin()));
    expect_same(joins.result(), cpu.generate(second));
    expect_same(overtakes.result(), cpu.generate(better));
    expect_same(stream.result(), cpu.generate(first));
    EXPECT_EQ(device.stats().pages_used, 0u);
    EXPECT_GT(device.stats().steps_ahead, 10u);
}

TEST(Ahead, PagesRunShort) {
    const auto few_pages = [](EngineOptions& o) {
        o.max_context = 96;
        o.kv_memory = 11 * 16 * 2 * 2 * 2 * 8 * 4;  // of 16 tokens, 2 layers, k and v, 2 heads of 8, f32
    };
    Engine cpu = on_cpu(few_pages), device = on_device(few_pages);
    std::vector<Request> requests;
    for (int i = 0; i < 4; ++i) requests.push_back(greedy(some_ids(14 + i, 30 + i), 40));
    const std::vector<Result> got = together(device, requests);
    for (std::size_t i = 0; i < got.size(); ++i) expect_same(got[i], cpu.generate(requests[i]));
    EXPECT_GT(device.stats().preemptions, 0u);
    EXPECT_GT(device.stats().steps_ahead, 20u);
    EXPECT_EQ(device.stats().pages_used, 0u);
}

// The device fails in a step that ran ahead: everyone learns of it, and a cancel afterwards finds nobody.
TEST(Ahead, AFaultEndsAll) {
    Engine device = on_device();
    Stream one = device.submit(greedy(some_ids(5, 1), 200)), two = device.submit(greedy(some_ids(6, 2), 200));
    for (int i = 0; i < 6; ++i) ASSERT_TRUE(one.next());
    FakeCuda::get().fail_call("cudaGraphLaunch", cudaErrorLaunchFailure);
    EXPECT_EQ(one.result().finish_reason, FinishReason::error);
    two.cancel();
    EXPECT_NE(two.result().error, "");
    EXPECT_THROW(device.submit(greedy(some_ids(5, 1), 2)), std::exception);
}

}  // namespace
}  // namespace llmgen::test
