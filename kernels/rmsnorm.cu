// out[t] = round(x[t] / sqrt(mean(x[t]²) + eps)) · weight, after x[t] += delta[t] where there is a delta.
//
// One block per row, the row read twice (the second time from L1 or L2). Traffic at 8B shapes: 4096 x (4 + 2)
// bytes a row = 24 KiB; for one row the floor is the launch, not the memory, so decode folds the norm into
// the GEMV that reads the row next and this kernel serves prefill.
#include "common/reduce.h"
#include "common/vector.h"
#include "kernels.h"

namespace llmgen::kernels {
namespace {

constexpr int kThreads = 256;

template <typename Out>
__global__ void rmsnorm_kernel(RmsNorm p) {
    SHARED_ARRAY(float, partial, kThreads / kWarp);
    grid_dependency_wait();
    grid_dependency_trigger();
    float* row = p.x + std::int64_t(blockIdx.x) * p.x_stride;
    const float* delta = p.delta == nullptr ? nullptr : p.delta + std::int64_t(blockIdx.x) * p.hidden;
    float sum = 0;
    for (int d = int(threadIdx.x); d < p.hidden; d += kThreads) {
        float value = row[d];
        if (delta != nullptr) row[d] = value += delta[d];  // this thread reads it again below, no other does
        sum = fma_f32(value, value, sum);
    }
    const float scale = rsqrt_f32(block_sum(sum, partial) / float(p.hidden) + p.eps);
    Out* out = static_cast<Out*>(p.out) + std::int64_t(blockIdx.x) * p.out_stride;
    for (int d = int(threadIdx.x); d < p.hidden; d += kThreads)
        out[d] = from_f32<Out>(as_f32(from_f32<Out>(row[d] * scale)) * p.weight[d]);
}

}  // namespace

void rmsnorm(const RmsNorm& p, Dependent dependent, Stream stream) {
    if (p.n_tokens == 0) return;
    const Shape shape{unsigned(p.n_tokens), 1, 1, kThreads, 0};
    launch("rmsnorm", p.out_type == DType::f32 ? rmsnorm_kernel<float> : rmsnorm_kernel<bf16>, shape,
           dependent, stream, p);
}

}  // namespace llmgen::kernels
