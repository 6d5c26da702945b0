#include "weights/config.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "base/mmap.h"
#include "weights/json_file.h"
#include "weights/rope_config.h"

namespace llmgen {
namespace {

using weights::JsonObject;
using weights::printable;

// What transformers takes for keys that are absent, and which keys a family knows at all.
struct Family {
    std::string_view model_type;
    std::string_view architecture;
    int n_kv_heads;  // 0: as many as heads
    int head_dim;    // 0: hidden_size / n_heads
    double rms_norm_eps;
    int sliding_window;  // 0: none
    bool qkv_bias;       // where no attention_bias says otherwise
    bool output_bias;    // attention_bias means o too
    enum class Window { never, always, upper_layers } window;
};

constexpr std::array<Family, 5> kFamilies{{
    {"llama", "LlamaForCausalLM", 0, 0, 1e-6, 0, false, true, Family::Window::never},
    {"mistral", "MistralForCausalLM", 8, 0, 1e-6, 4096, false, false, Family::Window::always},
    {"qwen2", "Qwen2ForCausalLM", 0, 0, 1e-6, 4096, true, false, Family::Window::upper_layers},
    {"qwen3", "Qwen3ForCausalLM", 0, 128, 1e-6, 4096, false, true, Family::Window::upper_layers},
    {"phi3", "Phi3ForCausalLM", 0, 0, 1e-5, 0, false, false, Family::Window::always},
}};

const Family& family_of(const ModelConfig& config) {
    for (const Family& family : kFamilies)
        if (config.model_type == family.model_type || config.architecture == family.architecture)
            return family;
    return kFamilies[0];
}

// Limits far above any model, low enough that their products stay in 63 bits.
constexpr int kMaxSize = 1 << 24;
constexpr int kMaxLayers = 1 << 14;
constexpr int kMaxVocab = 1 << 28;

int required(const JsonObject& json, const char* key, int high) {
    const auto value = json.integer(key, 1, high);
    if (!value) json.fail_missing(key);
    return int(*value);
}

void read_identity(ModelConfig& config, const JsonObject& json, std::span<const std::string> known) {
    config.model_type = json.text("model_type").value_or("");
    if (const nlohmann::json* list = json.find("architectures")) {
        if (!list->is_array() || list->empty() || !list->front().is_string())
            json.fail_value("architectures", *list, "a list of names");
        config.architecture = list->front().get<std::string>();
    }
    if (config.architecture.empty() && config.model_type.empty()) json.fail_missing("architectures");
    for (const Family& family : kFamilies) {
        if (config.architecture.empty() && config.model_type == family.model_type)
            config.architecture = family.architecture;
        if (config.model_type.empty() && config.architecture == family.architecture)
            config.model_type = family.model_type;
    }
    if (known.empty()) return;
    const std::string& name = config.architecture.empty() ? config.model_type : config.architecture;
    if (std::find(known.begin(), known.end(), name) != known.end()) return;
    fail("{} is not supported: {} (model_type {}); supported: {}", json.where("architectures"),
         printable(name), config.model_type.empty() ? "absent" : printable(config.model_type),
         fmt::join(known, ", "));
}

void read_heads(ModelConfig& config, const JsonObject& json, const Family& family) {
    config.n_heads = required(json, "num_attention_heads", kMaxSize);
    const int n_kv_default = family.n_kv_heads ? family.n_kv_heads : config.n_heads;
    config.n_kv_heads = int(json.integer("num_key_value_heads", 1, kMaxSize).value_or(n_kv_default));
    if (config.n_heads % config.n_kv_heads != 0)
        fail("{}: {} query heads can't share {} key-value heads evenly", json.where("num_key_value_heads"),
             config.n_heads, config.n_kv_heads);
    if (const auto head_dim = json.integer("head_dim", 1, 1 << 16)) {
        config.head_dim = int(*head_dim);
    } else if (family.head_dim) {
        config.head_dim = family.head_dim;
    } else {
        if (config.hidden_size % config.n_heads != 0)
            fail("{}: {} heads don't divide hidden_size {}, and there is no head_dim",
                 json.where("num_attention_heads"), config.n_heads, config.hidden_size);
        config.head_dim = config.hidden_size / config.n_heads;
    }
    if (std::int64_t(config.n_heads) * config.head_dim > kMaxSize)
        fail("{}: {} heads of {} channels are more than {} together", json.where("num_attention_heads"),
             config.n_heads, config.head_dim, kMaxSize);
}

// layer_types where the file has it, else the family's rule.
void read_windows(ModelConfig& config, const JsonObject& json, const Family& family) {
    config.windows.assign(std::size_t(config.n_layers), 0);
    const bool names_window = json.has("sliding_window");
    const bool is_null = json.contains("sliding_window") && !names_window;
    const auto window = int(json.integer("sliding_window", 1, std::numeric_limits<int>::max())
                                .value_or(is_null ? 0 : family.sliding_window));
    switch (family.window) {
        case Family::Window::never:
            if (names_window)
                config.warnings.push_back(fmt::format("{} means nothing for {}: ignored",
                                                      json.where("sliding_window"), config.model_type));
            return;
        case Family::Window::always:
            std::fill(config.windows.begin(), config.windows.end(), window);
            return;
        case Family::Window::upper_layers:
            break;
    }
    const bool in_use = json.boolean("use_sliding_window").value_or(false) && window > 0;
    const auto first = json.integer("max_window_layers", 0, std::numeric_limits<int>::max()).value_or(28);
    const nlohmann::json* types = json.find("layer_types");
    if (types && (!types->is_array() || types->size() != config.windows.size()))
        json.fail_value("layer_types", *types, fmt::format("a list of {} types", config.n_layers));
    for (int layer = 0; layer < config.n_layers; ++layer) {
        bool slides = in_use && layer >= first;
        if (types) {
            const nlohmann::json& type = (*types)[std::size_t(layer)];
            slides = type == "sliding_attention";
            if (!slides && type != "full_attention")
                json.fail_value("layer_types", type, "full_attention or sliding_attention");
            if (slides && !in_use)
                fail("{} has sliding_attention, but use_sliding_window and sliding_window don't turn it on",
                     json.where("layer_types"));
        }
        if (slides) config.windows[std::size_t(layer)] = window;
    }
}

void read_dtype(ModelConfig& config, const JsonObject& json) {
    const auto dtype = json.text("dtype");
    const auto old = json.text("torch_dtype");
    if (dtype && old && *dtype != *old)
        config.warnings.push_back(fmt::format("{}: dtype {} and torch_dtype {} disagree: {} taken",
                                              json.origin(), printable(*dtype), printable(*old),
                                              printable(*dtype)));
    const std::string name = dtype ? *dtype : old.value_or("");
    if (name == "float32") config.dtype = DType::f32;
    if (name == "bfloat16") config.dtype = DType::bf16;
    if (name == "float16") config.dtype = DType::f16;
}

void read_quantization(ModelConfig& config, const JsonObject& json) {
    for (const char* key : {"quantization_config", "compression_config"})
        if (const auto quantization = json.object(key))
            config.quantization = quantization->text("quant_method").value_or("an unnamed method");
}

std::optional<int> read_token_id(const JsonObject& json, const char* key) {
    const nlohmann::json* value = json.find(key);
    if (!value || !value->is_number_integer()) return std::nullopt;
    const auto id =
        json.integer(key, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
    if (!id || *id < 0 || *id > std::numeric_limits<int>::max()) return std::nullopt;  // old files say −1
    return int(*id);
}

}  // namespace

std::string_view name_of(RopeType type) {
    switch (type) {
        case RopeType::standard:
            return "default";
        case RopeType::linear:
            return "linear";
        case RopeType::dynamic:
            return "dynamic";
        case RopeType::yarn:
            return "yarn";
        case RopeType::llama3:
            return "llama3";
        case RopeType::longrope:
            return "longrope";
    }
    return "?";
}

ModelConfig ModelConfig::parse(std::string_view text,
                               const std::string& origin,
                               std::span<const std::string> known) {
    const nlohmann::json document = weights::parse_json_object(text, origin);
    const JsonObject json(document, origin);
    ModelConfig config;
    read_identity(config, json, known);
    const Family& family = family_of(config);

    config.hidden_size = required(json, "hidden_size", kMaxSize);
    config.intermediate_size = required(json, "intermediate_size", kMaxSize);
    config.n_layers = required(json, "num_hidden_layers", kMaxLayers);
    config.vocab_size = required(json, "vocab_size", kMaxVocab);
    config.max_position_embeddings =
        required(json, "max_position_embeddings", std::numeric_limits<int>::max());
    read_heads(config, json, family);
    config.rms_norm_eps = json.number("rms_norm_eps", 0, 1).value_or(family.rms_norm_eps);
    config.hidden_act = json.text("hidden_act").value_or("silu");
    if (config.hidden_act != "silu" && config.hidden_act != "swish")
        json.fail_value("hidden_act", config.hidden_act, "silu, the only activation that is supported");
    weights::read_rope(config, json);
    read_windows(config, json, family);

    config.tie_word_embeddings = json.boolean("tie_word_embeddings").value_or(false);
    config.attention_bias = family.qkv_bias || json.boolean("attention_bias").value_or(false);
    config.attention_output_bias = family.output_bias && config.attention_bias;
    config.mlp_bias = json.boolean("mlp_bias").value_or(false);
    read_dtype(config, json);
    read_quantization(config, json);
    config.bos_token_id = read_token_id(json, "bos_token_id");
    config.pad_token_id = read_token_id(json, "pad_token_id");
    config.eos_token_ids = json.token_ids("eos_token_id", config.vocab_size, config.warnings);
    config.transformers_version = json.text("transformers_version").value_or("");
    return config;
}

ModelConfig ModelConfig::load(const std::filesystem::path& path, std::span<const std::string> known) {
    const std::filesystem::path file = weights::is_folder(path) ? path / "config.json" : path;
    return parse(weights::read_json_text(file), file.string(), known);
}

namespace {

/// What the reference's generate() would do with this file and nobody here does, with the value that does
/// nothing (null and an empty list do nothing either).
constexpr std::pair<const char*, double> kNotApplied[] = {
    {"num_beams", 1},
    {"no_repeat_ngram_size", 0},
    {"min_length", 0},
    {"min_new_tokens", 0},
    {"typical_p", 1},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"penalty_alpha", 0},
    {"guidance_scale", 1},
    {"stop_strings", 0},
    {"suppress_tokens", 0},
    {"begin_suppress_tokens", 0},
    {"bad_words_ids", 0},
    {"sequence_bias", 0},
    {"forced_bos_token_id", -1},
    {"forced_eos_token_id", -1},
    {"exponential_decay_length_penalty", 0},
};

void warn_of_not_applied(const nlohmann::json& document,
                         const std::string& origin,
                         std::vector<std::string>& warnings) {
    for (const auto& [key, neutral] : kNotApplied) {
        const auto value = document.find(key);
        if (value == document.end() || value->is_null() || (value->is_structured() && value->empty()))
            continue;
        if (value->is_number() && value->get<double>() == neutral) continue;
        warnings.push_back(
            fmt::format("{}: {} isn't applied; transformers' answers can differ by it", origin, key));
    }
}

}  // namespace

GenerationDefaults GenerationDefaults::parse(std::string_view text,
                                             const std::string& origin,
                                             int vocab_size) {
    const nlohmann::json document = weights::parse_json_object(text, origin);
    const JsonObject json(document, origin);
    GenerationDefaults defaults;
    // A sampling value that can't be right is left out with a line: it must not keep a model from being used.
    const auto read = [&](auto& field, auto getter) {
        try {
            if (const auto value = getter())
                field = typename std::decay_t<decltype(field)>::value_type(*value);
        } catch (const Error& error) {
            defaults.warnings.push_back(std::string(error.what()) + ": ignored");
        }
    };
    constexpr double kLarge = 1e6;
    constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
    read(defaults.do_sample, [&] { return json.boolean("do_sample"); });
    read(defaults.temperature, [&] { return json.number("temperature", 0, kLarge); });
    read(defaults.top_k, [&] { return json.integer("top_k", -1, kMaxInt); });
    read(defaults.top_p, [&] { return json.number("top_p", 0, 1); });
    read(defaults.min_p, [&] { return json.number("min_p", 0, 1); });
    read(defaults.repetition_penalty, [&] { return json.number("repetition_penalty", 1e-6, kLarge); });
    defaults.eos_token_ids = json.token_ids("eos_token_id", vocab_size, defaults.warnings);
    warn_of_not_applied(document, origin, defaults.warnings);
    return defaults;
}

GenerationDefaults GenerationDefaults::load(const std::filesystem::path& directory, int vocab_size) {
    const std::filesystem::path file = directory / "generation_config.json";
    if (!weights::exists(file)) return {};
    return parse(weights::read_json_text(file), file.string(), vocab_size);
}

}  // namespace llmgen
