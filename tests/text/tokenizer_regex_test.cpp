// The split patterns' engine against the reference's, construct by construct.
#include "text/regex.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "llmgen/error.h"
#include "support.h"
#include "text/pre_tokenizer.h"

namespace llmgen::test {
namespace {

std::vector<std::string> pieces(const std::string& pattern, const std::string& text, Behavior behavior) {
    const auto split = make_regex_split(pattern, behavior, false, "test");
    PreText t;
    t.text = text;
    t.pieces = {{0, std::uint32_t(text.size())}};
    split->apply(t);
    std::vector<std::string> out;
    for (const Span s : t.pieces) out.emplace_back(t.text.substr(s.begin, s.end - s.begin));
    return out;
}

// Lines made by tools/tokens_fixtures.py from the reference.
TEST(TokenizerRegex, OwnCases) {
    std::ifstream in(data("text/regex.jsonl"));
    int lines = 0;
    for (std::string line; std::getline(in, line); ++lines) {
        const auto c = nlohmann::json::parse(line);
        const auto pattern = c["pattern"].get<std::string>(), text = c["text"].get<std::string>();
        try {
            EXPECT_EQ(pieces(pattern, text, Behavior::kIsolated),
                      c["isolated"].get<std::vector<std::string>>())
                << line;
            EXPECT_EQ(pieces(pattern, text, Behavior::kRemoved), c["removed"].get<std::vector<std::string>>())
                << line;
        } catch (const std::exception& e) {
            ADD_FAILURE() << e.what();
        }
    }
    EXPECT_GT(lines, 900);
}

TEST(TokenizerRegex, WhatIsNotKnownIsAnErrorOfOneLine) {
    for (const char* pattern :
         {"(",          "a)",     "[a",          "*a",        "\\",       "\\p{Nonsense}", "\\p",
          "(a)\\1",     "\\k<n>", "\\X",         "a{3,2}",    "(?<=a*)b", "(?~a)",         "(?(1)a|b)",
          "[[:nope:]]", "[z-a]",  "\\x{110000}", "a{100000}", "(?P<n>a)", "\\xff"}) {
        try {
            Regex regex(pattern, "FILE: pre_tokenizer");
            ADD_FAILURE() << pattern << " was taken";
        } catch (const Error& e) {
            const std::string what = e.what();
            EXPECT_TRUE(what.starts_with("FILE: pre_tokenizer: ")) << what;
            EXPECT_EQ(what.find('\n'), what.npos) << what;
        }
    }
}

TEST(TokenizerRegex, DeepNestingIsAnErrorNotACrash) {
    std::string pattern;
    for (int i = 0; i < 100000; ++i) pattern += '(';
    EXPECT_THROW(Regex(pattern, "x"), Error);
    pattern.assign(100000, '[');
    EXPECT_THROW(Regex(pattern, "x"), Error);
}

TEST(TokenizerRegex, TooManyStepsAreAnErrorNotAHang) {
    const Regex regex("(?:(?:a|a)+)+(?=c|d)", "x");
    const std::string text(2000, 'a');
    std::vector<Span> matches;
    Regex::Subject subject(regex, text);
    EXPECT_THROW(subject.find_all({0, std::uint32_t(text.size())}, matches), Error);
}

TEST(TokenizerRegex, LongGroupsDoNotOverflowAStack) {
    const Regex regex("(?:\\r?\\n)+(?!\\r?\\n)|(?:ab?)+", "x");
    std::string text(1 << 20, '\n');
    text += std::string(1 << 20, 'a');
    std::vector<Span> matches;
    Regex::Subject subject(regex, text);
    subject.find_all({0, std::uint32_t(text.size())}, matches);
    ASSERT_EQ(matches.size(), 2U);
    EXPECT_EQ(matches[0].end, 1U << 20);
}

}  // namespace
}  // namespace llmgen::test
