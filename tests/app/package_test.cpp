// cmake --install, then a program that finds the package, builds and answers.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/app/checkpoint.h"
#include "tests/support.h"

namespace llmgen::test {
namespace {

TEST(Package, AnExampleBuildsAgainstTheInstalledLibrary) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a program built without sanitizers can't load a library built with them";
#endif
    TempDir dir;
    const std::string prefix = dir.at("prefix"), build = dir.at("build"), log = dir.at("log");
    const auto shell = [&](const std::string& command) {
        return std::system((command + " > " + log + " 2>&1").c_str());
    };
    const std::string cmake = LLMGEN_CMAKE;
    ASSERT_EQ(shell(cmake + " --install " LLMGEN_BUILD_DIR " --prefix " + prefix), 0) << slurp(log);
    for (const char* file : {"bin/llmgen", "share/man/man1/llmgen.1",
                             "share/bash-completion/completions/llmgen", "include/llmgen/llmgen.h"})
        EXPECT_TRUE(std::filesystem::exists(prefix + "/" + file)) << file;
    EXPECT_EQ(shell(prefix + "/bin/llmgen --version"), 0) << slurp(log);
    const std::string source = (data("..") / "app/example").string();
    ASSERT_EQ(shell(cmake + " -G Ninja -S " + source + " -B " + build + " -DCMAKE_PREFIX_PATH=" + prefix), 0)
        << slurp(log);
    ASSERT_EQ(shell(cmake + " --build " + build), 0) << slurp(log);
    EXPECT_EQ(shell(build + "/example " + tiny_checkpoint()), 0) << slurp(log);
    EXPECT_NE(slurp(log).find("ended by"), std::string::npos) << slurp(log);
}

}  // namespace
}  // namespace llmgen::test
