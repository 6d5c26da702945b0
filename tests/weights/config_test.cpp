// config.json and generation_config.json: the forms of transformers 4 and 5, defaults, and a message for each
// fault.
#include "weights/config.h"

#include <nlohmann/json.hpp>

#include "../support.h"
#include "files.h"

namespace llmgen {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

json llama() {
    return {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", "llama"},
            {"hidden_size", 64},
            {"intermediate_size", 96},
            {"num_hidden_layers", 3},
            {"num_attention_heads", 4},
            {"vocab_size", 100},
            {"max_position_embeddings", 256}};
}

json with(json config, const json& more) {
    if (!more.is_null()) config.update(more);
    return config;
}

ModelConfig parse(const json& config) { return ModelConfig::parse(config.dump(), "config.json"); }
std::string message(const json& config) {
    return test::message_of([&] { parse(config); });
}
std::string message_of_text(std::string_view text) {
    return test::message_of([&] { ModelConfig::parse(text, "config.json"); });
}

TEST(Config, WhatIsAbsentIsAsTransformersHasIt) {
    const ModelConfig config = parse(llama());
    EXPECT_EQ(config.n_kv_heads, 4);
    EXPECT_EQ(config.head_dim, 16);
    EXPECT_EQ(config.rms_norm_eps, 1e-6);
    EXPECT_EQ(config.rope.type, RopeType::standard);
    EXPECT_EQ(config.rope.theta, 10000);
    EXPECT_FALSE(config.tie_word_embeddings);
    EXPECT_FALSE(config.attention_bias || config.attention_output_bias || config.mlp_bias);
    EXPECT_THAT(config.windows, ElementsAre(0, 0, 0));
    EXPECT_THAT(config.eos_token_ids, IsEmpty());
    EXPECT_FALSE(config.dtype.has_value());
    EXPECT_THAT(config.warnings, IsEmpty());
}

TEST(Config, NullCountsAsAbsent) {
    const ModelConfig config = parse(with(llama(), {{"num_key_value_heads", nullptr},
                                                    {"head_dim", nullptr},
                                                    {"rope_scaling", nullptr},
                                                    {"rope_parameters", nullptr},
                                                    {"tie_word_embeddings", nullptr},
                                                    {"eos_token_id", nullptr},
                                                    {"quantization_config", nullptr}}));
    EXPECT_EQ(config.n_kv_heads, 4);
    EXPECT_EQ(config.head_dim, 16);
    EXPECT_EQ(config.quantization, "");
}

TEST(Config, AFamilyKnownByEitherNameAlone) {
    json config = llama();
    config.erase("model_type");
    EXPECT_EQ(parse(config).model_type, "llama");
    config = llama();
    config.erase("architectures");
    EXPECT_EQ(parse(config).architecture, "LlamaForCausalLM");
    config.erase("model_type");
    EXPECT_EQ(message(config), "config.json: architectures is missing");
}

TEST(Config, AnUnknownArchitectureIsRefusedBeforeTheRestIsRead) {
    const std::vector<std::string> known{"LlamaForCausalLM", "Qwen2ForCausalLM"};
    const auto refusal = [&](const json& config) {
        return test::message_of([&] { ModelConfig::parse(config.dump(), "config.json", known); });
    };
    EXPECT_EQ(refusal(llama()), "");
    EXPECT_EQ(refusal({{"architectures", {"GPT2LMHeadModel"}}, {"model_type", "gpt2"}, {"n_embd", 768}}),
              "config.json: architectures is not supported: GPT2LMHeadModel (model_type gpt2); supported: "
              "LlamaForCausalLM, Qwen2ForCausalLM");
    EXPECT_THAT(refusal({{"model_type", "mamba"}}), HasSubstr("not supported: mamba"));
    // A family's other heads are other models.
    EXPECT_THAT(refusal(with(llama(), {{"architectures", {"LlamaForSequenceClassification"}}})),
                HasSubstr("LlamaForSequenceClassification"));
}

TEST(Config, RequiredSizesAndTheirRanges) {
    for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                            "vocab_size", "max_position_embeddings"}) {
        json config = llama();
        config.erase(key);
        EXPECT_EQ(message(config), "config.json: " + std::string(key) + " is missing");
        for (const char* value : {"0", "-1", "4.0", "\"64\"", "true", "[64]", "{}", "18446744073709551615",
                                  "18446744073709551616", "1e30", "9223372036854775807"}) {
            config[key] = json::parse(value);
            EXPECT_THAT(message(config), HasSubstr("config.json: " + std::string(key) + " is ")) << value;
            EXPECT_THAT(message(config), HasSubstr("expected an integer from 1 to ")) << value;
        }
    }
    EXPECT_THAT(message(with(llama(), {{"num_attention_heads", 5}})),
                HasSubstr("5 heads don't divide hidden_size 64"));
    EXPECT_THAT(message(with(llama(), {{"num_key_value_heads", 3}})),
                HasSubstr("4 query heads can't share 3 key-value heads evenly"));
    EXPECT_THAT(message(with(llama(), {{"head_dim", 15}})),
                HasSubstr("15 rotary channels of each head's 15"));
    EXPECT_EQ(parse(with(llama(), {{"head_dim", 32}})).q_size(), 128);
    EXPECT_THAT(message(with(llama(), {{"num_attention_heads", 1 << 20}, {"head_dim", 1 << 15}})),
                HasSubstr("more than 16777216 together"));
}

