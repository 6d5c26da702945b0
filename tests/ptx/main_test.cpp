// The kernels' tests with the PTX in the place of the source, then what all of them together reached.
#include <gtest/gtest.h>

#include <filesystem>

#include "ptx/witness.h"

namespace llmgen::ptx {
namespace {

class Environment : public testing::Environment {
public:
    void SetUp() override {
        if (!std::filesystem::exists(LLMGEN_PTX)) return;
        witness_ = std::make_unique<Witness>(LLMGEN_PTX);
        witness_->install();
    }
    void TearDown() override {
        if (witness_ == nullptr) return;
        for (const auto& [name, d] : witness_->differences())
            std::printf("%-24s %6lu launches, %9lu values, %7lu unequal, largest %.3g\n", name.c_str(),
                        d.launches, d.values, d.unequal, d.largest);
        witness_.reset();
    }

private:
    std::unique_ptr<Witness> witness_;
};

const auto* const environment = testing::AddGlobalTestEnvironment(new Environment);

TEST(Ptx, EveryEntryIsUnderstood) {
    if (!std::filesystem::exists(LLMGEN_PTX)) GTEST_SKIP() << "needs nvcc, at build time";
    Witness witness(LLMGEN_PTX);
    for (const auto& [entry, file] : witness.entries()) EXPECT_NO_THROW(witness.kernel(entry)) << entry;
}

}  // namespace
}  // namespace llmgen::ptx
