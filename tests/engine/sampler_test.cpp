#include "engine/sampler.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "engine/random.h"
#include "engine/sampling.h"
#include "tests/models/harness.h"

namespace llmgen::test {
namespace {

using Json = nlohmann::json;

SamplingParams params_of(const Json& settings) {
    SamplingParams p;
    p.temperature = settings.value("temperature", 1.0);
    p.top_k = settings.value("top_k", 0);
    p.top_p = settings.value("top_p", 1.0);
    p.min_p = settings.value("min_p", 0.0);
    p.repetition_penalty = settings.value("repetition_penalty", 1.0);
    return p;
}

/// The ids kept for logits [2, 1, 0.5, -1].
std::vector<int> kept(const Json& settings) {
    std::vector<float> logits{2, 1, 0.5f, -1};
    std::vector<int> ids;
    for (const auto& [id, p] : Sampler(params_of(settings)).distribution(logits, std::vector{0}, 1))
        ids.push_back(id);
    return ids;
}

// Known answers of the generator's authors (Random123, kat_vectors: philox4x32 10).
TEST(Random, PhiloxKnownAnswers) {
    EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
              (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    const std::uint32_t f = 0xffffffff;
    EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}),
              (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Random, IsUniform) {
    std::array<int, 16> bins{};
    for (std::uint64_t step = 0; step < 16000; ++step) ++bins[std::size_t(uniform(42, step) * 16)];
    for (const int n : bins) EXPECT_NEAR(n, 1000, 150);
}

TEST(Sampler, TopPKeepsTheFirstAlways) {
    EXPECT_EQ(kept({{"top_p", 0.0}}), (std::vector{0}));
    EXPECT_EQ(kept({{"top_p", 1e-9}}), (std::vector{0}));
    EXPECT_EQ(kept({{"top_p", 0.609}}), (std::vector{0}));
    EXPECT_EQ(kept({{"top_p", 0.61}}), (std::vector{0, 1}));
    EXPECT_EQ(kept({{"top_p", 0.84}}), (std::vector{0, 1, 2}));
    EXPECT_EQ(kept({{"top_p", 1.0}}), (std::vector{0, 1, 2, 3}));
}

TEST(Sampler, TemperatureComesBeforeMinP) {
    EXPECT_EQ(kept({{"min_p", 0.3}}), (std::vector{0, 1}));
    EXPECT_EQ(kept({{"min_p", 0.3}, {"temperature", 3.0}}), (std::vector{0, 1, 2, 3}));
}

TEST(Sampler, TopKKeepsTies) {
    std::vector<float> logits{1, 3, 2, 2, 0};
    EXPECT_EQ(Sampler(params_of({{"top_k", 2}})).distribution(logits, std::vector{0}, 1).size(), 3u);
}

TEST(Sampler, GreedyTakesTheLowestIdOnTiesAndIgnoresTheFilters) {
    SamplingParams p = params_of({{"temperature", 0.0}, {"top_p", 0.9}, {"top_k", 1}});
    std::vector<float> logits{1, 3, 3, 2};
    EXPECT_EQ(Sampler(p).pick(logits, std::vector{0}, 1).id, 1);
}

TEST(Sampler, GreedyAtEveryPlaceOfAVocabulary) {
    // The largest is sought in blocks and lanes: no border of theirs may matter, nor any end of a vocabulary.
    const SamplingParams greedy = params_of({{"temperature", 0.0}});
    const auto pick = [&](std::vector<float> logits) {
        return Sampler(greedy).pick(logits, std::vector{0}, 1).id;
    };
    for (const int vocab : {1, 15, 1024, 1030, 2100})
        for (int at = 0; at < vocab; at += at % 16 < 14 ? 1 : 113) {
            std::vector<float> logits(std::size_t(vocab), -2.0f);
            logits[std::size_t(at)] = -1;
            EXPECT_EQ(pick(logits), at) << "of " << vocab;
            logits.back() = -1;  // a tie
            EXPECT_EQ(pick(logits), at) << "of " << vocab;
            logits[std::size_t(at)] = std::nanf("");
            EXPECT_THROW(pick(logits), Error) << at << " of " << vocab;
        }
}

TEST(Sampler, WhereTheLargestStandsMayBeKnown) {
    const std::vector<float> logits{1, 3, 2, 3, 0};
    const auto pick = [&](const SamplingParams& p, int largest) {
        std::vector<float> row = logits;
        return Sampler(p).pick(row, std::vector{1}, 1, largest).id;
    };
    EXPECT_EQ(pick(params_of({{"temperature", 0.0}}), 1), 1);
    EXPECT_EQ(pick(params_of({{"temperature", 0.0}, {"repetition_penalty", 2.0}}), 1), 3);  // of the prompt's
    for (int seed = 0; seed < 20; ++seed) {
        SamplingParams p = params_of({{"temperature", 1.0}});
        p.seed = std::uint64_t(seed);
        EXPECT_EQ(pick(p, 1), pick(p, -1));
    }
}

TEST(Sampler, TinyTemperaturesDoNotOverflow) {
    for (const double t : {1e-3, 1e-6, 1e-30, 1e-300}) {
        std::vector<float> logits{-3, 1, 1e4f, -1e4f};
        const auto pick = Sampler(params_of({{"temperature", t}})).pick(logits, std::vector{0}, 1);
        EXPECT_EQ(pick.id, 2);
        EXPECT_DOUBLE_EQ(pick.probability, 1);
    }
}

TEST(Sampler, RepetitionOverPromptAndAnswerOncePerId) {
    SamplingParams p;
    p.repetition_penalty = 1.2;
    std::vector<float> logits{2, -1, 0};
    Sampler(p).distribution(logits, std::vector{0, 1, 0, 1, 2}, 3);
    EXPECT_NEAR(logits[0], 1.6667, 1e-4);
    EXPECT_NEAR(logits[1], -1.2, 1e-6);
    EXPECT_EQ(logits[2], 0);
}

TEST(Sampler, PresenceAndFrequencyOverTheAnswerOnly) {
    SamplingParams p;
    p.presence_penalty = 0.5;
    p.frequency_penalty = 0.25;
    std::vector<float> logits{1, 1, 1};
    Sampler sampler(p);
    sampler.distribution(logits, std::vector{0, 0, 1, 1, 1}, 2);
    EXPECT_EQ(logits, (std::vector{1.0f, 1.0f - 0.5f - 0.75f, 1.0f}));
}

TEST(Sampler, LogitBias) {
    SamplingParams p;
    p.temperature = 0;
    p.logit_bias = {{2, 10.0}};
    std::vector<float> logits{1, 2, 0};
    EXPECT_EQ(Sampler(p).pick(logits, std::vector{0}, 1).id, 2);
}

TEST(Sampler, TheLargestSettingsStayFinite) {
    constexpr double kMost = Sampling::kLargestPenalty;
    for (const double repetition : {1 / kMost, kMost})
        for (const double penalty : {-kMost, kMost})
            for (const double temperature : {0.0, 1e-300, 1.0, 1e300}) {
                SamplingParams p;
                p.temperature = temperature;
                p.repetition_penalty = repetition;
                p.presence_penalty = p.frequency_penalty = penalty;
                p.logit_bias = {{0, kMost}, {0, kMost}, {1, -kMost}};
                std::vector<float> logits{1e4f, -1e4f, 3};
                const std::vector<int> seen(100'000, 0);  // counted as often as a context is long
                EXPECT_NO_THROW(Sampler(p).pick(logits, seen, 1));
                for (const float l : logits) EXPECT_TRUE(std::isfinite(l)) << l;
            }
}

TEST(Sampler, NonFiniteLogitsAreAnError) {
    const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
    for (const std::vector<float>& bad : {std::vector{1.0f, nan}, {nan, 1.0f}, {inf, 1.0f}, {-inf, -inf}}) {
        std::vector<float> logits = bad;
        EXPECT_THROW(Sampler(params_of({{"temperature", 0.0}})).pick(logits, std::vector{0}, 1), Error);
        logits = bad;
        EXPECT_THROW(Sampler(SamplingParams()).pick(logits, std::vector{0}, 1), Error);
    }
}

TEST(Sampler, DrawsWhatTheDistributionSays) {
    const std::vector<float> logits{2, 1, 0.5f, -1};
    for (const Json& settings : {Json{{"temperature", 1.0}}, Json{{"top_k", 3}}, Json{{"top_p", 0.9}}}) {
        std::vector<float> row = logits;
        const auto want = Sampler(params_of(settings)).distribution(row, std::vector{0}, 1);
        std::map<int, int> counts;
        for (std::uint64_t seed = 0; seed < 20000; ++seed) {
            SamplingParams p = params_of(settings);
            p.seed = seed;
            row = logits;
            ++counts[Sampler(p).pick(row, std::vector{0}, 1).id];
        }
        for (const auto& [id, probability] : want)
            EXPECT_NEAR(counts[id] / 20000.0, probability, 0.012) << id;
    }
}

TEST(Sampler, LogprobsAreASoftmax) {
    const auto top = top_logprobs(std::vector{2.0f, 1.0f, 0.5f, -1.0f}, 3);
    ASSERT_EQ(top.size(), 3u);
    EXPECT_EQ(top[0].id, 0);
    EXPECT_NEAR(std::exp(top[0].logprob), 0.60946, 1e-5);
    EXPECT_NEAR(std::exp(top[2].logprob), 0.135989, 1e-5);
}

TEST(Sampling, BadParametersAreNamed) {
    const auto message = [](const std::function<void(Sampling&)>& change) -> std::string {
        Sampling s;
        change(s);
        try {
            resolve(s, {}, 100);
        } catch (const UsageError& error) {
            return error.what();
        }
        return "accepted";
    };
    const double nan = std::nan("");
    EXPECT_THAT(message([](Sampling& s) { s.temperature = -1; }), testing::HasSubstr("temperature"));
    EXPECT_THAT(message([&](Sampling& s) { s.temperature = nan; }), testing::HasSubstr("temperature"));
    EXPECT_THAT(message([](Sampling& s) { s.top_p = 2; }), testing::HasSubstr("top_p"));
    EXPECT_THAT(message([&](Sampling& s) { s.top_p = nan; }), testing::HasSubstr("top_p"));
    EXPECT_THAT(message([](Sampling& s) { s.min_p = -0.1; }), testing::HasSubstr("min_p"));
    EXPECT_THAT(message([](Sampling& s) { s.top_k = -2; }), testing::HasSubstr("top_k"));
    EXPECT_THAT(message([](Sampling& s) { s.repetition_penalty = 0; }),
                testing::HasSubstr("repetition_penalty"));
    // Finite in double, not in f32: the model would be blamed for logits that aren't finite.
    for (const double far : {1e308, -1e308, 1e16}) {
        EXPECT_THAT(message([&](Sampling& s) { s.presence_penalty = far; }),
                    testing::HasSubstr("presence_penalty"));
        EXPECT_THAT(message([&](Sampling& s) { s.frequency_penalty = far; }),
                    testing::HasSubstr("frequency_penalty"));
        EXPECT_THAT(message([&](Sampling& s) {
                        s.logit_bias = {{7, far}};
                    }),
                    testing::HasSubstr("logit_bias of id 7"));
    }
    for (const double far : {1e-300, 1e300, 1e-16, nan})
        EXPECT_THAT(message([&](Sampling& s) { s.repetition_penalty = far; }),
                    testing::HasSubstr("repetition_penalty"));
    EXPECT_THAT(message([](Sampling& s) { s.logit_bias = {{100, 1.0}}; }), testing::HasSubstr("100"));
    EXPECT_THAT(message([](Sampling& s) { s.logit_bias = {{-1, 1.0}}; }), testing::HasSubstr("-1"));
    EXPECT_EQ(message([](Sampling& s) { s.top_k = -1; }), "accepted");
    EXPECT_EQ(message([](Sampling& s) { s.top_p = 0; }), "accepted");
}

TEST(Sampling, TheCheckpointDecidesWhetherToSample) {
    GenerationDefaults file;
    file.temperature = 0.6;
    file.repetition_penalty = 1.1;
    EXPECT_TRUE(resolve({}, defaults_of(file), 10).greedy());
    EXPECT_EQ(resolve({}, defaults_of(file), 10).repetition_penalty, 1.1);
    file.do_sample = true;
    EXPECT_EQ(resolve({}, defaults_of(file), 10).temperature, 0.6);
    Sampling request;
    request.top_p = 0.5;
    EXPECT_EQ(resolve(request, {}, 10).temperature, 1);
    request.temperature = 0;
    EXPECT_TRUE(resolve(request, defaults_of(file), 10).greedy());
}

// Probabilities after each transform, as transformers has them, at the end of a real prompt.
void check_case(const std::vector<float>& logits, const std::vector<int>& ids, const Json& c) {
    SCOPED_TRACE(c["settings"].dump());
    std::vector<float> row = logits;
    const auto got = Sampler(params_of(c["settings"])).distribution(row, ids, int(ids.size()));
    if (c.contains("kept")) {
        EXPECT_EQ(got.size(), c["kept"].get<std::size_t>());
    } else {
        EXPECT_EQ(got.size(), c["ids"].size());
    }
    std::map<int, double> by_id(got.begin(), got.end());
    for (std::size_t i = 0; i < c["ids"].size(); ++i) {
        const double want = c["probs"][i];
        EXPECT_NEAR(by_id[c["ids"][i].get<int>()], want, 2e-4 * want + 1e-9) << "id " << c["ids"][i];
    }
}

TEST(Sampler, ProbabilitiesAfterEachTransformAreTheReferences) {
    for (const auto& root : {data("models"), shared("data/tiny")})
        for (const auto& path : checkpoints_under(root)) {
            SCOPED_TRACE(path.filename().string());
            const Json golden = read_json(path / "golden.json");
            const std::vector<int> ids =
                golden["prompts"][golden["sampling_prompt"].get<std::size_t>()]["ids"];
            Harness model(path, "f32");
            const auto logits = model.all_logits(ids).back();
            for (const Json& c : golden["sampling"]) check_case(logits, ids, c);
        }
}

TEST(Sampler, ProbabilitiesOfTheRealModel) {
    const auto path = shared("data/golden/smollm2.json");
    SKIP_WITHOUT(path);
    SKIP_WITHOUT(smollm2() / "model.safetensors");
    const Json golden = read_json(path);
    Harness model(smollm2(), "f32", 512);
    std::map<std::vector<int>, std::vector<float>> seen;
    for (const Json& c : golden["sampling"]) {
        std::vector<int> ids;
        for (const Json& prompt : golden["prompts"])
            if (prompt["name"] == c["prompt"]) {
                ids = prompt["ids"].get<std::vector<int>>();
                const std::vector<int> greedy = prompt["greedy_ids_f32"];
                ids.insert(ids.end(), greedy.begin(), greedy.begin() + c["greedy_ids_appended"].get<int>());
            }
        auto& logits = seen[ids];
        if (logits.empty()) {
            model.greedy(ids, 1);
            logits = model.step_logits().front();
        }
        check_case(logits, ids, c);
    }
}

}  // namespace
}  // namespace llmgen::test
