// Requests that run together don't feel each other: not by their number, their place, their faults or the
// pages that they leave behind.
#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>

#include "tests/engine/requests.h"
#include "tests/models/harness.h"

namespace llmgen::test {
namespace {

namespace fs = std::filesystem;

std::vector<int> some_ids(int n, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<int> ids;
    for (int i = 0; i < n; ++i) ids.push_back(int(random() % 200));
    return ids;
}

TEST(Neighbours, LogitsDoNotDependOnTheirNumber) {
    Engine engine = open_engine(data("models/llama"), [](EngineOptions& o) { o.prefix_cache = false; });
    Request watched = greedy(some_ids(21, 1), 12);
    watched.logprobs = 3;
    const Result alone = engine.generate(watched);
    for (const int n : {8, 17}) {
        std::vector<Request> requests;
        for (int i = 1; i < n; ++i) requests.push_back(greedy(some_ids(5 + 3 * i, unsigned(i + 50)), 10 + i));
        requests.insert(requests.begin() + n / 2, watched);
        const Result got = together(engine, requests)[std::size_t(n / 2)];
        ASSERT_EQ(got.token_ids, alone.token_ids);
        for (std::size_t i = 0; i < alone.logprobs.size(); ++i)
            EXPECT_EQ(got.logprobs[i].logit, alone.logprobs[i].logit) << n << " together, token " << i;
    }
}

TEST(Neighbours, ASeedGivesTheSameInEveryPlaceAndBesideUnseededOnes) {
    Engine engine = open_engine(data("models/llama"));
    std::vector<Request> requests;
    std::vector<std::vector<int>> alone;
    for (unsigned i = 0; i < 4; ++i) {
        Request request = greedy(some_ids(10, 7), 20);  // one prompt, four seeds
        request.sampling.temperature = 1.0;
        request.sampling.seed = 1000 + i;
        alone.push_back(engine.generate(request).token_ids);
        requests.push_back(request);
    }
    EXPECT_NE(alone[0], alone[1]);
    std::vector<std::size_t> order = {0, 1, 2, 3};
    do {
        std::vector<Request> permuted;
        for (const std::size_t i : order) {
            permuted.push_back(requests[i]);
            permuted.push_back(greedy(some_ids(6, 9), 9));
            permuted.back().sampling.temperature = 1.0;  // without a seed
        }
        const std::vector<Result> got = together(engine, permuted);
        for (std::size_t place = 0; place < 4; ++place)
            ASSERT_EQ(got[2 * place].token_ids, alone[order[place]]) << "in place " << place;
    } while (std::ranges::next_permutation(order).found);
}

TEST(Neighbours, TheSamePromptTwiceInOneBatch) {
    Engine engine = open_engine(data("models/llama"));
    const std::vector<int> prompt = some_ids(53, 3);
    const std::vector<Result> got = together(engine, std::vector(5, greedy(prompt, 8)));
    Engine plain = open_engine(data("models/llama"), [](EngineOptions& o) { o.prefix_cache = false; });
    const std::vector<int> want = plain.generate(greedy(prompt, 8)).token_ids;
    for (const Result& result : got) EXPECT_EQ(result.token_ids, want);
}

// One row of the embedding is NaN; the head is another matrix, so that only prompts with that id meet it. The
// pages that such a request leaves hold NaN too, beyond what the next owner has written.
TEST(Neighbours, NotANumberEndsOneRequestAndSpoilsNoOther) {
    const fs::path copy = fs::temp_directory_path() / ("llmgen_neighbours_" + std::to_string(getpid()));
    fs::remove_all(copy);
    fs::copy(data("models/llama-bias"), copy);
    {
        Checkpoint checkpoint = Checkpoint::open(copy, known_architectures());
        const TensorInfo& info = checkpoint.info("model.embed_tokens.weight");
        std::fstream file(copy / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
        std::uint64_t header = 0;
        file.read(reinterpret_cast<char*>(&header), 8);
        file.seekp(std::streamoff(8 + header + info.begin + 250 * 32 * 2));
        const std::uint16_t nan = 0x7FC0;
        for (int i = 0; i < 32; ++i) file.write(reinterpret_cast<const char*>(&nan), 2);
    }
    for (const bool cache : {false, true})
        for (const char* compute : {"f32", "bf16"}) {
            SCOPED_TRACE(fmt::format("cache {}, {}", cache, compute));
            Engine engine = open_engine(copy, [&](EngineOptions& o) {
                o.prefix_cache = cache;
                o.compute = compute;
                o.max_context = 128;
                o.kv_memory = 256 * 2 * 2 * 16 * 4;  // so few pages that those of the faulty one come again
            });
            std::vector<Request> requests;
            std::vector<std::vector<int>> alone;
            for (unsigned i = 0; i < 7; ++i) {
                requests.push_back(greedy(some_ids(3 + 7 * int(i), 20 + i), 9));
                alone.push_back(engine.generate(requests.back()).token_ids);
            }
            std::vector<int> faulty(40, 250);
            for (int round = 0; round < 3; ++round) {
                std::vector<Request> mixed = requests;
                mixed.insert(mixed.begin() + 3, greedy(faulty, 9));
                std::vector<Result> got = together(engine, mixed);
                EXPECT_EQ(got[3].finish_reason, FinishReason::error);
                EXPECT_THAT(got[3].error, testing::HasSubstr("non-finite logits at step 0"));
                got.erase(got.begin() + 3);
                for (std::size_t i = 0; i < got.size(); ++i) {
                    EXPECT_EQ(got[i].finish_reason, FinishReason::max_new_tokens)
                        << i << ": " << got[i].error;
                    EXPECT_EQ(got[i].token_ids, alone[i]) << i;
                }
            }
        }
    fs::remove_all(copy);
}

struct History {
    unsigned seed;
    int chunk;
    int max_sequences;
    bool cache;
    bool small;
};

// Random arrivals from several threads, random cancelling, dropped streams; each answer is what it is alone.
void live_through(const History& h) {
    SCOPED_TRACE(fmt::format("seed {}", h.seed));
    constexpr int kThreads = 4, kEach = 12;
    std::mt19937 random(h.seed);
    const auto below = [&](int n) { return int(random() % unsigned(n)); };
    std::vector<Request> requests;
    std::vector<int> fate;  // chunks until it is cancelled, -1: never, -2: dropped at once
    for (int i = 0; i < kThreads * kEach; ++i) {
        std::vector<int> ids = some_ids(1 + below(50), h.seed + unsigned(below(4)));
        if (below(2) == 0) ids.push_back(below(200));
        requests.push_back(greedy(ids, 1 + below(60)));
        Request& request = requests.back();
        request.priority = below(3);
        if (below(2) == 0) request.sampling.temperature = 0.9;
        request.sampling.seed = random();
        if (below(6) == 0) request.cache_salt = "other";
        fate.push_back(below(10) < 3 ? below(20) - 2 : -1);
    }
    std::vector<std::vector<int>> alone;
    {
        Engine engine = open_engine(data("models/llama"), [](EngineOptions& o) { o.prefix_cache = false; });
        for (const Request& request : requests) alone.push_back(engine.generate(request).token_ids);
    }
    Engine engine = open_engine(data("models/llama"), [&](EngineOptions& o) {
        o.prefill_chunk = h.chunk;
        o.max_sequences = h.max_sequences;
        o.prefix_cache = h.cache;
        o.max_context = 128;
        if (h.small) o.kv_memory = 128 * 2 * 2 * 16 * 4;  // eight pages
    });
    const auto live = [&](int thread) {
        std::mt19937 pause(h.seed + unsigned(thread));
        for (int i = thread * kEach; i < (thread + 1) * kEach; ++i) {
            const std::size_t at = std::size_t(i);
            Stream stream = engine.submit(requests[at]);
            if (fate[at] == -2) continue;
            std::this_thread::sleep_for(std::chrono::microseconds(pause() % 300));
            for (int chunks = 0; chunks != fate[at] && stream.next();) ++chunks;
            if (fate[at] >= 0) stream.cancel();
            const Result& got = stream.result();
            std::vector<int> want = alone[at];
            if (got.finish_reason == FinishReason::cancelled)
                want.resize(std::min(want.size(), got.token_ids.size()));
            EXPECT_EQ(got.token_ids, want) << i;
            EXPECT_TRUE(got.finish_reason != FinishReason::cancelled || fate[at] >= 0) << i;
        }
    };
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(live, thread);
    threads.clear();
    for (int i = 0; i < 2000 && engine.stats().pages_used + std::size_t(engine.stats().waiting) > 0; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(engine.stats().running + engine.stats().waiting, 0);
    EXPECT_EQ(engine.stats().pages_used, 0u);
}

TEST(Crowd, RandomHistoriesFromManyThreads) {
    unsigned seed = 100;
    for (const int chunk : {1, 16, 64})
        for (const bool cache : {false, true})
            for (const bool small : {false, true})
                live_through({++seed, chunk, small ? 8 : 3 + int(seed % 5), cache, small});
}

}  // namespace
}  // namespace llmgen::test
