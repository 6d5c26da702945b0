// The kernels' tests with the PTX in the place of the source, and what all of them together reached.
//
//   ptx_test                       every test; without PTX (no nvcc at build time) only the interpreter's own
//   ptx_test --ptx=FOLDER          another folder of *.ptx: tools/mutate_kernels' mutants
//   ptx_test --coverage=FILE       what was reached, by file and kernel; fails below 95 %
//   ptx_test --reached=FILE        every instruction that was executed, as file:line
//   ptx_test --launches=FILE       test, entry and executed instructions, a line for each pair
//   ptx_test --only=ENTRY          launches of this entry alone; the rest runs from source
//   ptx_test --fail-at-once        ends at the first failure, for mutants
//   ptx_test --write-profile=FILE  writes profile_test.cpp's table instead of comparing with it
//   ptx_test --profile=FILE        compares with that table
//   ptx_test --differences         how far PTX and source were apart, by launch
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "ptx/coverage.h"
#include "ptx/options.h"

namespace llmgen::ptx {

Options& options() {
    static Options instance;
    return instance;
}

namespace {

constexpr double kLeastCoverage = 0.95;

bool has_ptx() { return std::filesystem::exists(options().folder); }

class Environment : public testing::Environment {
public:
    void SetUp() override {
        if (!has_ptx()) return;
        witness_ = std::make_unique<Witness>(options().folder);
        witness_->only = plain_name(options().only);
        witness_->install();
    }
    void TearDown() override {
        if (witness_ == nullptr) return;
        if (options().differences)
            for (const auto& [name, d] : witness_->differences())
                std::printf(
                    "%-24s %6lu launches, %9lu values in arrays that differ, %7lu unequal, largest %.3g\n",
                    name.c_str(), d.launches, d.values, d.unequal, d.largest);
        if (!options().coverage.empty()) {
            std::ofstream out(options().coverage);
            const Coverage coverage = report_coverage(*witness_, out);
            EXPECT_GE(coverage.share(), kLeastCoverage) << "see " << options().coverage;
            std::printf("coverage: %zu of %zu instructions, %.2f %%; see %s\n", coverage.reached,
                        coverage.all, 100 * coverage.share(), options().coverage.c_str());
        }
        if (!options().reached.empty()) {
            std::ofstream out(options().reached);
            write_reached(*witness_, out);
        }
        witness_.reset();
    }

private:
    std::unique_ptr<Witness> witness_;
};

/// For a mutant of one entry, tests that only compare each launch with its source needn't run the others'
/// launches, but for the kernels that go on with what another has left.
class SkipOthers : public testing::EmptyTestEventListener {
public:
    void OnTestStart(const testing::TestInfo& test) override {
        if (options().only.empty() || Witness::current() == nullptr) return;
        bool alone = std::string_view(test.test_suite_name()).ends_with("Paths");
        for (const char* second : {"take_best", "gather"})
            alone = alone && options().only.find(second) == std::string::npos;
        Witness::current()->skip_others = alone;
    }
};

/// Who launches what, and how long it is at it: the tests that a mutant of an entry must pass.
class LaunchLog : public testing::EmptyTestEventListener {
public:
    void OnTestStart(const testing::TestInfo&) override {
        if (!options().launches.empty() && Witness::current() != nullptr)
            before_ = executed_by_entry(*Witness::current());
    }
    void OnTestEnd(const testing::TestInfo& test) override {
        if (options().launches.empty() || Witness::current() == nullptr) return;
        std::ofstream out(options().launches, std::ios::app);
        for (const auto& [entry, n] : executed_by_entry(*Witness::current()))
            if (n > before_[entry])
                out << test.test_suite_name() << '.' << test.name() << '\t' << entry << '\t'
                    << n - before_[entry] << '\n';
    }

private:
    std::map<std::string, std::uint64_t> before_;
};

class EndAtFailure : public testing::EmptyTestEventListener {
public:
    void OnTestPartResult(const testing::TestPartResult& result) override {
        if (!options().fail_at_once || !result.failed()) return;
        std::printf("%s\n", result.message());
        std::fflush(stdout);
        _exit(1);
    }
};

TEST(Ptx, EveryEntryIsUnderstood) {
    if (!has_ptx()) GTEST_SKIP() << "needs nvcc, at build time";
    Witness witness(options().folder);
    for (const auto& [entry, file] : witness.entries()) EXPECT_NO_THROW(witness.kernel(entry)) << entry;
}

}  // namespace
}  // namespace llmgen::ptx

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    using namespace llmgen::ptx;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument.starts_with("--ptx="))
            options().folder = argument.substr(6);
        else if (argument.starts_with("--coverage="))
            options().coverage = argument.substr(11);
        else if (argument.starts_with("--reached="))
            options().reached = argument.substr(10);
        else if (argument.starts_with("--launches="))
            options().launches = argument.substr(11);
        else if (argument.starts_with("--only="))
            options().only = argument.substr(7);
        else if (argument.starts_with("--write-profile="))
            options().write_profile = argument.substr(16);
        else if (argument.starts_with("--profile="))
            options().profile = argument.substr(10);
        else if (argument == "--fail-at-once")
            options().fail_at_once = true;
        else if (argument == "--differences")
            options().differences = true;
        else
            return std::cerr << "unknown: " << argument << '\n', 2;
    }
    if (!has_ptx()) {
        std::printf("SKIPPED: the kernels' tests need PTX, and there was no nvcc at build time\n");
        GTEST_FLAG_SET(filter, "Ptx*");
    }
    testing::AddGlobalTestEnvironment(new Environment);
    testing::UnitTest::GetInstance()->listeners().Append(new EndAtFailure);
    testing::UnitTest::GetInstance()->listeners().Append(new LaunchLog);
    testing::UnitTest::GetInstance()->listeners().Append(new SkipOthers);
    return RUN_ALL_TESTS();
}
