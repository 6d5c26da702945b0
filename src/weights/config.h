// config.json and generation_config.json of a checkpoint, in the forms that transformers 4 and 5 write.
//
// Both are the user's data: every number is range-checked, every fault is an Error of one line that names
// the file and the key. Keys that are absent take the value that transformers gives them for that family
// (a table in config.cpp). Two places that disagree (rope_parameters and rope_theta, dtype and torch_dtype)
// leave a line in `warnings`, and the newer form wins.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace llmgen {

enum class RopeType : std::uint8_t { standard, linear, dynamic, yarn, llama3, longrope };

/// As config.json spells it: "default", "linear", …
std::string_view name_of(RopeType type);

/// What rope.h makes frequencies from. A field holds only where its type is named beside it.
struct RopeConfig {
    RopeType type = RopeType::standard;
    double theta = 10000;
    double partial_rotary_factor = 1;        // the part of each head's channels that turns
    double factor = 1;                       // linear, dynamic, yarn, llama3, longrope
    int original_max_position = 0;           // yarn, llama3, longrope
    double low_freq_factor = 1;              // llama3
    double high_freq_factor = 4;             // llama3
    double beta_fast = 32;                   // yarn
    double beta_slow = 1;                    // yarn
    bool truncate = true;                    // yarn
    std::optional<double> mscale;            // yarn
    std::optional<double> mscale_all_dim;    // yarn
    std::optional<double> attention_factor;  // yarn, longrope: on cos and sin; unset: from `factor`
    std::vector<double> short_factor;        // longrope, rotary_dim / 2 values
    std::vector<double> long_factor;         // longrope, rotary_dim / 2 values
};

struct ModelConfig {
    std::string architecture;  // architectures[0]: "LlamaForCausalLM"; made from model_type where absent
    std::string model_type;    // "llama"; made from the architecture where absent

    int hidden_size = 0;
    int intermediate_size = 0;
    int n_layers = 0;
    int n_heads = 0;
    int n_kv_heads = 0;  // divides n_heads
    int head_dim = 0;    // n_heads × head_dim need not be hidden_size
    int vocab_size = 0;  // rows of the embedding; the tokenizer may know fewer
    int max_position_embeddings = 0;
    double rms_norm_eps = 1e-6;
    std::string hidden_act = "silu";  // nothing else passes
    RopeConfig rope;

    /// Per layer: how many keys a query sees, itself included; 0 = all of them.
    std::vector<int> windows;

    bool tie_word_embeddings = false;
    bool attention_bias = false;         // q, k, v
    bool attention_output_bias = false;  // o
    bool mlp_bias = false;

    std::optional<DType> dtype;       // what the file says it was saved in; tensors say their own
    std::string quantization;         // quantization_config's method, "" for none
    std::optional<int> bos_token_id;  // may lie outside the tokenizer
    std::optional<int> pad_token_id;
    std::vector<int> eos_token_ids;    // each in [0, vocab_size), ascending
    std::string transformers_version;  // "" where absent

    std::vector<std::string> warnings;

    int n_rotary() const { return int(head_dim * rope.partial_rotary_factor); }  // channels that turn, even
    int q_size() const { return n_heads * head_dim; }
    int kv_size() const { return n_kv_heads * head_dim; }

    /// `path`: config.json or the directory that holds it; no weights are needed. `known`: the architectures
    /// (and model types) that the caller can run; where it isn't empty, any other is refused by name with the
    /// list before the rest is read.
    static ModelConfig load(const std::filesystem::path& path, std::span<const std::string> known = {});
    /// The same from text; `origin` stands in messages.
    static ModelConfig parse(std::string_view text,
                             const std::string& origin,
                             std::span<const std::string> known = {});
};

/// generation_config.json: unset is "the file doesn't say".
struct GenerationDefaults {
    std::optional<bool> do_sample;
    std::optional<double> temperature;
    std::optional<int> top_k;
    std::optional<double> top_p;
    std::optional<double> min_p;
    std::optional<double> repetition_penalty;
    std::vector<int> eos_token_ids;  // each in [0, vocab_size), ascending

    std::vector<std::string> warnings;

    /// generation_config.json of `directory`; all unset where there is none.
    static GenerationDefaults load(const std::filesystem::path& directory, int vocab_size);
    static GenerationDefaults parse(std::string_view text, const std::string& origin, int vocab_size);
};

}  // namespace llmgen
