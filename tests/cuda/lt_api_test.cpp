// cuBLASLt is found when it is asked for, and what is wrong with it is said in one line.
#include "ops/cuda/lt_api.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "support.h"

namespace llmgen::cuda {
namespace {

using ::testing::HasSubstr;

TEST(LtApi, AMissingLibraryIsNamedWithWhatToDo) {
    std::string problem;
    const LtApi api = load_lt_api("/nowhere/libcublasLt.so", problem);
    EXPECT_EQ(api.cublasLtMatmul, nullptr);
    EXPECT_THAT(problem, HasSubstr("/nowhere/libcublasLt.so not found"));
    EXPECT_THAT(problem, HasSubstr("nvidia-cublas"));
    EXPECT_EQ(problem.find('\n'), std::string::npos);
}

TEST(LtApi, ALibraryWithoutItsFunctionsIsAnotherVersion) {
    std::string problem;
    const LtApi api = load_lt_api("libm.so.6", problem);
    EXPECT_EQ(api.cublasLtMatmul, nullptr);
    EXPECT_THAT(problem, HasSubstr("libm.so.6 has no cublasLtCreate"));
}

TEST(LtApi, TheToolkitsLibraryIsFound) {
    std::string problem;
    const LtApi api = load_lt_api(nullptr, problem);
    if (!problem.empty()) GTEST_SKIP() << problem;
    EXPECT_NE(api.cublasLtMatmul, nullptr);
    EXPECT_EQ(api.cublasLtGetVersion() / 10000, std::size_t(CUBLAS_VER_MAJOR));
    EXPECT_EQ(lt_problem(), "");
    EXPECT_EQ(lt_api().cublasLtMatmul, api.cublasLtMatmul);
}

}  // namespace
}  // namespace llmgen::cuda
