// The hand-written split patterns against the regexes they stand for, on random Unicode.
#include "text/split_patterns.h"

#include <random>

#include "base/utf8.h"
#include "support.h"
#include "text/regex.h"

namespace llmgen::test {
namespace {

std::string random_text(std::mt19937& rng) {
    static const std::vector<std::string> parts = {
        "a",    "Z",      "é",      "你",         "1",      "²",      "Ⅷ",          " ",   "  ", "\n",
        "\r\n", "\r",     "\t",     "\u00a0",     "\u3000", "\u0085", "'",          "'s",  "'S", "'ſ",
        "'re",  "'LL",    "'vE",    "'m",         "'d",     "'x",     ".",          "!!",  "_",  "-",
        "(",    "\u0301", "\u200d", "\U0001F917", "न",      "्",       "\U0001E4D0", "ǅ",   "ʰ",  "/",
        "x'",   " '",     "s",      "t",          "ve",     "\u2028", "\u180e",     "\x1c"};
    std::string text;
    const unsigned n = rng() % 24;
    for (unsigned i = 0; i < n; ++i) {
        if (rng() % 6 == 0) {
            char32_t c = rng() % 3 == 0 ? rng() % 0x110000 : rng() % 0x3100;
            if (c >= 0xD800 && c < 0xE000) c = 'q';
            utf8::append(text, c);
        } else {
            text += parts[rng() % parts.size()];
        }
    }
    return text;
}

void expect_equal(std::string_view pattern) {
    const SplitFunction fast = known_pattern(pattern);
    ASSERT_NE(fast, nullptr);
    const Regex regex(pattern, "test");
    std::mt19937 rng(20260704);
    for (int i = 0; i < 20000; ++i) {
        const std::string text = random_text(rng);
        std::vector<Span> a, b;
        fast(text, 0, a);
        Regex::Subject(regex, text).find_all({0, std::uint32_t(text.size())}, b);
        bool same = a.size() == b.size();
        for (std::size_t k = 0; same && k < a.size(); ++k)
            same = a[k].begin == b[k].begin && a[k].end == b[k].end;
        ASSERT_TRUE(same) << "text " << i << ": " << testing::PrintToString(text) << " has " << a.size()
                          << " pieces by hand, " << b.size() << " by regex";
    }
}

TEST(TokenizerSplitPatterns, Gpt2) { expect_equal(kGpt2Pattern); }
TEST(TokenizerSplitPatterns, Llama3) { expect_equal(kLlama3Pattern); }
TEST(TokenizerSplitPatterns, Qwen2) { expect_equal(kQwen2Pattern); }
TEST(TokenizerSplitPatterns, Cl100k) {
    expect_equal(
        R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)");
}
TEST(TokenizerSplitPatterns, Qwen35) {
    expect_equal(
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
}

}  // namespace
}  // namespace llmgen::test
