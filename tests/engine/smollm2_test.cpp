// The real small model behind the engine: many requests at once give each what it gets alone, in f32.
//
// The requests are seeded: mixed lengths, a third greedy, the others with every kind of sampling, many behind
// one of four common beginnings. `engine_test --gtest_also_run_disabled_tests --gtest_filter='smollm2.*'`
// runs all 200 of them (minutes); the ordinary run takes fewer.
#include <gmock/gmock.h>

#include <future>
#include <random>
#include <thread>

#include "llmgen/llmgen.h"
#include "tests/models/harness.h"

namespace llmgen::test {
namespace {

struct Asked {
    Request request;
    int cancel_after = -1;  // chunks, where it is to be cancelled
};

std::vector<Asked> requests(int n, unsigned seed) {
    std::mt19937 random(seed);
    const auto below = [&](int limit) { return int(random() % unsigned(limit)); };
    const auto words = [&](int count) {
        std::vector<int> ids;
        for (int i = 0; i < count; ++i) ids.push_back(100 + below(40000));
        return ids;
    };
    std::vector<std::vector<int>> beginnings;
    for (int i = 0; i < 4; ++i) beginnings.push_back(words(12 + 8 * i));
    std::vector<Asked> all;
    for (int i = 0; i < n; ++i) {
        Asked asked;
        std::vector<int> prompt;
        const bool grows = i % 5 == 2;  // from one page to four: what fills a small pool while it runs
        if (!grows && below(2) == 0) prompt = beginnings[std::size_t(below(4))];
        for (const int id : words(1 + below(grows ? 8 : 16))) prompt.push_back(id);
        Request& request = asked.request;
        request.prompt = prompt;
        request.max_new_tokens = grows ? 48 : 1 + below(12);
        request.ignore_eos = grows || i % 2 == 0;
        request.priority = below(3);
        Sampling& s = request.sampling;
        s.temperature = i % 3 == 0 ? 0.0 : 0.5 + 0.1 * below(10);
        s.seed = random();
        if (i % 3 != 0) {
            if (below(3) == 0) s.top_p = 0.5 + 0.05 * below(10);
            if (below(3) == 0) s.top_k = 1 + below(60);
            if (below(3) == 0) s.min_p = 0.02 * below(10);
        }
        if (below(4) == 0) s.repetition_penalty = 1.1;
        if (below(5) == 0) s.presence_penalty = 0.5;
        if (below(5) == 0) s.frequency_penalty = 0.3;
        if (below(8) == 0) s.logit_bias = {{100 + below(40000), 2.0}};
        if (below(100) < 30) asked.cancel_after = below(6);
        all.push_back(std::move(asked));
    }
    return all;
}

Engine open_f32(const std::function<void(EngineOptions&)>& change) {
    EngineOptions options;
    options.model = smollm2().string();
    options.device = "cpu";
    options.compute = "f32";
    options.threads = 1;
    options.max_context = 512;
    options.max_sequences = 32;
    change(options);
    return Engine::open(options);
}

struct Setting {
    bool small_pool;
    bool cache;
    int chunk;
    bool cancel;
};

/// What happened, so that a test can see that it met what it is about.
struct Seen {
    std::uint64_t preemptions = 0;
    int n_cached = 0;
};

Seen check(const std::vector<Asked>& asked, const std::vector<Result>& alone, const Setting& setting) {
    SCOPED_TRACE(fmt::format("small pool {}, cache {}, chunk {}, cancel {}", setting.small_pool,
                             setting.cache, setting.chunk, setting.cancel));
    Engine engine = open_f32([&](EngineOptions& o) {
        o.prefix_cache = setting.cache;
        o.prefill_chunk = setting.chunk;
        if (!setting.small_pool) return;
        o.max_context = 80;
        o.kv_memory = std::size_t(80) * 30 * 2 * 192 * 4;  // five pages of 30 layers × (k, v) × 192 × f32
    });
    std::vector<std::optional<Stream>> streams(asked.size());
    for (std::size_t i = 0; i < asked.size(); ++i) {
        streams[i].emplace(engine.submit(asked[i].request));
        if (setting.cancel && asked[i].cancel_after == 0) streams[i]->cancel();
    }
    std::vector<std::jthread> cancelling;
    for (std::size_t i = 0; i < asked.size(); ++i)
        if (setting.cancel && asked[i].cancel_after > 0)
            cancelling.emplace_back([&stream = *streams[i], n = asked[i].cancel_after] {
                for (int chunk = 0; chunk < n; ++chunk)
                    if (!stream.next()) return;
                stream.cancel();
            });
    cancelling.clear();
    int n_cached = 0, n_cancelled = 0;
    for (std::size_t i = 0; i < asked.size(); ++i) {
        const Result& got = streams[i]->result();
        std::vector<int> want = alone[i].token_ids;
        n_cached += got.cached_tokens;
        if (got.finish_reason == FinishReason::cancelled) {
            ++n_cancelled;
            EXPECT_TRUE(setting.cancel && asked[i].cancel_after >= 0) << i;
            EXPECT_LE(got.token_ids.size(), want.size()) << i;
            want.resize(std::min(want.size(), got.token_ids.size()));
        } else {
            EXPECT_EQ(got.finish_reason, alone[i].finish_reason) << i;
            EXPECT_EQ(got.text, alone[i].text) << i;
        }
        EXPECT_EQ(got.token_ids, want) << i;
    }
    const EngineStats stats = engine.stats();
    EXPECT_EQ(stats.running, 0);
    EXPECT_EQ(stats.pages_used, 0u);
    EXPECT_TRUE(setting.cache || n_cached == 0);
    EXPECT_EQ(n_cancelled > 0, setting.cancel);
    std::printf(
        "  pool %s, cache %-3s, chunk %2d: %llu steps, %llu preemptions, %d tokens from the cache, %d "
        "cancelled\n",
        setting.small_pool ? "small" : "large", setting.cache ? "on" : "off", setting.chunk,
        static_cast<unsigned long long>(stats.steps), static_cast<unsigned long long>(stats.preemptions),
        n_cached, n_cancelled);
    std::fflush(stdout);
    return {stats.preemptions, n_cached};
}

void check_all(int n, unsigned seed, const std::vector<Setting>& settings) {
    const std::vector<Asked> asked = requests(n, seed);
    std::vector<Result> alone;
    {
        Engine engine = open_f32([](EngineOptions& o) { o.prefix_cache = false; });
        for (const Asked& a : asked) alone.push_back(engine.generate(a.request));
    }
    EXPECT_EQ(check(asked, alone, {false, true, 512, false}).preemptions, 0u);
    Seen all;
    for (const Setting& setting : settings) {
        const Seen seen = check(asked, alone, setting);
        all.preemptions += seen.preemptions;
        all.n_cached += seen.n_cached;
    }
    EXPECT_GT(all.preemptions, 0u);
    EXPECT_GT(all.n_cached, 0);
}

TEST(smollm2, ManyRequestsGiveWhatEachGivesAlone) {
    SKIP_WITHOUT(smollm2() / "model.safetensors");
    check_all(20, 1, {{true, false, 64, true}, {true, true, 1, false}, {true, true, 16, true}});
}

TEST(smollm2, DISABLED_TwoHundredRequestsGiveWhatEachGivesAlone) {
    SKIP_WITHOUT(smollm2() / "model.safetensors");
    std::vector<Setting> settings = {{false, true, 64, true}};
    for (const bool cache : {false, true})
        for (const int chunk : {1, 16, 64})
            for (const bool cancel : {false, true}) settings.push_back({true, cache, chunk, cancel});
    check_all(200, 2, settings);
}

}  // namespace
}  // namespace llmgen::test
