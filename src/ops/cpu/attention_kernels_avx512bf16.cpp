// Attention's two products on the bf16 dot product; see linear_kernels_avx512bf16.cpp.
#include "ops/cpu/attention_kernels.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

#include <cmath>

// g++ 12 takes the deliberately undefined operands inside its own intrinsics for mistakes (its bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace llmgen::cpu {
namespace {

inline __m512bh broadcast_pair(const std::uint32_t* x) { return __m512bh(_mm512_set1_epi32(int(*x))); }

template <int kRows, int kPages>
inline void score_pages(
    float* scores, const std::uint32_t* q, const void* const* keys, const void* const* next, int head_dim) {
    __m512 acc[kRows][kPages];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < kPages; ++v) acc[r][v] = _mm512_setzero_ps();
    for (int i = 0; i < head_dim / 2; ++i, q += kRows) {
        __m512bh k[kPages];
#pragma GCC unroll 4
        for (int v = 0; v < kPages; ++v) {
            const std::int64_t at = std::int64_t(i) * kPageSize;
            if (kRows <= kPrefetchRows)
                _mm_prefetch(static_cast<const std::uint32_t*>(next[v]) + at, _MM_HINT_T1);
            k[v] = __m512bh(_mm512_loadu_si512(static_cast<const std::uint32_t*>(keys[v]) + at));
        }
#pragma GCC unroll 12
        for (int r = 0; r < kRows; ++r) {
            const __m512bh pair = broadcast_pair(q + r);
#pragma GCC unroll 4
            for (int v = 0; v < kPages; ++v) acc[r][v] = _mm512_dpbf16_ps(acc[r][v], k[v], pair);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < kPages; ++v) _mm512_storeu_ps(scores + r * kKeyBlock + v * kPageSize, acc[r][v]);
}

template <int kRows>
void scores(float* out,
            const void* q,
            const PageBlocks& keys,
            const PageBlocks& next,
            int begin,
            int end,
            int head_dim) {
    constexpr int kPages = kRows > 6 ? 2 : 4;
    const auto* x = static_cast<const std::uint32_t*>(q);
    int page = begin;
    for (; page + kPages <= end; page += kPages)
        score_pages<kRows, kPages>(out + page * kPageSize, x, keys.data() + page, next.data() + page,
                                   head_dim);
    for (; page < end; ++page)
        score_pages<kRows, 1>(out + page * kPageSize, x, keys.data() + page, next.data() + page, head_dim);
}

template <int kRows, int kVectors, bool kTail>
inline void value_columns(float* out,
                          const std::uint32_t* p,
                          const PageBlocks& values,
                          const PageBlocks& next,
                          int begin,
                          int end,
                          int head_dim,
                          int column) {
    const auto mask = __mmask16(kTail ? (1u << (head_dim - column)) - 1 : 0xffffu);
    __m512 acc[kRows][kVectors];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm512_setzero_ps();
    for (int key = begin; key < end; key += 2) {
        const auto page = std::size_t(key / kPageSize);
        const std::int64_t at = std::int64_t(key % kPageSize / 2) * head_dim + column;
        const auto* from = static_cast<const std::uint32_t*>(values[page]) + at;
        // The partner of an odd last key may be a NaN.
        const __m512i exists = _mm512_set1_epi32(key + 1 < end ? -1 : 0xffff);
        __m512bh value[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
            if (kRows <= kPrefetchRows)
                _mm_prefetch(static_cast<const std::uint32_t*>(next[page]) + at + v * 16, _MM_HINT_T1);
            const __m512i pair =
                kTail ? _mm512_maskz_loadu_epi32(mask, from + v * 16) : _mm512_loadu_si512(from + v * 16);
            value[v] = __m512bh(_mm512_and_si512(pair, exists));
        }
#pragma GCC unroll 12
        for (int r = 0; r < kRows; ++r) {
            const __m512bh weight = broadcast_pair(p + r * (kKeyBlock / 2) + key / 2);
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm512_dpbf16_ps(acc[r][v], value[v], weight);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v)
            _mm512_mask_storeu_ps(out + std::int64_t(r) * head_dim + column + v * 16, mask, acc[r][v]);
}

template <int kRows>
void values(float* out,
            const void* p,
            const PageBlocks& values,
            const PageBlocks& next,
            int begin,
            int end,
            int head_dim) {
    constexpr int kVectors = kRows > 6 ? 2 : 4;
    const auto* weights = static_cast<const std::uint32_t*>(p);
    int column = 0;
    for (; column + kVectors * 16 <= head_dim; column += kVectors * 16)
        value_columns<kRows, kVectors, false>(out, weights, values, next, begin, end, head_dim, column);
    for (; column + 16 <= head_dim; column += 16)
        value_columns<kRows, 1, false>(out, weights, values, next, begin, end, head_dim, column);
    if (column < head_dim)
        value_columns<kRows, 1, true>(out, weights, values, next, begin, end, head_dim, column);
}

/// 2^x for x <= 0. The fit of 2^f on |f| <= 1/2 with p(0) = 1 is within 2^-23; p is rounded to bf16 anyway.
inline __m512 exp2_of(__m512 x, __mmask16 seen) {
    const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 f = _mm512_sub_ps(x, n);
    __m512 p = _mm512_set1_ps(1.3264727e-3f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.671513e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.5507336e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.24022242f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.693147f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(seen, p, n);
}

/// The lanes of vector i whose keys lie in [begin, end).
inline __mmask16 seen_lanes(int i, int begin, int end) {
    const auto below = [&](int key) {
        const int n = key - 16 * i;
        return n <= 0 ? 0u : n >= 16 ? 0xffffu : (1u << n) - 1;
    };
    return __mmask16(below(end) & ~below(begin));
}

/// Half the instructions of the general one: the exponent is put in and the pairs are rounded by one
/// instruction each.
AttentionKernels::Softmax softmax(void* p, DType, const float* scores, int begin, int end, float scale) {
    constexpr int kVectors = kKeyBlock / 16;
    const __m512 s = _mm512_set1_ps(scale), none = _mm512_set1_ps(-HUGE_VALF);
    const __m512 log2e = _mm512_set1_ps(1.44269504f);
    __mmask16 seen[kVectors];
    __m512 v[kVectors], largest = none, sum = _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
        seen[i] = seen_lanes(i, begin, end);
        v[i] = _mm512_mul_ps(_mm512_mask_loadu_ps(none, seen[i], scores + i * 16), s);
        v[i] = _mm512_mask_mov_ps(none, seen[i], v[i]);  // a negative scale would turn -inf around
        largest = _mm512_max_ps(largest, v[i]);
    }
    const float max = _mm512_reduce_max_ps(largest);
    const __m512 top = _mm512_set1_ps(max * 1.44269504f);
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; i += 2) {
        const __m512 e0 = exp2_of(_mm512_fmsub_ps(v[i], log2e, top), seen[i]);
        const __m512 e1 = exp2_of(_mm512_fmsub_ps(v[i + 1], log2e, top), seen[i + 1]);
        sum = _mm512_add_ps(_mm512_add_ps(sum, e0), e1);
        _mm512_storeu_si512(static_cast<char*>(p) + i * 32, __m512i(_mm512_cvtne2ps_pbh(e1, e0)));
    }
    return {max, _mm512_reduce_add_ps(sum)};
}

template <int kRows>
void add_rows(AttentionKernels& kernels) {
    kernels.scores[kRows] = &scores<kRows>;
    kernels.values[kRows] = &values<kRows>;
}

}  // namespace

void use_avx512bf16(AttentionKernels& kernels) {
    kernels.q_type = kernels.p_type = DType::bf16;
    add_rows<1>(kernels);
    add_rows<2>(kernels);
    add_rows<3>(kernels);
    add_rows<4>(kernels);
    add_rows<6>(kernels);
    add_rows<8>(kernels);
    add_rows<12>(kernels);
    kernels.max_rows = 12;
    kernels.softmax = &softmax;
}

}  // namespace llmgen::cpu
#else
namespace llmgen::cpu {
void use_avx512bf16(AttentionKernels&) {}
}  // namespace llmgen::cpu
#endif
