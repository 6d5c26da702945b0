// A read of memory and nothing else: the pace that every other kernel's is put beside.
#include "common/device.h"
#include "kernels.h"

namespace llmgen::kernels {
namespace {

// ptxas keeps four of the eight loads under way, in 32 registers: 128 KiB an SM of 2048 threads.
constexpr int kThreads = 512, kUnroll = 8;

__global__ void __launch_bounds__(kThreads) read_kernel(int* out, const char* from, std::size_t bytes) {
    const std::size_t step = std::size_t(gridDim.x) * kThreads * sizeof(Vec16);
    std::size_t at = (std::size_t(blockIdx.x) * kThreads + threadIdx.x) * sizeof(Vec16);
    std::uint32_t mix = 0;
    for (; at + (kUnroll - 1) * step < bytes; at += kUnroll * step) {
        Vec16 v[kUnroll];
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) v[i] = load16_stream(from + at + std::size_t(i) * step);
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) mix ^= v[i].w[0] ^ v[i].w[1] ^ v[i].w[2] ^ v[i].w[3];
    }
    for (; at < bytes; at += step) {
        const Vec16 v = load16_stream(from + at);
        mix ^= v.w[0] ^ v.w[1] ^ v.w[2] ^ v.w[3];
    }
    atomic_max(out, int(mix & 0x7fffffffu));  // somebody must want what was read
}

}  // namespace

void read_all(int* out, const void* from, std::size_t bytes, int n_blocks, Stream stream) {
    launch("read", read_kernel, {unsigned(n_blocks), 1, 1, kThreads, 0}, Dependent::no, stream, out,
           static_cast<const char*>(from), bytes);
}

}  // namespace llmgen::kernels
