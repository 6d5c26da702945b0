// Three generations of files say the same thing:
//   transformers 5   "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, …}
//   4                "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, …}
//   early 4          "rope_theta": 500000.0, "rope_scaling": {"type": "linear", "factor": 2.5}
// Readers that know only one of them fall back to theta 10000 without a word and lose quality, so every
// disagreement leaves a line.
#include "weights/rope_config.h"

#include <array>
#include <limits>

#include "base/error.h"

namespace llmgen::weights {
namespace {

constexpr double kHuge = 1e12;

RopeType type_named(const std::string& name,
                    const JsonObject& json,
                    const char* key,
                    const std::string& model_type) {
    if (model_type == "phi3" && (name == "su" || name == "yarn"))
        return RopeType::longrope;  // early Phi-3 files
    constexpr std::array kTypes{RopeType::standard, RopeType::linear, RopeType::dynamic,
                                RopeType::yarn,     RopeType::llama3, RopeType::longrope};
    for (const RopeType type : kTypes)
        if (name == name_of(type)) return type;
    fail("{} '{}' is not supported; supported: default, linear, dynamic, yarn, llama3, longrope",
         json.where(key), printable(name));
}

RopeType read_type(ModelConfig& config, const JsonObject& json) {
    const auto now = json.text("rope_type");
    const auto old = json.text("type");
    if (now && old && *now != *old)
        config.warnings.push_back(fmt::format("{} {} and type {} disagree: {} taken", json.where("rope_type"),
                                              printable(*now), printable(*old), printable(*now)));
    if (now) return type_named(*now, json, "rope_type", config.model_type);
    if (old) return type_named(*old, json, "type", config.model_type);
    return RopeType::standard;
}

/// Gemma-like files nest one set of parameters per layer type.
void refuse_nested(const JsonObject& json) {
    for (const char* key : {"full_attention", "sliding_attention", "chunked_attention"})
        if (json.has(key)) fail("{}: rope parameters per layer type are not supported", json.where(key));
}

double need(const std::optional<double>& value, const JsonObject& json, const char* key) {
    if (!value) json.fail_missing(key);
    return *value;
}

std::vector<double> need_factors(const ModelConfig& config, const JsonObject& json, const char* key) {
    const auto factors = json.numbers(key);
    if (!factors) json.fail_missing(key);
    if (int(factors->size()) != config.n_rotary() / 2)
        fail("{} has {} values, expected {}: half of the {} rotary channels", json.where(key),
             factors->size(), config.n_rotary() / 2, config.n_rotary());
    for (const double factor : *factors)
        if (!(factor > 0 && factor < kHuge))
            fail("{} has a value of {}, expected more than 0", json.where(key), factor);
    return *factors;
}

int original_length(const ModelConfig& config, const JsonObject& scaling, const JsonObject& json) {
    constexpr int kMax = std::numeric_limits<int>::max();
    // The one outside wins: Phi-3 writes it there.
    if (const auto outer = json.integer("original_max_position_embeddings", 1, kMax)) return int(*outer);
    const auto inner = scaling.integer("original_max_position_embeddings", 1, kMax);
    if (config.model_type == "phi3" && !inner) return 4096;
    return int(inner.value_or(config.max_position_embeddings));
}

void read_scaling(ModelConfig& config, const JsonObject& scaling, const JsonObject& json) {
    RopeConfig& rope = config.rope;
    const auto factor = scaling.number("factor", 1e-6, kHuge);
    rope.original_max_position = original_length(config, scaling, json);
    const double stretched = double(config.max_position_embeddings) / rope.original_max_position;
    switch (rope.type) {
        case RopeType::standard:
            return;
        case RopeType::linear:
        case RopeType::dynamic:
            rope.factor = need(factor, scaling, "factor");
            return;
        case RopeType::llama3:
            rope.factor = need(factor, scaling, "factor");
            rope.low_freq_factor =
                need(scaling.number("low_freq_factor", 1e-6, kHuge), scaling, "low_freq_factor");
            rope.high_freq_factor =
                need(scaling.number("high_freq_factor", 1e-6, kHuge), scaling, "high_freq_factor");
            if (rope.low_freq_factor >= rope.high_freq_factor)
                fail("{} is {}, expected less than high_freq_factor {}", scaling.where("low_freq_factor"),
                     rope.low_freq_factor, rope.high_freq_factor);
            return;
        case RopeType::yarn:
            rope.factor = factor.value_or(stretched);
            rope.beta_fast = scaling.number("beta_fast", 0, kHuge).value_or(0);
            rope.beta_slow = scaling.number("beta_slow", 0, kHuge).value_or(0);
            if (rope.beta_fast == 0) rope.beta_fast = 32;  // 0 means unset, as there
            if (rope.beta_slow == 0) rope.beta_slow = 1;
            rope.truncate = scaling.boolean("truncate").value_or(true);
            rope.mscale = scaling.number("mscale", 0, kHuge);
            rope.mscale_all_dim = scaling.number("mscale_all_dim", 0, kHuge);
            rope.attention_factor = scaling.number("attention_factor", 0, kHuge);
            return;
        case RopeType::longrope:
            rope.factor = factor.value_or(stretched);
            rope.attention_factor = scaling.number("attention_factor", 0, kHuge);
            rope.short_factor = need_factors(config, scaling, "short_factor");
            rope.long_factor = need_factors(config, scaling, "long_factor");
            return;
    }
}

void warn_of_older_keys(ModelConfig& config, const JsonObject& newer, const JsonObject& json) {
    const auto theta = json.number("rope_theta", 0, kHuge);
    const auto newer_theta = newer.number("rope_theta", 0, kHuge);
    if (theta && newer_theta && *theta != *newer_theta)
        config.warnings.push_back(
            fmt::format("{}: rope_theta {} and rope_parameters.rope_theta {} disagree: {} taken",
                        json.origin(), *theta, *newer_theta, *newer_theta));
    const auto scaling = json.object("rope_scaling");
    if (!scaling) return;
    for (const char* key : {"rope_type", "factor", "low_freq_factor", "high_freq_factor", "attention_factor",
                            "original_max_position_embeddings", "short_factor", "long_factor"}) {
        const nlohmann::json* a = scaling->find(key);
        const nlohmann::json* b = newer.find(key);
        if (!a && std::string_view(key) == "rope_type") a = scaling->find("type");
        if (!a || (b && *a == *b)) continue;
        config.warnings.push_back(fmt::format("{} and rope_parameters.{} disagree: rope_parameters taken",
                                              scaling->where(key), key));
        return;
    }
}

}  // namespace

void read_rope(ModelConfig& config, const JsonObject& json) {
    const auto newer = json.object("rope_parameters");
    const auto older = json.object("rope_scaling");
    if (newer) refuse_nested(*newer);
    if (newer) warn_of_older_keys(config, *newer, json);
    const JsonObject& scaling = newer ? *newer : older ? *older : json;

    RopeConfig& rope = config.rope;
    const auto either = [&](const char* key, double low, double high, double otherwise) {
        if (newer || older)
            if (const auto value = scaling.number(key, low, high)) return *value;
        return json.number(key, low, high).value_or(otherwise);
    };
    rope.theta = either("rope_theta", 1.001, kHuge, 10000);  // 1 would turn all pairs alike
    rope.partial_rotary_factor = either("partial_rotary_factor", 0, 1, 1);
    if (config.n_rotary() < 2 || config.n_rotary() % 2 != 0)
        fail("{}: {} rotary channels of each head's {}, expected an even number from 2",
             json.where("head_dim"), config.n_rotary(), config.head_dim);
    if (!newer && !older) return;
    rope.type = read_type(config, scaling);
    read_scaling(config, scaling, json);
}

}  // namespace llmgen::weights
