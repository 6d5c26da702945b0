// Rows of bf16 with the instructions that round to it, and their transposition in whole registers. Compiled
// for its instruction set alone: nothing here runs before the CPU was asked.
#include "ops/cpu/row_kernels.h"

#include "ops/batch.h"
#include "ops/cpu/pack_rows.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

#include <cmath>

#include "ops/cpu/lanes_avx512.h"

// g++ 12 takes the deliberately undefined operands inside its own intrinsics for mistakes (its bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace llmgen::cpu {
namespace {

/// 32 values of a row as pairs of bf16.
inline __m512i pairs_of(const void* row, DType type, std::int64_t at) {
    if (type == DType::bf16) return _mm512_loadu_si512(static_cast<const bf16*>(row) + at);
    const float* from = static_cast<const float*>(row) + at;
    return __m512i(_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + 16), _mm512_loadu_ps(from)));
}

/// to[16 i] … = quarter i of a, b, c and d, `step` vectors apart.
inline void store_quarters(std::uint32_t* to, int step, __m512i a, __m512i b, __m512i c, __m512i d) {
    const __m512i ab = _mm512_shuffle_i32x4(a, b, 0x44), cd = _mm512_shuffle_i32x4(c, d, 0x44);
    const __m512i ab2 = _mm512_shuffle_i32x4(a, b, 0xee), cd2 = _mm512_shuffle_i32x4(c, d, 0xee);
    _mm512_storeu_si512(to, _mm512_shuffle_i32x4(ab, cd, 0x88));
    _mm512_storeu_si512(to + 16 * step, _mm512_shuffle_i32x4(ab, cd, 0xdd));
    _mm512_storeu_si512(to + 32 * step, _mm512_shuffle_i32x4(ab2, cd2, 0x88));
    _mm512_storeu_si512(to + 48 * step, _mm512_shuffle_i32x4(ab2, cd2, 0xdd));
}

/// 4 kFours rows: 16 pairs of each are turned in quarters of vectors, then the quarters are put in order.
template <int kFours>
void pack_fours(std::uint32_t* to, const void* const* rows, DType type, std::int64_t n) {
    for (std::int64_t at = 0; at < n; at += 32, to += 64 * kFours) {
        __m512i v[4 * kFours];  // v[kFours k + g]: of rows 4 g to 4 g + 3 the pairs k, k + 4, k + 8, k + 12
#pragma GCC unroll 4
        for (int g = 0; g < kFours; ++g) {
            const void* const* four = rows + 4 * g;
            const __m512i a = pairs_of(four[0], type, at), b = pairs_of(four[1], type, at);
            const __m512i c = pairs_of(four[2], type, at), d = pairs_of(four[3], type, at);
            const __m512i low_ab = _mm512_unpacklo_epi32(a, b), high_ab = _mm512_unpackhi_epi32(a, b);
            const __m512i low_cd = _mm512_unpacklo_epi32(c, d), high_cd = _mm512_unpackhi_epi32(c, d);
            v[g] = _mm512_unpacklo_epi64(low_ab, low_cd);
            v[kFours + g] = _mm512_unpackhi_epi64(low_ab, low_cd);
            v[2 * kFours + g] = _mm512_unpacklo_epi64(high_ab, high_cd);
            v[3 * kFours + g] = _mm512_unpackhi_epi64(high_ab, high_cd);
        }
#pragma GCC unroll 4
        for (int i = 0; i < kFours; ++i)
            store_quarters(to + 16 * i, kFours, v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
    }
}

void pack(void* packed, DType type, const void* const* rows, DType source_type, int n_rows, std::int64_t n) {
    auto* to = static_cast<std::uint32_t*>(packed);
    const bool whole = type == DType::bf16 && n % 32 == 0;
    if (whole && n_rows == 12) return pack_fours<3>(to, rows, source_type, n);
    if (whole && n_rows == 8) return pack_fours<2>(to, rows, source_type, n);
    if (whole && n_rows == 4) return pack_fours<1>(to, rows, source_type, n);
    // Chosen once: asking the CPU what it has costs microseconds in a virtual machine.
    static const PackRows other = pack_rows(Isa::avx512);
    other(packed, type, rows, source_type, n_rows, n);
}

/// Keys are a transposition of 16 rows, values pairs of rows side by side.
void store_page(bf16* to_k, bf16* to_v, const float* k, const float* v, std::int64_t stride, int head_dim) {
    const void* rows[kPageSize];
    for (int r = 0; r < kPageSize; ++r) rows[r] = k + r * stride;
    pack_fours<4>(reinterpret_cast<std::uint32_t*>(to_k), rows, DType::f32, head_dim);
    // Places 0 to 31 are those of a vector of the even row, 32 to 63 of the odd one.
    alignas(64) std::uint16_t places[32];
    for (int i = 0; i < 32; ++i) places[i] = std::uint16_t(i % 2 * 32 + i / 2);
    const __m512i first = _mm512_load_si512(places), second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
    for (int r = 0; r < kPageSize; r += 2, to_v += 2 * head_dim)
        for (int i = 0; i < head_dim; i += 32) {
            const __m512i even = pairs_of(v + r * stride, DType::f32, i);
            const __m512i odd = pairs_of(v + (r + 1) * stride, DType::f32, i);
            _mm512_storeu_si512(to_v + 2 * i, _mm512_permutex2var_epi16(even, first, odd));
            _mm512_storeu_si512(to_v + 2 * i + 32, _mm512_permutex2var_epi16(even, second, odd));
        }
}

void store_kv_page(void* k_block,
                   void* v_block,
                   DType type,
                   const float* k,
                   const float* v,
                   std::int64_t stride,
                   int head_dim) {
    if (type == DType::bf16 && head_dim % 32 == 0)
        return store_page(static_cast<bf16*>(k_block), static_cast<bf16*>(v_block), k, v, stride, head_dim);
    static const RowKernels other = row_kernels(Isa::avx512);
    for (int r = 0; r < kPageSize; ++r)
        other.store_kv(k_block, v_block, type, k + r * stride, v + r * stride, r, head_dim);
}

double sum_of_squares(const float* x, std::int64_t n) {
    __m512d sum[4];
    for (__m512d& s : sum) s = _mm512_setzero_pd();
    const auto add = [&](__m512 v, int at) {
        const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
        const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
        sum[at] = _mm512_fmadd_pd(low, low, sum[at]);
        sum[at + 1] = _mm512_fmadd_pd(high, high, sum[at + 1]);
    };
    std::int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        add(_mm512_loadu_ps(x + i), 0);
        add(_mm512_loadu_ps(x + i + 16), 2);
    }
    for (; i < n; i += 16) add(_mm512_maskz_loadu_ps(first_lanes(n - i), x + i), 0);
    return _mm512_reduce_add_pd(_mm512_add_pd(_mm512_add_pd(sum[0], sum[1]), _mm512_add_pd(sum[2], sum[3])));
}

