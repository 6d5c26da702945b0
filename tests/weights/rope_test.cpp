// Frequencies against transformers' numbers (tests/weights/make_data.py) and the goldens beside the project.
#include "weights/rope.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../support.h"

namespace llmgen {
namespace {

using nlohmann::json;

json read_json(const std::filesystem::path& path) {
    std::ifstream file(path);
    return json::parse(file);
}

// The power is rounded once here and within an ulp there, and a ramp adds a rounding or two: 4 ulp.
void expect_equal(const RopeFrequencies& made, const json& inverse, double attention_factor) {
    ASSERT_EQ(made.inverse.size(), inverse.size());
    for (std::size_t d = 0; d < inverse.size(); ++d) {
        const double expected = inverse[d].get<double>();
        EXPECT_NEAR(made.inverse[d], expected, std::abs(expected) * 4 * 0x1p-24) << "pair " << d;
    }
    EXPECT_NEAR(made.attention_factor, attention_factor, 1e-6);
}

TEST(Rope, EveryTypeAndFormAsTransformers) {
    const json cases = read_json(test::data("weights/rope.json"));
    ASSERT_GE(cases.size(), 20u);
    for (const json& item : cases) {
        SCOPED_TRACE(item["name"].get<std::string>() + ", length " + item["n_positions"].dump());
        const auto config = ModelConfig::parse(item["config"].dump(), "config.json");
        expect_equal(rope_frequencies(config, item["n_positions"].get<int>()), item["inverse"],
                     item["attention_factor"].get<double>());
    }
}

TEST(Rope, TheGoldensOfTheTinyCheckpoints) {
    SKIP_WITHOUT(test::shared("data/tiny"));
    int n_models = 0;
    for (const auto& entry : std::filesystem::directory_iterator(test::shared("data/tiny"))) {
        if (!entry.is_directory()) continue;
        SCOPED_TRACE(entry.path().filename().string());
        const json rope = read_json(entry.path() / "golden.json")["rope"];
        expect_equal(rope_frequencies(ModelConfig::load(entry.path())), rope["inv_freq"],
                     rope["attention_factor"].get<double>());
        ++n_models;
    }
    EXPECT_GE(n_models, 7);
}

// The published formula by hand, for Llama 3.2 1B: channels either side of the two borders.
TEST(Rope, Llama3KeepsShortWavesAndStretchesLongOnes) {
    ModelConfig config;
    config.head_dim = 64;
    config.rope.type = RopeType::llama3;
    config.rope.theta = 5e5;
    config.rope.factor = 32;
    config.rope.original_max_position = 8192;
    const auto inverse = rope_frequencies(config).inverse;
    const std::pair<int, double> expected[] = {{0, 1},
                                               {1, 6.636012377e-01},
                                               {14, 3.211445995e-03},
                                               {15, 1.290547928e-03},
                                               {16, 4.295567966e-04},
                                               {17, 9.708287803e-05},
                                               {18, 1.946163818e-05},
                                               {31, 9.418306725e-08}};
    for (const auto& [pair, value] : expected)
        EXPECT_NEAR(inverse[std::size_t(pair)], value, value * 1e-6) << "pair " << pair;
}

TEST(Rope, Llama3OfTheEightBillionModel) {
    ModelConfig config;
    config.head_dim = 128;
    config.rope.type = RopeType::llama3;
    config.rope.theta = 5e5;
    config.rope.factor = 8;
    config.rope.original_max_position = 8192;
    const auto inverse = rope_frequencies(config).inverse;
    const std::pair<int, double> expected[] = {
        {28, 3.211445995e-03}, {29, 2.166570764e-03}, {31, 8.567514129e-04}, {33, 3.126937504e-04},
        {35, 9.556212354e-05}, {36, 7.784655274e-05}, {63, 3.068925989e-07}};
    for (const auto& [pair, value] : expected)
        EXPECT_NEAR(inverse[std::size_t(pair)], value, value * 1e-6) << "pair " << pair;
}

}  // namespace
}  // namespace llmgen
