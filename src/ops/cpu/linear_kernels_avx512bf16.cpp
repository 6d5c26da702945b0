// Tile kernels on the bf16 dot product vdpbf16ps, which Highway 1.0.3 does not wrap. Compiled for that
// instruction set alone: nothing here runs before the CPU was asked.
#include "ops/cpu/linear_kernels.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

namespace llmgen::cpu {
namespace {

/// Both bf16 of one row's pair in every lane.
inline __m512bh broadcast_pair(const std::uint32_t* x) { return __m512bh(_mm512_set1_epi32(int(*x))); }

template <int kRows, bool kAdd>
void tile(float* out,
          std::int64_t stride,
          const void* panel,
          const void* x_packed,
          std::int64_t depth,
          Ahead ahead) {
    const auto* weight = static_cast<const std::uint32_t*>(panel);
    const auto* x = static_cast<const std::uint32_t*>(x_packed);
    // One row streams its own panel and wants it in L1; more rows leave that to the panel they are at.
    constexpr auto kLevel = kRows <= 2 ? _MM_HINT_T0 : _MM_HINT_T1;
    if (kRows > 2)  // the rows of the output come from L3 or memory too
        for (int r = 0; r < kRows; ++r) {
            _mm_prefetch(reinterpret_cast<const char*>(out + r * stride), _MM_HINT_T0);
            _mm_prefetch(reinterpret_cast<const char*>(out + r * stride + 16), _MM_HINT_T0);
        }
    __m512 acc[kRows][2];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
    for (std::int64_t i = 0; i < depth; i += 2, weight += kPanel, x += kRows, ahead.at += ahead.step) {
        _mm_prefetch(ahead.at, kLevel);
        _mm_prefetch(ahead.at + 64, kLevel);
        const auto w0 = __m512bh(_mm512_loadu_si512(weight)), w1 = __m512bh(_mm512_loadu_si512(weight + 16));
#pragma GCC unroll 12
        for (int r = 0; r < kRows; ++r) {
            const __m512bh pair = broadcast_pair(x + r);
            acc[r][0] = _mm512_dpbf16_ps(acc[r][0], w0, pair);
            acc[r][1] = _mm512_dpbf16_ps(acc[r][1], w1, pair);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r, out += stride) {
        if (kAdd) {
            acc[r][0] = _mm512_add_ps(acc[r][0], _mm512_loadu_ps(out));
            acc[r][1] = _mm512_add_ps(acc[r][1], _mm512_loadu_ps(out + 16));
        }
        _mm512_storeu_ps(out, acc[r][0]);
        _mm512_storeu_ps(out + 16, acc[r][1]);
    }
}

template <int kRows>
void add_tile(LinearKernels& kernels) {
    kernels.tile[kRows] = &tile<kRows, false>;
    kernels.tile_add[kRows] = &tile<kRows, true>;
}

}  // namespace

LinearKernels linear_kernels_avx512bf16() {
    LinearKernels kernels;
    kernels.x_type = DType::bf16;
    add_tile<1>(kernels);
    add_tile<2>(kernels);
    add_tile<3>(kernels);
    add_tile<4>(kernels);
    add_tile<6>(kernels);
    add_tile<8>(kernels);
    add_tile<12>(kernels);
    return kernels;
}

}  // namespace llmgen::cpu
#else
namespace llmgen::cpu {
LinearKernels linear_kernels_avx512bf16() { return {}; }
}  // namespace llmgen::cpu
#endif
