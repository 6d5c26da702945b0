// The GEMM of many rows by cuBLASLt: algorithm by its heuristic, once per shape.
//
// cuBLASLt thinks in columns. y [n, out] row-major is its D [out x n]; the weight [out, in] is its A, in x
// out and transposed; x [n, in] is its B [in x n]:   D = Aᵀ B (+ D) (+ bias along D's rows). Sums are f32 in
// every type; f32 products are not shortened to TF32.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>

#include "ops/cuda/lt_api.h"
#include "ops/cuda/runtime.h"

namespace llmgen::cuda {

/// What an algorithm was picked for.
struct GemmShape {
    int out, n_tokens, in;
    std::int64_t x_stride, y_stride;
    DType act_type, y_type;
    bool bias, accumulate;
    int alignment[3];  // of weight, x and y in bytes, at most 256
    bool operator==(const GemmShape&) const = default;
};
GemmShape shape_of(const Gemm& gemm);
/// "y [512, 4096] f32 += x [512, 14336] bf16 · Wᵀ [4096, 14336] + bias"
std::string describe(const GemmShape& shape);

class DeviceGemm {
public:
    /// `workspace` is used by one GEMM at a time, in the order of the stream; may be null with 0 bytes.
    DeviceGemm(const LtApi& api, void* workspace, std::size_t workspace_bytes);
    ~DeviceGemm();
    DeviceGemm(const DeviceGemm&) = delete;

    /// False, and nothing enqueued, where the library has no algorithm for the shape.
    [[nodiscard]] bool run(const Gemm& gemm, cudaStream_t stream);
    /// Shapes whose algorithm is known.
    std::size_t n_plans() const { return plans_.size(); }

private:
    struct Plan;
    struct Hash {
        std::size_t operator()(const GemmShape& shape) const;
    };
    Plan* plan_for(const GemmShape& shape, const float* bias);  // null: none

    const LtApi& api_;
    void* workspace_;
    std::size_t workspace_bytes_;
    cublasLtHandle_t handle_ = nullptr;
    std::unordered_map<GemmShape, std::unique_ptr<Plan>, Hash> plans_;  // null: there is none
};

}  // namespace llmgen::cuda
