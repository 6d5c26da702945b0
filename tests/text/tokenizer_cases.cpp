#include "tokenizer_cases.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <vector>

#include "base/sha256.h"
#include "support.h"
#include "text/base64.h"

namespace llmgen::test {
namespace {

using nlohmann::json;

std::string case_text(const json& c) {
    if (c.contains("text")) return c["text"].get<std::string>();
    if (c.contains("text_b64")) return decode_base64_text(c["text_b64"].get<std::string>());
    const json& g = c["text_gen"];
    std::string text = g.value("prefix", "");
    const auto repeat = g["repeat"].get<std::string>();
    for (int i = 0; i < g["n"].get<int>(); ++i) text += repeat;
    return text + g.value("suffix", "");
}

std::string sha256_of_ids(const std::vector<int>& ids) {
    std::string bytes;
    for (int id : ids)
        for (int shift = 0; shift < 32; shift += 8) bytes += char(id >> shift & 0xFF);
    return Sha256().update(bytes).hex();
}

std::string shown(const json& j) {
    return j.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 600);
}

/// What the tokenizer makes of a case, in the case's own keys.
json answer(const Tokenizer& tokenizer, const json& c) {
    json out;
    if (c.contains("add_special_tokens")) {
        EncodeOptions options;
        options.add_special_tokens = c["add_special_tokens"].get<bool>();
        const std::vector<int> ids = tokenizer.encode(case_text(c), options);
        if (c.contains("ids"))
            out["ids"] = ids;
        else
            out = {{"n_ids", ids.size()}, {"ids_sha256", sha256_of_ids(ids)}};
        return out;
    }
    const auto ids = c["ids"].get<std::vector<int>>();
    const bool skip = c["skip_special_tokens"].get<bool>();
    const std::string whole = tokenizer.decode(ids, skip);
    if (!c.contains("chunks")) {
        out["text"] = whole;
        return out;
    }
    Detokenizer detokenizer(tokenizer, skip);
    std::string joined;
    out["chunks"] = json::array();
    for (int id : ids) out["chunks"].push_back(detokenizer.push(id));
    out["flush"] = detokenizer.flush();
    for (const auto& chunk : out["chunks"]) joined += chunk.get<std::string>();
    if (joined + out["flush"].get<std::string>() != whole) out["joined"] = "differs from decode()";
    return out;
}

json expected(const json& c) {
    json out;
    for (const char* key : {"chunks", "flush", "ids_sha256", "n_ids"})
        if (c.contains(key)) out[key] = c[key];
    if (c.contains("add_special_tokens") && c.contains("ids")) out["ids"] = c["ids"];
    if (c.contains("skip_special_tokens") && !c.contains("chunks")) out["text"] = case_text(c);
    return out;
}

}  // namespace

std::string decode_base64_text(const std::string& text) { return decode_base64(text).value(); }

std::optional<std::filesystem::path> locate_shared(const std::string& name) {
    for (const char* ending : {".json", ".model"}) {
        const auto file = shared("cases/tokenizers") / (name + ending);
        if (std::filesystem::exists(file)) return file;
    }
    if (const auto dir = shared("data/tokenizers") / name; std::filesystem::exists(dir)) return dir;
    if (name != "smollm2") return std::nullopt;
    std::vector<std::filesystem::path> places;
    if (const char* dir = std::getenv("LLMGEN_SMOLLM2")) places.emplace_back(dir);
    if (const char* home = std::getenv("HOME")) {
        const std::filesystem::path cache = std::filesystem::path(home) / ".cache/llmgen";
        if (std::filesystem::exists(cache))
            for (const auto& e : std::filesystem::recursive_directory_iterator(cache))
                if (e.path().filename() == "tokenizer.json" &&
                    (e.path().string().find("SmolLM2-135M-Instruct") != std::string::npos ||
                     e.path().string().find("smollm2-135m-instruct") != std::string::npos))
                    places.push_back(e.path().parent_path());
    }
    for (const auto& place : places)
        if (std::filesystem::exists(place / "tokenizer.json")) return place;
    return std::nullopt;
}

ReplayCounts replay_cases(const std::filesystem::path& file, const Locate& locate) {
    ReplayCounts counts;
    std::map<std::string, std::optional<Tokenizer>> tokenizers;
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
        if (line.empty()) continue;
        const json c = json::parse(line);
        const auto name = c["tokenizer"].get<std::string>();
        if (!tokenizers.contains(name)) {
            const auto place = locate(name);
            try {
                tokenizers.emplace(name, place ? std::optional(Tokenizer::load(*place)) : std::nullopt);
            } catch (const std::exception& e) {
                std::cerr << name << ": " << e.what() << "\n";
                ++counts.wrong_by_tokenizer[name];
                ++counts.wrong;
                tokenizers.emplace(name, std::nullopt);
            }
        }
        const auto& tokenizer = tokenizers.at(name);
        if (!tokenizer) {
            ++counts.without_tokenizer;
            continue;
        }
        ++counts.lines;
        json got;
        try {
            got = answer(*tokenizer, c);
        } catch (const std::exception& e) {
            got["error"] = e.what();
        }
        if (got == expected(c)) continue;
        ++counts.wrong;
        if (++counts.wrong_by_tokenizer[name] <= 3)
            std::cerr << "case     " << shown(c) << "\nexpected " << shown(expected(c)) << "\ngot      "
                      << shown(got) << "\n";
    }
    return counts;
}

}  // namespace llmgen::test
