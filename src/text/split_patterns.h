// The split patterns that most checkpoints use, written out by hand: 5 to 10 times the speed of the regex
// engine. tests/text/split_patterns_test.cpp holds each equal to its regex on random Unicode.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace llmgen {

/// A half-open range of bytes.
struct Span {
    std::uint32_t begin = 0, end = 0;
};

/// Appends the pieces of `text`, which together cover it; `base` is added to all offsets. `text` must be
/// valid UTF-8.
using SplitFunction = void (*)(std::string_view text, std::uint32_t base, std::vector<Span>& pieces);

/// The hand-written splitter of a regex, nullptr where there is none.
SplitFunction known_pattern(std::string_view regex);

/// GPT-2's own pattern, which ByteLevel(use_regex) implies.
void split_gpt2(std::string_view text, std::uint32_t base, std::vector<Span>& pieces);

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace llmgen