TEST(Config, OtherTypesOfValueAreNamed) {
    EXPECT_EQ(message(with(llama(), {{"rms_norm_eps", "small"}})),
              "config.json: rms_norm_eps is \"small\", expected a number from 0 to 1");
    EXPECT_THAT(message(with(llama(), {{"tie_word_embeddings", 1}})),
                HasSubstr("is 1, expected true or false"));
    EXPECT_THAT(message(with(llama(), {{"hidden_act", "gelu"}})),
                HasSubstr("hidden_act is \"gelu\", expected silu"));
    EXPECT_THAT(message(with(llama(), {{"architectures", "LlamaForCausalLM"}})),
                HasSubstr("expected a list of names"));
    EXPECT_THAT(message(with(llama(), {{"rope_scaling", {1, 2}}})),
                HasSubstr("rope_scaling is an array, expected an object"));
}

TEST(Config, TextThatIsNoJsonObject) {
    EXPECT_THAT(message_of_text(""), HasSubstr("is empty"));
    EXPECT_THAT(message_of_text(" \n"), HasSubstr("is empty"));
    EXPECT_THAT(message_of_text("{\"a\": 1"), HasSubstr("ends in the middle, after 7 bytes"));
    EXPECT_THAT(message_of_text("{\"a\": }"), HasSubstr("not valid JSON: error at byte 7 of 7"));
    EXPECT_THAT(message_of_text("[1]"), HasSubstr("expected a JSON object, found an array"));
    EXPECT_THAT(message_of_text("{} x"), HasSubstr("not valid JSON"));
    EXPECT_THAT(message_of_text(std::string("{}\0x", 4)), HasSubstr("not valid JSON: error at byte 3"));
    EXPECT_THAT(message_of_text("{\"a\": \"\xff\"}"), HasSubstr("not valid JSON"));
    EXPECT_THAT(message_of_text("{\"a\": 1e999}"), HasSubstr("not valid JSON"));
    EXPECT_THAT(message_of_text("\xEF\xBB\xBF{}"), HasSubstr("byte order mark"));
    EXPECT_THAT(message_of_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
                HasSubstr("Git LFS pointer"));
    EXPECT_THAT(message_of_text("<!DOCTYPE html>"), HasSubstr("web page"));
    EXPECT_THAT(message_of_text("{\"a\":" + std::string(1'000'000, '[')),
                HasSubstr("nested more than 64 levels deep"));
}

TEST(Config, MissingFileIsNamed) {
    const test::Folder folder;
    EXPECT_THAT(test::message_of([&] { ModelConfig::load(folder.path()); }),
                HasSubstr("config.json: No such file"));
    const auto file = folder.write("config.json", llama().dump());
    EXPECT_EQ(ModelConfig::load(folder.path()).hidden_size, 64);
    EXPECT_EQ(ModelConfig::load(file).hidden_size, 64);
}

