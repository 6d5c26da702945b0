// A streaming read: the bandwidth that every other figure is put beside.
#include "common/reduce.h"
#include "simt/hardware/probes.h"

namespace llmgen::kernels {
namespace {

constexpr int kThreads = 512, kUnroll = 8;

__global__ void __launch_bounds__(kThreads) read_kernel(float* out, const char* from, std::size_t bytes) {
    const std::size_t step = std::size_t(gridDim.x) * kThreads * 16;
    std::size_t at = (std::size_t(blockIdx.x) * kThreads + threadIdx.x) * 16;
    std::uint32_t sum = 0;
    for (; at + (kUnroll - 1) * step < bytes; at += kUnroll * step) {
        Vec16 v[kUnroll];
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) v[i] = load16_stream(from + at + std::size_t(i) * step);
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) sum ^= v[i].w[0] ^ v[i].w[1] ^ v[i].w[2] ^ v[i].w[3];
    }
    for (; at < bytes; at += step) {
        const Vec16 v = load16_stream(from + at);
        sum ^= v.w[0] ^ v.w[1] ^ v.w[2] ^ v.w[3];
    }
    if (sum == 0x12345678u) out[0] = 1;  // keeps the loads alive
}

}  // namespace

void stream_read(float* out, const void* from, std::size_t bytes, int n_blocks, Stream stream) {
    launch("read", read_kernel, {unsigned(n_blocks), 1, 1, kThreads, 0}, Dependent::no, stream, out,
           static_cast<const char*>(from), bytes);
}

}  // namespace llmgen::kernels
