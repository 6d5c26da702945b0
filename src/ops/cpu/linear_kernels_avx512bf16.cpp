// Tile kernels on the bf16 dot product vdpbf16ps, which Highway 1.0.3 does not wrap. Compiled for that
// instruction set alone: nothing here runs before the CPU was asked.
#include "ops/cpu/linear_kernels.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

// g++ 12 takes the deliberately undefined operands inside its own intrinsics for mistakes (its bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

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
            __builtin_prefetch(out + r * stride, 1);
            __builtin_prefetch(out + r * stride + 16, 1);
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

/// silu(g) u. The exponent is put in by one instruction and the division is an estimate with a Newton step:
/// within 4 units of f32's last place, rounded to bf16 afterwards. 2^126 is the largest whose reciprocal is a
/// normal number; beyond it the quotient is 0 to the last bit that counts.
inline __m512 gated(__m512 g, __m512 u) {
    // NaN passes min only as its second operand.
    const __m512 x = _mm512_min_ps(_mm512_set1_ps(126), _mm512_mul_ps(g, _mm512_set1_ps(-1.44269504f)));
    const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 p = _mm512_set1_ps(1.8671417e-3f);  // 2^f on 0 <= f < 1, within 2^-23; scalef rounds x down itself
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.0170057e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.5799931e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.24016445f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.69315131f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    const __m512 divisor = _mm512_add_ps(_mm512_scalef_ps(p, x), _mm512_set1_ps(1.0f));
    const __m512 r = _mm512_rcp14_ps(divisor);
    const __m512 error = _mm512_fnmadd_ps(divisor, r, _mm512_set1_ps(1.0f));
    return _mm512_mul_ps(_mm512_mul_ps(g, _mm512_fmadd_ps(r, error, r)), u);
}

inline __m512 biased(const float* sums, const float* bias, int i) {
    const __m512 s = _mm512_loadu_ps(sums + i);
    return bias ? _mm512_add_ps(s, _mm512_loadu_ps(bias + i)) : s;
}

void finish_swiglu(const TileOutput& out, const float* sums, const float* up) {
    auto* to = static_cast<bf16*>(out.data);
    for (int r = 0; r < out.rows; ++r, sums += kPanel, up += kPanel, to += out.stride) {
        const __m512 low = gated(biased(sums, out.bias, 0), biased(up, out.up_bias, 0));
        const __m512 high = gated(biased(sums, out.bias, 16), biased(up, out.up_bias, 16));
        _mm512_storeu_si512(to, __m512i(_mm512_cvtne2ps_pbh(high, low)));
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

FinishTile finish_swiglu_avx512bf16() { return &finish_swiglu; }

}  // namespace llmgen::cpu
#else
namespace llmgen::cpu {
LinearKernels linear_kernels_avx512bf16() { return {}; }
FinishTile finish_swiglu_avx512bf16() { return nullptr; }
}  // namespace llmgen::cpu
#endif