TEST(Config, RopeOfBothGenerations) {
    const json scaling = {{"factor", 8.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_position_embeddings", 64}};
    json old_way =
        with(llama(), {{"rope_theta", 5000}, {"rope_scaling", with(scaling, {{"rope_type", "llama3"}})}});
    json new_way = with(
        llama(), {{"rope_parameters", with(scaling, {{"rope_type", "llama3"}, {"rope_theta", 5000.0}})}});
    for (const json& config : {old_way, new_way}) {
        const ModelConfig parsed = parse(config);
        EXPECT_EQ(parsed.rope.type, RopeType::llama3);
        EXPECT_EQ(parsed.rope.theta, 5000);
        EXPECT_EQ(parsed.rope.factor, 8);
        EXPECT_EQ(parsed.rope.original_max_position, 64);
        EXPECT_THAT(parsed.warnings, IsEmpty());
    }
    // Both, agreeing: as good as one.
    EXPECT_THAT(parse(with(old_way, new_way)).warnings, IsEmpty());
    EXPECT_EQ(parse(with(llama(), {{"rope_scaling", {{"type", "linear"}, {"factor", 2.5}}}})).rope.type,
              RopeType::linear);
    // rope_parameters without theta: the key outside, not the default.
    EXPECT_EQ(
        parse(with(llama(), {{"rope_parameters", {{"rope_type", "default"}}}, {"rope_theta", 7}})).rope.theta,
        7);
}

TEST(Config, RopeParametersWinOverOlderKeysWithALine) {
    const ModelConfig theta =
        parse(with(llama(), {{"rope_theta", 10000}, {"rope_parameters", {{"rope_theta", 5e5}}}}));
    EXPECT_EQ(theta.rope.theta, 5e5);
    EXPECT_THAT(theta.warnings,
                ElementsAre(HasSubstr("rope_theta 10000 and rope_parameters.rope_theta 500000 disagree")));
    const ModelConfig type =
        parse(with(llama(), {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}},
                             {"rope_parameters", {{"rope_type", "linear"}, {"factor", 4}}}}));
    EXPECT_EQ(type.rope.factor, 4);
    EXPECT_THAT(type.warnings,
                ElementsAre(HasSubstr("rope_scaling.factor and rope_parameters.factor disagree")));
    const ModelConfig names = parse(
        with(llama(), {{"rope_scaling", {{"type", "dynamic"}, {"rope_type", "linear"}, {"factor", 2}}}}));
    EXPECT_EQ(names.rope.type, RopeType::linear);
    EXPECT_EQ(names.warnings.size(), 1u);
}

TEST(Config, RopeThatCannotBeDoneIsRefusedByName) {
    const auto scaled = [](const json& scaling) {
        return message(with(llama(), {{"rope_scaling", scaling}}));
    };
    EXPECT_THAT(scaled({{"rope_type", "mrope"}}),
                HasSubstr("rope_scaling.rope_type 'mrope' is not supported; supported: default"));
    EXPECT_THAT(scaled({{"type", "linear"}}), HasSubstr("rope_scaling.factor is missing"));
    EXPECT_THAT(scaled({{"rope_type", "llama3"}, {"factor", 2}}),
                HasSubstr("rope_scaling.low_freq_factor is missing"));
    EXPECT_THAT(scaled({{"rope_type", "linear"}, {"factor", 0}}), HasSubstr("rope_scaling.factor is 0"));
    EXPECT_THAT(scaled({{"rope_type", "linear"}, {"factor", "2"}}),
                HasSubstr("rope_scaling.factor is \"2\""));
    EXPECT_THAT(
        scaled({{"rope_type", "llama3"}, {"factor", 2}, {"low_freq_factor", 4}, {"high_freq_factor", 4}}),
        HasSubstr("expected less than high_freq_factor"));
    EXPECT_THAT(scaled({{"rope_type", "longrope"}, {"short_factor", {1, 2}}, {"long_factor", {1, 2}}}),
                HasSubstr("short_factor has 2 values, expected 8"));
    EXPECT_THAT(
        message(with(llama(), {{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}})),
        HasSubstr("per layer type are not supported"));
    EXPECT_THAT(message(with(llama(), {{"rope_theta", 0}})), HasSubstr("rope_theta is 0"));
}

