// Replays files of tokenizer cases: one JSON object a line (shared/cases/TOKENIZERS.md describes them; ours
// in tests/data/text have the same form).
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "llmgen/tokenizer.h"

namespace llmgen::test {

struct ReplayCounts {
    int lines = 0, wrong = 0, without_tokenizer = 0;
    std::map<std::string, int> wrong_by_tokenizer;
};

/// `locate` gives the file or directory of a case's tokenizer; nullopt: skip the line.
using Locate = std::function<std::optional<std::filesystem::path>(const std::string& name)>;
/// Prints the first few differences to stderr.
ReplayCounts replay_cases(const std::filesystem::path& file, const Locate& locate);

/// shared/cases/tokenizers, shared/data/tokenizers and the SmolLM2 checkpoint, where they exist.
std::optional<std::filesystem::path> locate_shared(const std::string& name);

std::string decode_base64_text(const std::string& text);

}  // namespace llmgen::test
