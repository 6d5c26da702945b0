// Small tokenizers made on the spot.
#pragma once

#include <unistd.h>

#include <fmt/format.h>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "llmgen/error.h"
#include "llmgen/tokenizer.h"
#include "text/byte_level.h"
#include "text/tokenizer_impl.h"

namespace llmgen::test {

using nlohmann::json;

/// A directory that vanishes.
class TempDir {
public:
    explicit TempDir(const std::string& name)
        : path_(std::filesystem::temp_directory_path() /
                ("llmgen_" + name + "_" + std::to_string(::getpid()))) {
        std::filesystem::remove_all(path_);
        std::filesystem::create_directories(path_);
    }
    ~TempDir() { std::filesystem::remove_all(path_); }
    std::filesystem::path write(const std::string& name, const std::string& text) const {
        std::ofstream(path_ / name, std::ios::binary) << text;
        return path_ / name;
    }
    const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

inline Tokenizer load_json(const json& j) {
    const TempDir dir("toy");
    return Tokenizer::load(dir.write("tokenizer.json", j.dump()));
}

inline json added_token(const std::string& content, const json& flags = json::object()) {
    json t = {{"id", 0},         {"content", content},  {"single_word", false}, {"lstrip", false},
              {"rstrip", false}, {"normalized", false}, {"special", true}};
    t.update(flags);
    return t;
}

/// 256 bytes as ids 0…255 (byte b has id b), then `merges` ("a b"), then added tokens; split by Llama 3's
/// pattern.
inline json byte_toy(const std::vector<std::string>& merges = {}, const std::vector<json>& added = {}) {
    json vocab = json::object();
    for (int b = 0; b < 256; ++b) vocab[bytes_to_alphabet(std::string(1, char(b)))] = b;
    int id = 256;
    for (std::string m : merges) {
        m.erase(m.find(' '), 1);
        vocab[m] = id++;
    }
    const char* pattern =
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    const json byte_level = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
    return {{"version", "1.0"},
            {"added_tokens", added},
            {"normalizer", nullptr},
            {"pre_tokenizer",
             {{"type", "Sequence"},
              {"pretokenizers",
               {{{"type", "Split"},
                 {"pattern", {{"Regex", pattern}}},
                 {"behavior", "Isolated"},
                 {"invert", false}},
                byte_level}}}},
            {"post_processor", nullptr},
            {"decoder", byte_level},
            {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
}

/// TemplateProcessing with `bos` in front.
inline json with_bos(json j, const std::string& bos, int id) {
    j["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", bos}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"pair", json::array()},
        {"special_tokens", {{bos, {{"id", bos}, {"ids", {id}}, {"tokens", {bos}}}}}}};
    return j;
}

/// The strings of the tokens that `text` becomes.
inline std::vector<std::string> strings(const Tokenizer& t,
                                        const std::string& text,
                                        bool add_special = false) {
    EncodeOptions options;
    options.add_special_tokens = add_special;
    std::vector<std::string> out;
    for (int id : t.encode(text, options)) out.push_back(t.token(id));
    return out;
}

inline std::string error_of(const json& j) {
    try {
        load_json(j);
    } catch (const Error& e) {
        return e.what();
    }
    return "";
}

}  // namespace llmgen::test
