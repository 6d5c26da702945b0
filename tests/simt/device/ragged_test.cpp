// The whole generation loop on the emulated device: prompts whole and in chunks, alone and in ragged batches,
// give the goldens' greedy ids. golden_test has each golden's full answers and logits; here they are short.
#include <gtest/gtest.h>

#include "tests/models/harness.h"

namespace llmgen::test {
namespace {

using Json = nlohmann::json;

std::vector<std::filesystem::path> checkpoints() {
    std::vector<std::filesystem::path> all = checkpoints_under(data("models"));
    for (const auto& path : checkpoints_under(shared("data/tiny"))) all.push_back(path);
    return all;
}

class Ragged : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Ragged, BatchesAndChunksGiveTheGoldenIds) {
    constexpr std::size_t kLongest = 60, kNew = 6;
    std::vector<std::vector<int>> prompts, answers;
    const Json golden = read_json(GetParam() / "golden.json");
    for (const Json& prompt : golden["prompts"]) {
        const std::vector<int> ids = prompt["ids"], greedy = prompt["greedy_ids_f32"];
        if (ids.empty() || ids.size() > kLongest) continue;
        prompts.push_back(ids);
        answers.emplace_back(greedy.begin(), greedy.begin() + long(std::min(kNew, greedy.size())));
    }
    ASSERT_FALSE(prompts.empty());
    Harness model(GetParam(), "f32");
    for (const std::size_t rows : {1, 3, 8, 17}) {
        SCOPED_TRACE(testing::Message() << "batch of " << rows);
        std::vector<std::vector<int>> batch, want;
        std::vector<int> lengths;
        for (std::size_t i = 0; i < rows; ++i) {
            const std::size_t which = (i + rows) % prompts.size();
            batch.push_back(prompts[which]);
            // Rows end at different steps, so that the batch shrinks.
            const std::size_t n = 1 + i % answers[which].size();
            want.emplace_back(answers[which].begin(), answers[which].begin() + long(n));
            lengths.push_back(int(n));
        }
        EXPECT_EQ(model.greedy(batch, lengths, rows == 3 ? 7 : 512), want);
    }
}

INSTANTIATE_TEST_SUITE_P(All, Ragged, testing::ValuesIn(checkpoints()), [](const auto& info) {
    std::string name = info.param.filename().string();
    for (char& c : name)
        if (c == '-' || c == '.') c = '_';
    return name;
});

}  // namespace
}  // namespace llmgen::test
