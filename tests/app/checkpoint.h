// A tiny checkpoint made on the spot, so that a clone that stands alone tests the program end to end: a Llama
// of one layer with seeded random weights and a byte-level tokenizer. Its answers are noise, but the same
// noise each time, and full of broken UTF-8.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace llmgen::test {

/// A folder that goes away with the test.
class TempDir {
public:
    TempDir() {
        std::string name = (std::filesystem::temp_directory_path() / "llmgen-test-XXXXXX").string();
        if (!::mkdtemp(name.data())) std::abort();
        path_ = name;
    }
    ~TempDir() {
        std::error_code error;
        std::filesystem::remove_all(path_, error);
    }
    TempDir(const TempDir&) = delete;
    const std::filesystem::path& path() const { return path_; }
    std::string file(const std::string& name, const std::string& text) const {
        std::ofstream(path_ / name, std::ios::binary) << text;
        return (path_ / name).string();
    }
    std::string at(const std::string& name) const { return (path_ / name).string(); }

private:
    std::filesystem::path path_;
};

inline std::string slurp(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// The markers are the template's own text: one made from the role would be the caller's, and no control
// token.
inline constexpr const char* kTemplate =
    "{% for m in messages %}{% if m.role == 'assistant' and not loop.first and messages[loop.index0 - "
    "1].role == "
    "'assistant' %}{{ raise_exception('roles must alternate') }}{% endif %}{% if m.role == 'user' "
    "%}<|user|>{% elif "
    "m.role == 'system' %}<|system|>{% else %}<|assistant|>{% endif %}{{ m.content }}<|end|>{% endfor %}{% "
    "if "
    "add_generation_prompt %}<|assistant|>{% endif %}";

struct TinyOptions {
    bool with_template = true;
    bool with_bos = false;
    int context = 131072;
};

inline void write_tiny_checkpoint(const std::filesystem::path& dir, const TinyOptions& options = {}) {
    using nlohmann::json;
    const int vocab = 262, hidden = 32, intermediate = 64, heads = 4, kv_heads = 2;
    const auto put = [&](const char* name, const json& value) { std::ofstream(dir / name) << value.dump(); };
    // Byte-level: printable bytes stand for themselves, the others for U+0100 and up.
    json vocabulary = json::object();
    int shifted = 0;
    for (int byte = 0; byte < 256; ++byte) {
        const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        const int code = printable ? byte : 256 + shifted++;
        const std::string text = code < 128
                                     ? std::string(1, char(code))
                                     : std::string{char(0xC0 | (code >> 6)), char(0x80 | (code & 0x3F))};
        vocabulary[text] = byte;
    }
    const std::vector<std::string> special = {"<s>",           "<|end|>",    "<|user|>",
                                              "<|assistant|>", "<|system|>", "<pad>"};
    json added = json::array();
    for (std::size_t i = 0; i < special.size(); ++i)
        added.push_back({{"id", 256 + i},
                         {"content", special[i]},
                         {"special", true},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"single_word", false},
                         {"normalized", false}});
    json post = nullptr;
    if (options.with_bos)
        post = {{"type", "TemplateProcessing"},
                {"single", json::array({{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                                        {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}})},
                {"pair", json::array({{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                                      {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}})},
                {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {256}}, {"tokens", {"<s>"}}}}}}};
    put("tokenizer.json",
        {{"version", "1.0"},
         {"added_tokens", added},
         {"normalizer", nullptr},
         {"pre_tokenizer",
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
         {"post_processor", post},
         {"decoder",
          {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
         {"model",
          {{"type", "BPE"},
           {"dropout", nullptr},
           {"unk_token", nullptr},
           {"vocab", vocabulary},
           {"merges", json::array()}}}});
    json config = {
        {"eos_token", "<|end|>"}, {"bos_token", "<s>"}, {"tokenizer_class", "PreTrainedTokenizerFast"}};
    if (options.with_template) config["chat_template"] = kTemplate;
    put("tokenizer_config.json", config);
    put("generation_config.json", {{"eos_token_id", 257}, {"temperature", 0.8}, {"do_sample", true}});
    put("config.json", {{"architectures", {"LlamaForCausalLM"}},
                        {"model_type", "llama"},
                        {"vocab_size", vocab},
                        {"hidden_size", hidden},
                        {"intermediate_size", intermediate},
                        {"num_hidden_layers", 1},
                        {"num_attention_heads", heads},
                        {"num_key_value_heads", kv_heads},
                        {"max_position_embeddings", options.context},
                        {"rms_norm_eps", 1e-5},
                        {"rope_theta", 10000.0},
                        {"tie_word_embeddings", true},
                        {"torch_dtype", "float32"},
                        {"hidden_act", "silu"},
                        {"bos_token_id", 256},
                        {"eos_token_id", 257}});
    // Weights, largest deviations chosen so that the argmax is clear and wanders over the vocabulary.
    std::mt19937 random(7);
    const int head_dim = hidden / heads;
    const std::vector<std::pair<std::string, std::vector<int>>> tensors = {
        {"model.embed_tokens.weight", {vocab, hidden}},
        {"model.layers.0.input_layernorm.weight", {hidden}},
        {"model.layers.0.mlp.down_proj.weight", {hidden, intermediate}},
        {"model.layers.0.mlp.gate_proj.weight", {intermediate, hidden}},
        {"model.layers.0.mlp.up_proj.weight", {intermediate, hidden}},
        {"model.layers.0.post_attention_layernorm.weight", {hidden}},
        {"model.layers.0.self_attn.k_proj.weight", {kv_heads * head_dim, hidden}},
        {"model.layers.0.self_attn.o_proj.weight", {hidden, hidden}},
        {"model.layers.0.self_attn.q_proj.weight", {hidden, hidden}},
        {"model.layers.0.self_attn.v_proj.weight", {kv_heads * head_dim, hidden}},
        {"model.norm.weight", {hidden}}};
    json header = json::object();
    std::vector<float> data;
    for (const auto& [name, shape] : tensors) {
        std::size_t n = 1;
        for (const int axis : shape) n *= std::size_t(axis);
        const std::size_t begin = data.size() * 4;
        for (std::size_t i = 0; i < n; ++i) {
            const float uniform =
                float(random() >> 8) / float(1 << 24) - 0.5f;  // not a distribution: those differ by library
            data.push_back(shape.size() == 1 ? 1.0f
                                             : uniform * (name == "model.embed_tokens.weight" ? 1.0f : 0.9f));
        }
        header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, data.size() * 4}}};
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    std::ofstream file(dir / "model.safetensors", std::ios::binary);
    const std::uint64_t size = text.size();
    file.write(reinterpret_cast<const char*>(&size), 8);
    file << text;
    file.write(reinterpret_cast<const char*>(data.data()), std::streamsize(data.size() * 4));
}

/// One for all tests of the program.
inline const std::string& tiny_checkpoint() {
    static const TempDir dir;
    static const std::string path = [] {
        write_tiny_checkpoint(dir.path());
        return dir.path().string();
    }();
    return path;
}

}  // namespace llmgen::test
