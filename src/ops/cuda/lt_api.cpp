#include "ops/cuda/lt_api.h"

#include "base/error.h"

#ifndef LLMGEN_LINKED_CUBLASLT
#include <dlfcn.h>
#endif
#ifndef LLMGEN_CUDA_LIBRARY_DIR
#define LLMGEN_CUDA_LIBRARY_DIR "/usr/local/cuda/lib64"
#endif

namespace llmgen::cuda {

#ifdef LLMGEN_LINKED_CUBLASLT

std::string lt_library_name() { return "cublasLt, linked"; }

LtApi load_lt_api(const char*, std::string& problem) {
    problem.clear();
    LtApi api;
#define LLMGEN_LT_LINK(name) api.name = &::name;
    LLMGEN_LT_CALLS(LLMGEN_LT_LINK)
#undef LLMGEN_LT_LINK
    return api;
}

#else

std::string lt_library_name() { return fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR); }

namespace {

/// Never closed: the library's threads and handlers would outlive it.
void* open_library(const char* path) {
    constexpr int kHow = RTLD_NOW | RTLD_LOCAL;
    if (path != nullptr) return dlopen(path, kHow);
    const std::string name = lt_library_name();
    if (void* library = dlopen(name.c_str(), kHow)) return library;
    for (const char* folder : {LLMGEN_CUDA_LIBRARY_DIR, "/usr/local/cuda/lib64"})
        if (void* library = dlopen((std::string(folder) + "/" + name).c_str(), kHow)) return library;
    return nullptr;
}

}  // namespace

LtApi load_lt_api(const char* path, std::string& problem) {
    problem.clear();
    void* library = open_library(path);
    if (library == nullptr) {
        problem = fmt::format(
            "{} not found, which multiplies the matrices of longer prompts: install cuBLAS {} (package "
            "libcublas or PyPI's nvidia-cublas) and name its folder in LD_LIBRARY_PATH",
            path != nullptr ? path : lt_library_name(), CUBLAS_VER_MAJOR);
        return {};
    }
    LtApi api;
    std::string missing;
#define LLMGEN_LT_FIND(name)                                                \
    api.name = reinterpret_cast<decltype(api.name)>(dlsym(library, #name)); \
    if (api.name == nullptr && missing.empty()) missing = #name;
    LLMGEN_LT_CALLS(LLMGEN_LT_FIND)
#undef LLMGEN_LT_FIND
    if (!missing.empty()) {
        problem = fmt::format("{} has no {}: it is another version than {}",
                              path != nullptr ? path : lt_library_name(), missing, CUBLAS_VER_MAJOR);
        return {};
    }
    const std::size_t version = api.cublasLtGetVersion();  // 13·10⁴ + … in 13, 12·10⁴ + … in 12
    if (version / 10000 != CUBLAS_VER_MAJOR) {
        problem = fmt::format("{} is version {}, this llmgen was built with {}.{}", lt_library_name(),
                              version, CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR);
        return {};
    }
    return api;
}

#endif

namespace {

struct Found {
    std::string problem;
    LtApi api = load_lt_api(nullptr, problem);
};
const Found& found() {
    static const Found once;
    return once;
}

}  // namespace

std::string lt_problem() { return found().problem; }

const LtApi& lt_api() {
    if (!found().problem.empty()) fail("{}", found().problem);
    return found().api;
}

}  // namespace llmgen::cuda
