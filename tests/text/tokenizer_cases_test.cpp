// Every line of the reference cases, ids, text and chunks alike.
#include "tokenizer_cases.h"

#include <iostream>

#include "support.h"

namespace llmgen::test {
namespace {

void expect_all(const std::filesystem::path& file, const Locate& locate) {
    const ReplayCounts counts = replay_cases(file, locate);
    std::cout << file.filename().string() << ": " << counts.lines << " lines, " << counts.wrong << " wrong, "
              << counts.without_tokenizer << " without their tokenizer\n";
    for (const auto& [name, n] : counts.wrong_by_tokenizer) ADD_FAILURE() << name << ": " << n << " wrong";
    EXPECT_GT(counts.lines, 0);
}

std::optional<std::filesystem::path> locate_own(const std::string& name) {
    for (const char* ending : {".json", ".model"})
        if (const auto file = data("text/tokenizers/" + name + ending); std::filesystem::exists(file))
            return file;
    return std::nullopt;
}

// Made by tools/tokens_fixtures.py from the reference.
TEST(TokenizerCases, OwnTokenize) { expect_all(data("text/tokenize.jsonl"), locate_own); }
TEST(TokenizerCases, OwnDetokenize) { expect_all(data("text/detokenize.jsonl"), locate_own); }

TEST(TokenizerCases, SharedTokenize) {
    SKIP_WITHOUT(shared("cases/tokenize.jsonl"));
    expect_all(shared("cases/tokenize.jsonl"), locate_shared);
}

TEST(TokenizerCases, SharedDetokenize) {
    SKIP_WITHOUT(shared("cases/detokenize.jsonl"));
    expect_all(shared("cases/detokenize.jsonl"), locate_shared);
}

}  // namespace
}  // namespace llmgen::test
