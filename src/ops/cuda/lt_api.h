// cuBLASLt's functions, found when they are first asked for: a binary that was linked to the library would
// not start where there is none. With LLMGEN_LINKED_CUBLASLT they are linked after all.
#pragma once

#include <cublasLt.h>

#include <string>

namespace llmgen::cuda {

#define LLMGEN_LT_CALLS(CALL)                  \
    CALL(cublasLtCreate)                       \
    CALL(cublasLtDestroy)                      \
    CALL(cublasLtGetVersion)                   \
    CALL(cublasLtGetStatusName)                \
    CALL(cublasLtMatmulDescCreate)             \
    CALL(cublasLtMatmulDescDestroy)            \
    CALL(cublasLtMatmulDescSetAttribute)       \
    CALL(cublasLtMatrixLayoutCreate)           \
    CALL(cublasLtMatrixLayoutDestroy)          \
    CALL(cublasLtMatmulPreferenceCreate)       \
    CALL(cublasLtMatmulPreferenceDestroy)      \
    CALL(cublasLtMatmulPreferenceSetAttribute) \
    CALL(cublasLtMatmulAlgoGetHeuristic)       \
    CALL(cublasLtMatmul)

struct LtApi {
#define LLMGEN_LT_MEMBER(name) decltype(&::name) name = nullptr;
    LLMGEN_LT_CALLS(LLMGEN_LT_MEMBER)
#undef LLMGEN_LT_MEMBER
};

/// Where the library's file is looked for, in this order: the loader's own places by name, then the folder of
/// the toolkit that built llmgen, then the usual one.
std::string lt_library_name();

/// The functions of the library at `path` (null: of the places above). Where there is none, or one of another
/// major version, `problem` says so in one line and the functions are null.
LtApi load_lt_api(const char* path, std::string& problem);

/// Why there is no cuBLASLt, one line; empty where there is one.
std::string lt_problem();
/// Throws Error with the problem.
const LtApi& lt_api();

}  // namespace llmgen::cuda
