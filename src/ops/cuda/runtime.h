// What the CUDA backend needs of a device beside its own kernels: memory, copies, a stream, and the GEMM of
// many rows. Two stand behind it: the CUDA runtime with cuBLASLt, and the emulator of the tests. So
// everything above, kernel_ops.cpp included, runs unchanged where there is no GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/launch.h"
#include "ops/ops.h"

namespace llmgen::cuda {

/// y[t] = W x[t] + bias, or y[t] += that.
struct Gemm {
    void* y;  // [n_tokens, out] f32 | act
    DType y_type;
    std::int64_t y_stride;
    const void* x;   // [n_tokens, in]
    DType act_type;  // of x and of the weight
    std::int64_t x_stride;
    const void* weight;           // [out, in]
    const float* bias = nullptr;  // [out] or null; only with an f32 y
    int n_tokens, out, in;
    bool accumulate = false;  // only with an f32 y
};

/// Rows of bytes, `pitch` apart.
struct Rows {
    void* data;
    std::size_t pitch;
};

class Runtime {
public:
    virtual ~Runtime() = default;
    virtual DeviceInfo info() const = 0;
    /// Null when there is not enough; 256-byte aligned.
    virtual void* allocate(std::size_t bytes) = 0;
    virtual void release(void* memory) = 0;
    /// `host` may be reused once this returns.
    virtual void copy_in(Rows device, Rows host, std::size_t width, std::size_t height) = 0;
    /// Waits for everything before it.
    virtual void copy_out(Rows host, Rows device, std::size_t width, std::size_t height) = 0;
    virtual void synchronize() = 0;
    virtual kernels::Stream stream() = 0;
    /// After launches: throws Error where one of them could not start.
    virtual void check(const char* op) = 0;
    virtual void gemm(const Gemm& gemm) = 0;
};

}  // namespace llmgen::cuda
