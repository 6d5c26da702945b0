// Tile kernels on the bf16 dot product vdpbf16ps, which Highway 1.0.3 does not wrap. Compiled for that
// instruction set alone: nothing here runs before the CPU was asked.
#include "ops/cpu/linear_kernels.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

namespace llmgen::cpu {
namespace {

/// Both bf16 of one row's pair in every lane.
inline __m512bh broadcast_pair(const std::uint32_t* x) { return __m512bh(_mm512_set1_epi32(int(*x))); }

template <int kRows>
void tile(float* sums, const void* panel, const void* x_packed, std::int64_t depth) {
    const auto* weight = static_cast<const std::uint32_t*>(panel);
    const auto* x = static_cast<const std::uint32_t*>(x_packed);
    __m512 acc[kRows][2];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
    for (std::int64_t i = 0; i < depth; i += 2, weight += kPanel, x += kRows) {
        if (kRows <= 2) {
            _mm_prefetch(reinterpret_cast<const char*>(weight) + 1024, _MM_HINT_T0);
            _mm_prefetch(reinterpret_cast<const char*>(weight) + 1024 + 64, _MM_HINT_T0);
        }
        const auto w0 = __m512bh(_mm512_loadu_si512(weight)), w1 = __m512bh(_mm512_loadu_si512(weight + 16));
#pragma GCC unroll 12
        for (int r = 0; r < kRows; ++r) {
            const __m512bh pair = broadcast_pair(x + r);
            acc[r][0] = _mm512_dpbf16_ps(acc[r][0], w0, pair);
            acc[r][1] = _mm512_dpbf16_ps(acc[r][1], w1, pair);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
        _mm512_storeu_ps(sums + r * kPanel, acc[r][0]);
        _mm512_storeu_ps(sums + r * kPanel + 16, acc[r][1]);
    }
}

}  // namespace

LinearKernels linear_kernels_avx512bf16() {
    LinearKernels kernels;
    kernels.x_type = DType::bf16;
    kernels.tile[1] = &tile<1>;
    kernels.tile[2] = &tile<2>;
    kernels.tile[3] = &tile<3>;
    kernels.tile[4] = &tile<4>;
    kernels.tile[6] = &tile<6>;
    kernels.tile[8] = &tile<8>;
    kernels.tile[12] = &tile<12>;
    return kernels;
}

}  // namespace llmgen::cpu
#else
namespace llmgen::cpu {
LinearKernels linear_kernels_avx512bf16() { return {}; }
}  // namespace llmgen::cpu
#endif
