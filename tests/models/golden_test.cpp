// Every checkpoint with a golden.json against transformers' numbers: greedy ids and logits in f32, distance
// from f32 in bf16. golden.json is described where it comes from: tests/data/models/make.py, and the README
// beside the shared ones, which have the same fields.
#include <cmath>

#include "tests/models/harness.h"

namespace llmgen::test {
namespace {

using Json = nlohmann::json;

struct Golden {
    std::string name;
    std::filesystem::path checkpoint;
    std::filesystem::path golden;
};

std::vector<Golden> goldens() {
    std::vector<Golden> all;
    for (const auto& root : {data("models"), shared("data/tiny")})
        for (const auto& path : checkpoints_under(root))
            all.push_back({path.filename().string(), path, path / "golden.json"});
    const auto golden = shared("data/golden/smollm2.json");
    if (std::filesystem::exists(golden) && std::filesystem::exists(smollm2()))
        all.push_back({"smollm2", smollm2(), golden});
    return all;
}

class GoldenTest : public testing::TestWithParam<Golden> {
protected:
    void SetUp() override { golden_ = read_json(GetParam().golden); }
    Json golden_;
};

// 2e-4 relative, but to a logit's own size only where that is above 1: near zero the sums that cancel decide.
void expect_logits(const std::vector<float>& got, const Json& want) {
    for (std::size_t i = 0; i < want["ids"].size(); ++i) {
        const int id = want["ids"][i];
        const double value = want["values"][i];
        EXPECT_NEAR(got[std::size_t(id)], value, 2e-4 * std::max(1.0, std::abs(value))) << "logit of " << id;
    }
}

TEST_P(GoldenTest, GreedyIdsAndLogitsInF32) {
    Harness model(GetParam().checkpoint, "f32");
    std::vector<std::vector<int>> prompts, want;
    std::vector<int> lengths;
    std::vector<Json> logits;
    for (const Json& prompt : golden_["prompts"]) {
        if (prompt["ids"].empty()) continue;
        prompts.push_back(prompt["ids"]);
        want.push_back(prompt["greedy_ids_f32"]);
        lengths.push_back(int(want.back().size()));
        logits.push_back(prompt["logits_last"]);
    }
    const auto got = model.greedy(prompts, lengths);  // in one batch, which changes nothing: see below
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        EXPECT_EQ(got[i], want[i]) << prompts[i].size() << " prompt ids";
        expect_logits(model.step_logits(i).front(), logits[i]);
    }
}

TEST_P(GoldenTest, ChatsGreedyInF32) {
    if (!golden_.contains("chat")) GTEST_SKIP() << "no chats in this golden";
    Harness model(GetParam().checkpoint, "f32");
    for (const Json& chat : golden_["chat"]) {
        const std::vector<int> want = chat["greedy_ids_f32"];
        EXPECT_EQ(model.greedy(chat["ids"].get<std::vector<int>>(), int(want.size())), want);
    }
}

TEST_P(GoldenTest, LogLikelihoodOfAContinuation) {
    Harness model(GetParam().checkpoint, "f32");
    for (const Json& prompt : golden_["prompts"]) {
        if (!prompt.contains("continuation_ids")) continue;
        std::vector<int> ids = prompt["ids"];
        const std::size_t n_prompt = ids.size();
        for (const int id : prompt["continuation_ids"]) ids.push_back(id);
        const auto logits = model.all_logits(ids);
        double nll = 0;
        for (std::size_t i = n_prompt; i < ids.size(); ++i) {
            double sum = 0;
            for (const float l : logits[i - 1]) sum += std::exp(double(l));
            nll += std::log(sum) - double(logits[i - 1][std::size_t(ids[i])]);
        }
        nll /= double(ids.size() - n_prompt);
        EXPECT_NEAR(nll, prompt["nll"].get<double>(), 1e-4 * std::max(1.0, prompt["nll"].get<double>()));
    }
}

TEST_P(GoldenTest, ChunksAndSingleTokensGiveTheSameBits) {
    Harness model(GetParam().checkpoint, "f32");
    const Json& prompts = golden_["prompts"];
    std::vector<int> ids;
    for (const Json& prompt : prompts)
        if (prompt["ids"].size() > ids.size() && prompt["ids"].size() <= 120)
            ids = prompt["ids"].get<std::vector<int>>();
    const auto whole = model.all_logits(ids);
    EXPECT_EQ(model.all_logits(ids, 7), whole);
    EXPECT_EQ(model.all_logits(ids, 1), whole);
}

TEST_P(GoldenTest, ABatchGivesWhatEachGivesAlone) {
    Harness model(GetParam().checkpoint, "f32");
    std::vector<std::vector<int>> prompts;
    for (const Json& prompt : golden_["prompts"])
        if (!prompt["ids"].empty() && prompt["ids"].size() <= 120 && prompts.size() < 5)
            prompts.push_back(prompt["ids"]);
    const auto together = model.greedy(prompts, std::vector(prompts.size(), 8), 16);
    std::vector<std::vector<std::vector<float>>> logits;
    for (std::size_t i = 0; i < prompts.size(); ++i) logits.push_back(model.step_logits(i));
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        EXPECT_EQ(model.greedy(prompts[i], 8), together[i]) << i;
        EXPECT_EQ(model.step_logits(), logits[i]) << i;  // bit for bit
    }
}

// Mean KL(f32 ‖ bf16) over all positions of all prompts: no more than transformers' own bf16 has.
TEST_P(GoldenTest, Bf16StaysAsCloseToF32AsTheReference) {
    Harness exact(GetParam().checkpoint, "f32");
    Harness rounded(GetParam().checkpoint, "bf16");
    double total = 0;
    std::size_t positions = 0;
    for (const Json& prompt : golden_["prompts"]) {
        const std::vector<int> ids = prompt["ids"];
        if (ids.empty()) continue;
        const auto p_logits = exact.all_logits(ids);
        const auto q_logits = rounded.all_logits(ids);
        for (std::size_t t = 0; t < ids.size(); ++t) {
            double p_sum = 0, q_sum = 0;
            for (const float l : p_logits[t]) p_sum += std::exp(double(l));
            for (const float l : q_logits[t]) q_sum += std::exp(double(l));
            for (std::size_t i = 0; i < p_logits[t].size(); ++i) {
                const double p = double(p_logits[t][i]) - std::log(p_sum);
                const double q = double(q_logits[t][i]) - std::log(q_sum);
                total += std::exp(p) * (p - q);
            }
        }
        positions += ids.size();
    }
    const double mean = total / double(positions);
    const double yardstick = golden_["kl_bf16_mean_all_positions"];
    RecordProperty("kl_bf16_mean", std::to_string(mean));
    EXPECT_LE(mean, yardstick);
    std::printf("  %s: mean KL %.3g, transformers %.3g\n", GetParam().name.c_str(), mean, yardstick);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTest, testing::ValuesIn(goldens()), [](const auto& info) {
    std::string name = info.param.name;
    std::ranges::replace(name, '-', '_');
    std::ranges::replace(name, '.', '_');
    return name;
});
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GoldenTest);

}  // namespace
}  // namespace llmgen::test
