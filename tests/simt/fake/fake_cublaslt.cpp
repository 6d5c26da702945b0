// The fake cuBLASLt: descriptions are kept and compared, the product is computed on the CPU with f32 sums
// when its stream comes to it. An algorithm remembers what it was picked for.
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "cublasLt.h"
#include "simt/fake/fake_cuda.h"

using namespace llmgen;
using namespace llmgen::simt;

struct cublasLtContext {
    int device = 0;
};
struct cublasLtMatmulDescOpaque_t {
    cublasOperation_t transpose_a = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const float* bias = nullptr;
};
struct cublasLtMatrixLayoutOpaque_t {
    cudaDataType_t type;
    std::uint64_t rows, columns;
    std::int64_t leading;
};
struct cublasLtMatmulPreferenceOpaque_t {
    std::uint64_t workspace = 0;
    std::array<std::uint32_t, 4> alignment{256, 256, 256, 256};
};

namespace {

using Layout = cublasLtMatrixLayoutOpaque_t;

std::size_t size_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

/// Column `j` of a matrix as f32.
void load(float* to, const void* from, const Layout& layout, std::uint64_t j) {
    const std::size_t first = std::size_t(j) * std::size_t(layout.leading);
    for (std::size_t k = 0; k < layout.rows; ++k) {
        if (layout.type == CUDA_R_32F)
            to[k] = static_cast<const float*>(from)[first + k];
        else if (layout.type == CUDA_R_16BF)
            to[k] = to_f32(static_cast<const bf16*>(from)[first + k]);
        else
            to[k] = to_f32(static_cast<const f16*>(from)[first + k]);
    }
}

float dot(const float* a, const float* b, std::size_t n) {
    constexpr std::size_t kLanes = 16;
    float sums[kLanes] = {};
    std::size_t k = 0;
    for (; k + kLanes <= n; k += kLanes)
        for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[k + lane] * b[k + lane];
    float sum = 0;
    for (const float s : sums) sum += s;
    for (; k < n; ++k) sum += a[k] * b[k];
    return sum;
}

struct Product {
    Layout a, b, d;
    const void *a_data, *b_data;
    void* d_data;
    const float* bias;
    float alpha, beta;