/// See row_kernels.h; out is bf16.
void rmsnorm_bf16(bf16* out, const float* x, const float* weight, std::int64_t n, float eps) {
    const __m512 s = _mm512_set1_ps(float(1 / std::sqrt(sum_of_squares(x, n) / double(n) + eps)));
    const auto normed = [&](__m512 v, __m512 w) {
        const auto rounded = __m256i(_mm512_cvtneps_pbh(_mm512_mul_ps(v, s)));
        return _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16)), w);
    };
    std::int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m512 low = normed(_mm512_loadu_ps(x + i), _mm512_loadu_ps(weight + i));
        const __m512 high = normed(_mm512_loadu_ps(x + i + 16), _mm512_loadu_ps(weight + i + 16));
        _mm512_storeu_si512(out + i, __m512i(_mm512_cvtne2ps_pbh(high, low)));
    }
    for (; i < n; i += 16) {
        const __mmask16 m = first_lanes(n - i);
        const __m512 v = normed(_mm512_maskz_loadu_ps(m, x + i), _mm512_maskz_loadu_ps(m, weight + i));
        _mm256_mask_storeu_epi16(out + i, m, __m256i(_mm512_cvtneps_pbh(v)));
    }
}

void rmsnorm(void* out, DType type, const float* x, const float* weight, std::int64_t n, float eps) {
    if (type == DType::bf16) return rmsnorm_bf16(static_cast<bf16*>(out), x, weight, n, eps);
    static const RowKernels other = row_kernels(Isa::avx512);
    other.rmsnorm(out, type, x, weight, n, eps);
}

}  // namespace

PackRows pack_rows_avx512bf16() { return &pack; }
void use_avx512bf16(RowKernels& kernels) {
    kernels.rmsnorm = &rmsnorm;
    kernels.store_kv_page = &store_kv_page;
}

}  // namespace llmgen::cpu
#else
namespace llmgen::cpu {
PackRows pack_rows_avx512bf16() { return nullptr; }
void use_avx512bf16(RowKernels&) {}
}  // namespace llmgen::cpu
#endif
