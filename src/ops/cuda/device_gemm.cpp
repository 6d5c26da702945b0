#include "ops/cuda/device_gemm.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"

namespace llmgen::cuda {
namespace {

/// Chunks of prompts have many lengths; past this many shapes the oldest knowledge isn't worth its memory.
constexpr std::size_t kMaxPlans = 4096;

cudaDataType_t type_of(DType type) {
    if (type == DType::f32) return CUDA_R_32F;
    return type == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

int alignment_of(const void* p) {
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    return int(std::min<std::uintptr_t>(256, address & (~address + 1)));
}

}  // namespace

GemmShape shape_of(const Gemm& p) {
    return {p.out,        p.n_tokens,
            p.in,         p.x_stride,
            p.y_stride,   p.act_type,
            p.y_type,     p.bias != nullptr,
            p.accumulate, {alignment_of(p.weight), alignment_of(p.x), alignment_of(p.y)}};
}

std::string describe(const GemmShape& s) {
    return fmt::format("y [{}, {}] {} {} x [{}, {}] {} · Wᵀ [{}, {}]{}", s.n_tokens, s.out, name_of(s.y_type),
                       s.accumulate ? "+=" : "=", s.n_tokens, s.in, name_of(s.act_type), s.out, s.in,
                       s.bias ? " + bias" : "");
}

std::size_t DeviceGemm::Hash::operator()(const GemmShape& s) const {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const std::int64_t value :
         {std::int64_t(s.out), std::int64_t(s.n_tokens), std::int64_t(s.in), s.x_stride, s.y_stride,
          std::int64_t(s.act_type) * 64 + std::int64_t(s.y_type) * 4 + s.bias * 2 + s.accumulate,
          std::int64_t(s.alignment[0]) << 32 | s.alignment[1] << 16 | s.alignment[2]})
        hash = (hash ^ std::uint64_t(value)) * 0x9e3779b97f4a7c15u;
    return std::size_t(hash ^ hash >> 32);
}

/// The library's descriptions of one shape and the algorithm it chose.
struct DeviceGemm::Plan {
    explicit Plan(const LtApi& lt) : api(lt) {}
    ~Plan() {
        if (operation != nullptr) api.cublasLtMatmulDescDestroy(operation);
        for (cublasLtMatrixLayout_t layout : {a, b, d})
            if (layout != nullptr) api.cublasLtMatrixLayoutDestroy(layout);
    }
    Plan(const Plan&) = delete;

    const LtApi& api;
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
};

namespace {

class Preference {
public:
    explicit Preference(const LtApi& api) : api_(api) {}
    ~Preference() {
        if (get != nullptr) api_.cublasLtMatmulPreferenceDestroy(get);
    }
    Preference(const Preference&) = delete;
    cublasLtMatmulPreference_t get = nullptr;

private:
    const LtApi& api_;
};

}  // namespace

DeviceGemm::DeviceGemm(const LtApi& api, void* workspace, std::size_t workspace_bytes)
    : api_(api), workspace_(workspace), workspace_bytes_(workspace_bytes) {
    if (const cublasStatus_t status = api.cublasLtCreate(&handle_); status != CUBLAS_STATUS_SUCCESS)
        fail("cuBLASLt did not start: {}", api.cublasLtGetStatusName(status));
}

DeviceGemm::~DeviceGemm() {
    plans_.clear();
    api_.cublasLtDestroy(handle_);
}

DeviceGemm::Plan* DeviceGemm::plan_for(const GemmShape& s, const float* bias) {
    if (const auto found = plans_.find(s); found != plans_.end()) return found->second.get();

    auto plan = std::make_unique<Plan>(api_);
    auto check = [&](cublasStatus_t status) {
        if (status != CUBLAS_STATUS_SUCCESS)
            fail("cuBLASLt: no GEMM for {}: {}", describe(s), api_.cublasLtGetStatusName(status));
    };
    check(api_.cublasLtMatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cublasLtEpilogue_t epilogue = s.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    check(api_.cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                              sizeof(transposed)));
    check(api_.cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                              sizeof(epilogue)));
    // The library looks at the bias when it picks: without one it may find nothing for this epilogue.
    if (s.bias)
        check(api_.cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                  sizeof(bias)));
    const std::uint64_t out = std::uint64_t(s.out), n = std::uint64_t(s.n_tokens), in = std::uint64_t(s.in);
    check(api_.cublasLtMatrixLayoutCreate(&plan->a, type_of(s.act_type), in, out, s.in));
    check(api_.cublasLtMatrixLayoutCreate(&plan->b, type_of(s.act_type), in, n, s.x_stride));
    check(api_.cublasLtMatrixLayoutCreate(&plan->d, type_of(s.y_type), out, n, s.y_stride));

    Preference preference(api_);
    check(api_.cublasLtMatmulPreferenceCreate(&preference.get));
    auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
        check(api_.cublasLtMatmulPreferenceSetAttribute(preference.get, attribute, &value, sizeof(value)));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t(workspace_bytes_));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t(s.alignment[0]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, std::uint32_t(s.alignment[1]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::uint32_t(s.alignment[2]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t(s.alignment[2]));
    cublasLtMatmulHeuristicResult_t best{};
    int n_found = 0;
    const cublasStatus_t asked = api_.cublasLtMatmulAlgoGetHeuristic(
        handle_, plan->operation, plan->a, plan->b, plan->d, plan->d, preference.get, 1, &best, &n_found);
    if (asked != CUBLAS_STATUS_NOT_SUPPORTED) check(asked);
    if (asked == CUBLAS_STATUS_SUCCESS && n_found > 0 && best.state == CUBLAS_STATUS_SUCCESS)
        plan->algorithm = best.algo;
    else
        plan.reset();
    if (plans_.size() >= kMaxPlans) plans_.clear();
    return plans_.emplace(s, std::move(plan)).first->second.get();
}

bool DeviceGemm::run(const Gemm& p, cudaStream_t stream) {
    CHECK(p.bias == nullptr || p.y_type == DType::f32, "a bias is f32, y is {}", name_of(p.y_type));
    if (p.n_tokens == 0 || p.out == 0) return true;
    const GemmShape shape = shape_of(p);
    Plan* const plan = plan_for(shape, p.bias);
    if (plan == nullptr) return false;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (p.bias != nullptr)
        status = api_.cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                     &p.bias, sizeof(p.bias));
    const float alpha = 1, beta = p.accumulate ? 1.0f : 0.0f;
    if (status == CUBLAS_STATUS_SUCCESS)
        status = api_.cublasLtMatmul(handle_, plan->operation, &alpha, p.weight, plan->a, p.x, plan->b, &beta,
                                     p.y, plan->d, p.y, plan->d, &plan->algorithm, workspace_,
                                     workspace_bytes_, stream);
    if (status != CUBLAS_STATUS_SUCCESS)
        fail("cuBLASLt: {}: {}", describe(shape), api_.cublasLtGetStatusName(status));
    return true;
}

}  // namespace llmgen::cuda
