// What the CUDA backend needs of a device beside its own kernels: memory, copies, a stream, and the GEMM of
// many rows. Two stand behind it: the CUDA runtime with cuBLASLt, and the emulator of the tests. So
// everything above, kernel_ops.cpp included, runs unchanged where there is no GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

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
    /// Begins to copy `bytes` to the host in the order of the stream; a ticket for finish_read(). The read
    /// before the last one is forgotten.
    virtual int begin_read(const void* device, std::size_t bytes) = 0;
    /// Waits for that copy, and for nothing enqueued after it.
    virtual void finish_read(void* host, std::size_t bytes, int ticket) = 0;
    /// Waits for everything before it.
    virtual void copy_out(Rows host, Rows device, std::size_t width, std::size_t height) = 0;
    /// Writes bytes [first, first + bytes) of what is to lie on the device to `to`. Called with multiples of
    /// the granule, from several threads at once.
    using Fill = std::function<void(char* to, std::size_t first, std::size_t bytes)>;
    /// Fills the device's memory with what `fill` makes. Returns once all of it was made; what is enqueued
    /// from here on finds it there.
    virtual void write(void* device, std::size_t bytes, std::size_t granule, const Fill& fill) {
        constexpr std::size_t kPiece = 4 << 20;
        const std::size_t piece = std::max(granule, kPiece / granule * granule);
        std::vector<char> staging;
        for (std::size_t first = 0; first < bytes; first += piece) {
            staging.resize(std::min(piece, bytes - first));
            fill(staging.data(), first, staging.size());
            copy_in({static_cast<char*>(device) + first, staging.size()}, {staging.data(), staging.size()},
                    staging.size(), 1);
        }
    }
    /// Gives back what write() keeps from call to call.
    virtual void finish_writes() {}
    virtual void synchronize() = 0;
    virtual kernels::Stream stream() = 0;
    /// After launches: throws Error where one of them could not start.
    virtual void check(const char* op) = 0;
    /// False where the library has no way for this shape; nothing was enqueued then.
    virtual bool gemm(const Gemm& gemm) = 0;
    /// Ops::step.
    virtual Tensor step(std::uint64_t key, const std::function<Tensor()>& enqueue) {
        (void)key;
        return enqueue();
    }
    /// Memory that a step uses has moved: what was recorded must not run again.
    virtual void forget_steps() {}
};

}  // namespace llmgen::cuda