    void compute() const {
        const std::size_t depth = a.rows, out = a.columns, n = b.columns;
        std::vector<float> x(depth * n), w(depth);
        for (std::size_t j = 0; j < n; ++j) load(&x[j * depth], b_data, b, j);
        for (std::size_t i = 0; i < out; ++i) {
            load(w.data(), a_data, a, i);
            for (std::size_t j = 0; j < n; ++j) {
                const std::size_t at = j * std::size_t(d.leading) + i;
                store(at, alpha * dot(w.data(), &x[j * depth], depth) + (bias != nullptr ? bias[i] : 0.0f));
            }
        }
    }
    void store(std::size_t at, float value) const {
        if (d.type == CUDA_R_32F) {
            float& y = static_cast<float*>(d_data)[at];
            y = beta == 0 ? value : value + beta * y;
        } else if (d.type == CUDA_R_16BF) {
            bf16& y = static_cast<bf16*>(d_data)[at];
            y = to_bf16(beta == 0 ? value : value + beta * to_f32(y));
        } else {
            f16& y = static_cast<f16*>(d_data)[at];
            y = to_f16(beta == 0 ? value : value + beta * to_f32(y));
        }
    }
};

/// What an algorithm was asked for: alignments of a, b, d in bytes, workspace, shape.
cublasLtMatmulAlgo_t algorithm_for(const cublasLtMatmulPreferenceOpaque_t& preference,
                                   const Layout& a,
                                   const Layout& b,
                                   const Layout& d) {
    return {{preference.alignment[0], preference.alignment[1], preference.alignment[3], preference.workspace,
             a.rows, a.columns, b.columns,
             std::uint64_t(a.type) << 16 | std::uint64_t(b.type) << 8 | std::uint64_t(d.type)}};
}

void check_operand(const char* name, const void* p, const Layout& layout, std::uint64_t alignment) {
    if (reinterpret_cast<std::uintptr_t>(p) % alignment != 0)
        throw Fault(
            fmt::format("cublasLtMatmul: {} is less aligned than the {} bytes its algorithm was asked for",
                        name, alignment));
    const std::size_t values = (layout.columns - 1) * std::size_t(layout.leading) + layout.rows;
    if (!FakeCuda::get().is_device(p, values * size_of(layout.type)))
        throw Fault(fmt::format("cublasLtMatmul: {} reaches past live device memory", name));
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    *handle = new cublasLtContext{FakeCuda::current_device()};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
std::size_t cublasLtGetVersion() { return CUBLAS_VER_MAJOR * 10000; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_OF_THE_FAKE";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t, cudaDataType_t) {
    *desc = new cublasLtMatmulDescOpaque_t;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value,
                                              std::size_t bytes) {
    const auto take = [&](auto& member) {
        if (bytes != sizeof member) return CUBLAS_STATUS_INVALID_VALUE;
        std::memcpy(&member, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    };
    switch (attribute) {
        case CUBLASLT_MATMUL_DESC_TRANSA:
            return take(desc->transpose_a);
        case CUBLASLT_MATMUL_DESC_EPILOGUE:
            return take(desc->epilogue);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
            return take(desc->bias);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                          cudaDataType_t type,
                                          std::uint64_t rows,
                                          std::uint64_t columns,
                                          std::int64_t leading) {
    *layout = new Layout{type, rows, columns, leading};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
    *preference = new cublasLtMatmulPreferenceOpaque_t;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value,
                                                    std::size_t bytes) {
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        if (bytes != sizeof preference->workspace) return CUBLAS_STATUS_INVALID_VALUE;
        std::memcpy(&preference->workspace, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    const auto which = std::size_t(attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
    if (which >= preference->alignment.size() || bytes != sizeof preference->alignment[which])
        return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&preference->alignment[which], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t,
                                              cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference,
                                              int n_wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* n_found) {
    *n_found = 0;
    if (FakeCuda::get().enter("cublasLtMatmulAlgoGetHeuristic") != cudaSuccess) {
        FakeCuda::get().take_last();
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (desc->transpose_a != CUBLAS_OP_T || a->rows != b->rows || a->columns != d->rows ||
        b->columns != d->columns || c->leading != d->leading || c->type != d->type || a->type != b->type ||
        a->leading < std::int64_t(a->rows) || b->leading < std::int64_t(b->rows) ||
        d->leading < std::int64_t(d->rows) || (d->type != CUDA_R_32F && d->type != a->type))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (desc->epilogue == CUBLASLT_EPILOGUE_BIAS && desc->bias == nullptr)
        throw Fault("cublasLtMatmulAlgoGetHeuristic: an epilogue with a bias, and none is set");
    if (n_wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
    results[0] = {algorithm_for(*preference, *a, *b, *d), std::size_t(preference->workspace),
                  CUBLAS_STATUS_SUCCESS, 1.0f};
    *n_found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle,
                              cublasLtMatmulDesc_t desc,
                              const void* alpha,
                              const void* a,
                              cublasLtMatrixLayout_t a_layout,
                              const void* b,
                              cublasLtMatrixLayout_t b_layout,
                              const void* beta,
                              const void* c,
                              cublasLtMatrixLayout_t,
                              void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm,
                              void* workspace,
                              std::size_t workspace_bytes,
                              cudaStream_t stream) {
    FakeCuda& cuda = FakeCuda::get();
    const std::lock_guard lock(cuda.mutex());
    if (cuda.enter("cublasLtMatmul") != cudaSuccess) {
        cuda.take_last();
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    FakeStream* mine = cuda.find(stream);
    if (mine == nullptr || c != d) return CUBLAS_STATUS_INVALID_VALUE;
    if (handle->device != mine->device || mine->device != FakeCuda::current_device())
        throw Fault("cublasLtMatmul: handle, stream and the thread's current device are not of one device");
    const auto& asked = algorithm->data;
    if (asked[4] != a_layout->rows || asked[5] != a_layout->columns || asked[6] != b_layout->columns)
        throw Fault("cublasLtMatmul: the algorithm was picked for another shape");
    if (workspace_bytes < asked[3] || (workspace_bytes > 0 && !cuda.is_device(workspace, workspace_bytes)))
        throw Fault("cublasLtMatmul: the workspace is smaller than its algorithm was told, or not there");
    const Product product{*a_layout,
                          *b_layout,
                          *d_layout,
                          a,
                          b,
                          d,
                          desc->epilogue == CUBLASLT_EPILOGUE_BIAS ? desc->bias : nullptr,
                          *static_cast<const float*>(alpha),
                          *static_cast<const float*>(beta)};
    const std::array<std::uint64_t, 3> alignment{asked[0], asked[1], asked[2]};
    auto work = std::make_shared<Work>();
    work->kind = Work::Kind::host;
    work->what = "GEMM";
    work->run = [=] {
        check_operand("A", product.a_data, product.a, alignment[0]);
        check_operand("B", product.b_data, product.b, alignment[1]);
        check_operand("D", product.d_data, product.d, alignment[2]);
        if (FakeCuda::get().card.dry) return;
        // It may use the workspace: whoever else relies on what is there finds this.
        if (workspace_bytes > 0) std::memset(workspace, 0xa5, std::min<std::size_t>(workspace_bytes, 4096));
        product.compute();
    };
    cuda.enqueue(*mine, std::move(work));
    return CUBLAS_STATUS_SUCCESS;
}
