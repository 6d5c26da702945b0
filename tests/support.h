// What tests of every room share: where data lies, and how a test that needs absent data says so.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace llmgen::test {

/// tests/data of this tree, or what the environment names: a test may run on another machine than it was
/// built on.
inline std::filesystem::path data(const std::string& name) {
    const char* given = std::getenv("LLMGEN_TEST_DATA");
    return std::filesystem::path(given != nullptr ? given : LLMGEN_TEST_DATA) / name;
}

/// The reference material beside the project; absent in a clone that stands alone.
inline std::filesystem::path shared(const std::string& name) {
    return std::filesystem::path(LLMGEN_SHARED) / name;
}

}  // namespace llmgen::test

#define SKIP_WITHOUT(where) \
    if (!std::filesystem::exists(where)) GTEST_SKIP() << "needs " << std::filesystem::path(where).string()