TEST(Config, EndsOfSequenceAsNumberListOrNull) {
    EXPECT_THAT(parse(with(llama(), {{"eos_token_id", 7}})).eos_token_ids, ElementsAre(7));
    EXPECT_THAT(parse(with(llama(), {{"eos_token_id", {9, 7, 9, 0}}})).eos_token_ids, ElementsAre(0, 7, 9));
    EXPECT_THAT(parse(with(llama(), {{"eos_token_id", json::array()}})).eos_token_ids, IsEmpty());
    for (const json& outside : {json(1'000'000'000), json(-1), json(100), json(18446744073709551615u)}) {
        const ModelConfig config = parse(with(llama(), {{"eos_token_id", {outside, 5}}}));
        EXPECT_THAT(config.eos_token_ids, ElementsAre(5));
        EXPECT_THAT(config.warnings, ElementsAre(HasSubstr("outside the vocabulary of 100: ignored")));
    }
    for (const json& wrong : {json("x"), json(1.5), json(true), json{{"a", 1}}, json{json{1}}})
        EXPECT_THAT(message(with(llama(), {{"eos_token_id", wrong}})), HasSubstr("eos_token_id is "))
            << wrong;
    EXPECT_FALSE(parse(with(llama(), {{"bos_token_id", -1}})).bos_token_id.has_value());
    EXPECT_EQ(parse(with(llama(), {{"bos_token_id", 3}})).bos_token_id, 3);
}

TEST(Config, SlidingWindowsByFamily) {
    const auto windows = [](const char* type, const json& more) {
        json config = with(llama(), {{"model_type", type}});
        config.erase("architectures");
        return parse(with(config, more)).windows;
    };
    EXPECT_THAT(windows("mistral", {{"sliding_window", 24}, {"num_key_value_heads", 2}}),
                ElementsAre(24, 24, 24));
    EXPECT_THAT(windows("mistral", {{"sliding_window", nullptr}, {"num_key_value_heads", 2}}),
                ElementsAre(0, 0, 0));
    EXPECT_THAT(windows("mistral", {{"num_key_value_heads", 2}}), ElementsAre(4096, 4096, 4096));
    EXPECT_THAT(windows("phi3", {}), ElementsAre(0, 0, 0));
    EXPECT_THAT(windows("phi3", {{"sliding_window", 2047}}), ElementsAre(2047, 2047, 2047));
    EXPECT_THAT(windows("llama", {{"sliding_window", 8}}), ElementsAre(0, 0, 0));
    EXPECT_EQ(parse(with(llama(), {{"sliding_window", 8}})).warnings.size(), 1u);
    for (const char* type : {"qwen2", "qwen3"}) {
        EXPECT_THAT(windows(type, {{"sliding_window", 16}, {"max_window_layers", 1}}), ElementsAre(0, 0, 0));
        EXPECT_THAT(
            windows(type, {{"use_sliding_window", true}, {"sliding_window", 16}, {"max_window_layers", 1}}),
            ElementsAre(0, 16, 16));
        EXPECT_THAT(
            windows(type, {{"use_sliding_window", true},
                           {"sliding_window", 16},
                           {"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}}}),
            ElementsAre(16, 0, 16));
    }
    json qwen = with(llama(), {{"architectures", {"Qwen2ForCausalLM"}}, {"model_type", "qwen2"}});
    EXPECT_THAT(message(with(qwen, {{"layer_types", {"full_attention"}}})),
                HasSubstr("expected a list of 3 types"));
    EXPECT_THAT(
        message(with(qwen, {{"layer_types", {"full_attention", "linear_attention", "full_attention"}}})),
        HasSubstr("\"linear_attention\", expected full_attention or sliding_attention"));
    EXPECT_THAT(
        message(with(qwen, {{"layer_types", {"full_attention", "sliding_attention", "full_attention"}}})),
        HasSubstr("use_sliding_window"));
    EXPECT_THAT(message(with(qwen, {{"use_sliding_window", true}, {"sliding_window", 0}})),
                HasSubstr("sliding_window is 0"));
}

TEST(Config, BiasesByFamily) {
    const auto family = [](const char* type, const json& more) {
        json config = with(llama(), {{"model_type", type}, {"num_key_value_heads", 2}});
        config.erase("architectures");
        return parse(with(config, more));
    };
    EXPECT_TRUE(family("qwen2", {}).attention_bias);
    EXPECT_FALSE(family("qwen2", {}).attention_output_bias);
    EXPECT_FALSE(family("qwen3", {}).attention_bias);
    EXPECT_EQ(family("qwen3", {}).head_dim, 128);
    EXPECT_TRUE(family("llama", {{"attention_bias", true}}).attention_output_bias);
    EXPECT_TRUE(family("llama", {{"mlp_bias", true}}).mlp_bias);
}

TEST(Config, TypesOfBothGenerations) {
    EXPECT_EQ(parse(with(llama(), {{"dtype", "float16"}})).dtype, DType::f16);
    EXPECT_EQ(parse(with(llama(), {{"torch_dtype", "bfloat16"}})).dtype, DType::bf16);
    const ModelConfig both = parse(with(llama(), {{"dtype", "float32"}, {"torch_dtype", "bfloat16"}}));
    EXPECT_EQ(both.dtype, DType::f32);
    EXPECT_EQ(both.warnings.size(), 1u);
    EXPECT_FALSE(parse(with(llama(), {{"dtype", "auto"}})).dtype.has_value());
    EXPECT_EQ(parse(with(llama(), {{"quantization_config", {{"quant_method", "fp8"}}}})).quantization, "fp8");
    EXPECT_NE(parse(with(llama(), {{"quantization_config", json::object()}})).quantization, "");
}

TEST(Config, ThePublicModels) {
    SKIP_WITHOUT(test::shared("data/configs"));
    const json index = json::parse(std::ifstream(test::shared("data/configs/index.json")));
    for (const auto& [name, expected] : index.items()) {
        SCOPED_TRACE(name);
        const ModelConfig config = ModelConfig::load(test::shared("data/configs/" + name));
        EXPECT_EQ(config.head_dim, expected["head_dim"].get<int>());
        EXPECT_EQ(2 * config.n_layers * config.kv_size(), expected["kv_values_per_token"].get<int>());
        EXPECT_THAT(config.warnings, IsEmpty());
        EXPECT_FALSE(GenerationDefaults::load(test::shared("data/configs/" + name), config.vocab_size)
                         .eos_token_ids.empty());
    }
    const ModelConfig llama = ModelConfig::load(test::shared("data/configs/llama-3.1-8b-instruct"));
    EXPECT_THAT(llama.eos_token_ids, ElementsAre(128001, 128008, 128009));
    EXPECT_EQ(llama.rope.type, RopeType::llama3);
    EXPECT_EQ(llama.rope.theta, 500000);
    const ModelConfig qwen = ModelConfig::load(test::shared("data/configs/qwen2.5-0.5b-instruct"));
    EXPECT_TRUE(qwen.attention_bias && qwen.tie_word_embeddings);
    EXPECT_THAT(qwen.windows, testing::Each(0));
}

GenerationDefaults generation(const json& config) {
    return GenerationDefaults::parse(config.dump(), "generation_config.json", 100);
}

TEST(Generation, SetAndUnset) {
    const GenerationDefaults all = generation({{"do_sample", true},
                                               {"temperature", 0.7},
                                               {"top_k", 20},
                                               {"top_p", 0.8},
                                               {"min_p", 0.1},
                                               {"repetition_penalty", 1.05},
                                               {"eos_token_id", {3, 2}}});
    EXPECT_EQ(all.do_sample, true);
    EXPECT_EQ(all.temperature, 0.7);
    EXPECT_EQ(all.top_k, 20);
    EXPECT_EQ(all.top_p, 0.8);
    EXPECT_EQ(all.min_p, 0.1);
    EXPECT_EQ(all.repetition_penalty, 1.05);
    EXPECT_THAT(all.eos_token_ids, ElementsAre(2, 3));
    const GenerationDefaults none = generation({{"temperature", nullptr}, {"_from_model_config", true}});
    EXPECT_FALSE(none.temperature || none.top_k || none.do_sample);
    const test::Folder folder;
    EXPECT_FALSE(GenerationDefaults::load(folder.path(), 100).temperature.has_value());
}

TEST(Generation, WhatIsNotAppliedIsSaid) {
    const auto warnings = [](const json& config) { return generation(config).warnings; };
    EXPECT_THAT(warnings({{"num_beams", 4}}), ElementsAre(HasSubstr("num_beams isn't applied")));
    EXPECT_THAT(warnings({{"no_repeat_ngram_size", 3}}), ElementsAre(HasSubstr("no_repeat_ngram_size")));
    EXPECT_THAT(warnings({{"suppress_tokens", {1, 2}}}), ElementsAre(HasSubstr("suppress_tokens")));
    EXPECT_THAT(warnings({{"stop_strings", "x"}}), ElementsAre(HasSubstr("stop_strings")));
    EXPECT_THAT(warnings({{"forced_bos_token_id", 0}}), ElementsAre(HasSubstr("forced_bos_token_id")));
    EXPECT_THAT(warnings({{"num_beams", 1},
                          {"no_repeat_ngram_size", 0},
                          {"typical_p", 1.0},
                          {"bad_words_ids", nullptr},
                          {"suppress_tokens", json::array()},
                          {"max_length", 20}}),
                IsEmpty());
}

TEST(Generation, ValuesThatCannotBeRightAreLeftOutWithALine) {
    const GenerationDefaults bad =
        generation({{"temperature", -1}, {"top_p", 2.0}, {"top_k", "x"}, {"min_p", 0.1}});
    EXPECT_FALSE(bad.temperature || bad.top_p || bad.top_k);
    EXPECT_EQ(bad.min_p, 0.1);
    EXPECT_THAT(bad.warnings,
                testing::UnorderedElementsAre(HasSubstr("temperature is -1"), HasSubstr("top_p is 2.0"),
                                              HasSubstr("top_k is \"x\"")));
    EXPECT_THAT(test::message_of([] {
                    generation({{"eos_token_id", "x"}});
                }),
                HasSubstr("eos_token_id is \"x\""));
}

}  // namespace
}  // namespace llmgen
