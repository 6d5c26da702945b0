// Kernels that move rows: embedding, gathering, SwiGLU of a batched GEMM's output, copies of pages. All of
// them are bound by the bytes they move; at decode sizes by the launch.
#include "common/vector.h"
#include "kernels.h"

namespace llmgen::kernels {
namespace {

constexpr int kThreads = 128;

unsigned blocks_for(std::int64_t n, int per_block) { return unsigned((n + per_block - 1) / per_block); }

/// One block per token.
template <typename T>
__global__ void embed_kernel(
    float* x, std::int64_t x_stride, const T* table, const int* ids, int hidden, int vocab) {
    const int id = ids[blockIdx.x];
    const int row = id < 0 ? 0 : id >= vocab ? vocab - 1 : id;
    const T* src = table + std::size_t(row) * std::size_t(hidden);
    float* dst = x + std::int64_t(blockIdx.x) * x_stride;
    for (int d = int(threadIdx.x); d < hidden; d += kThreads) dst[d] = as_f32(src[d]);
}

__global__ void gather_kernel(
    float* out, std::int64_t out_stride, const float* x, std::int64_t x_stride, const int* rows, int hidden) {
    const float* src = x + rows[blockIdx.x] * x_stride;
    float* dst = out + std::int64_t(blockIdx.x) * out_stride;
    for (int d = int(threadIdx.x); d < hidden; d += kThreads) dst[d] = src[d];
}

/// A grid of (column blocks, rows).
template <typename T>
__global__ void swiglu_kernel(
    T* out, std::int64_t out_stride, const float* gate_up, int n, int intermediate) {
    const int d = int(blockIdx.x) * kThreads + int(threadIdx.x);
    if (d >= intermediate) return;
    for (int row = int(blockIdx.y); row < n; row += int(gridDim.y)) {
        const float* src = gate_up + std::size_t(row) * std::size_t(2 * intermediate);
        out[row * out_stride + d] = from_f32<T>(silu(src[d]) * src[intermediate + d]);
    }
}

/// A grid of (copies, pools).
__global__ void copy_pages_kernel(void* const* pools,
                                  std::size_t page_bytes,
                                  const int* src,
                                  const int* dst) {
    char* pool = static_cast<char*>(pools[blockIdx.y]);
    const char* from = pool + std::size_t(src[blockIdx.x]) * page_bytes;
    char* to = pool + std::size_t(dst[blockIdx.x]) * page_bytes;
    for (std::size_t i = threadIdx.x * std::size_t(16); i < page_bytes; i += kThreads * std::size_t(16))
        store16(to + i, load16(from + i));
}

}  // namespace

void embed(float* x,
           std::int64_t x_stride,
           const void* table,
           DType table_type,
           const int* ids,
           int n_tokens,
           int hidden,
           int vocab,
           Stream stream) {
    if (n_tokens == 0) return;
    const Shape shape{unsigned(n_tokens), 1, 1, kThreads, 0};
    auto run = [&](auto kernel, auto* typed) {
        launch("embed", kernel, shape, Dependent::no, stream, x, x_stride, typed, ids, hidden, vocab);
    };
    if (table_type == DType::f32) return run(embed_kernel<float>, static_cast<const float*>(table));
    if (table_type == DType::f16) return run(embed_kernel<f16>, static_cast<const f16*>(table));
    run(embed_kernel<bf16>, static_cast<const bf16*>(table));
}

void gather_rows(float* out,
                 std::int64_t out_stride,
                 const float* x,
                 std::int64_t x_stride,
                 const int* rows,
                 int n,
                 int hidden,
                 Stream stream) {
    if (n == 0) return;
    const Shape shape{unsigned(n), 1, 1, kThreads, 0};
    launch("gather_rows", gather_kernel, shape, Dependent::no, stream, out, out_stride, x, x_stride, rows,
           hidden);
}

void swiglu(void* out,
            DType out_type,
            std::int64_t out_stride,
            const float* gate_up,
            int n,
            int intermediate,
            Stream stream) {
    if (n == 0) return;
    const Shape shape{blocks_for(intermediate, kThreads), unsigned(n < 32768 ? n : 32768), 1, kThreads, 0};
    auto run = [&](auto kernel, auto* typed) {
        launch("swiglu", kernel, shape, Dependent::no, stream, typed, out_stride, gate_up, n, intermediate);
    };
    if (out_type == DType::f32) return run(swiglu_kernel<float>, static_cast<float*>(out));
    run(swiglu_kernel<bf16>, static_cast<bf16*>(out));
}

void copy_pages(void* const* pools,
                int n_pools,
                std::size_t page_bytes,
                const int* src,
                const int* dst,
                int n,
                Stream stream) {
    if (n == 0 || n_pools == 0) return;
    const Shape shape{unsigned(n), unsigned(n_pools), 1, kThreads, 0};
    launch("copy_pages", copy_pages_kernel, shape, Dependent::no, stream, pools, page_bytes, src, dst);
}

}  // namespace llmgen::kernels
