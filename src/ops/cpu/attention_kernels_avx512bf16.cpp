// Attention's two products on the bf16 dot product; see linear_kernels_avx512bf16.cpp.
#include "ops/cpu/attention_kernels.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

#include <cmath>
#include <type_traits>

#include "ops/cpu/lanes_avx512.h"

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

/// 2^x for x <= 0. The fit of 2^f on 0 <= f < 1 with p(0) = 1 is within 2^-18; p is rounded to bf16 anyway.
/// scalef rounds its exponent down by itself.
inline __m512 exp2_of(__m512 x) {
    const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 p = _mm512_set1_ps(1.3426795e-2f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.2242297e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.24128029f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.69304483f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, x);
}

/// The lanes of vector i whose keys lie in [begin, end).
inline __mmask16 seen_lanes(int i, int begin, int end) {
    return __mmask16(first_lanes(end - 16 * i) & ~first_lanes(begin - 16 * i));
}

/// The largest of the scaled scores seen, all in the first kPairs * 32; kAll: these are all seen.
template <int kPairs, bool kAll>
inline float largest_score(const float* scores, KeyRange seen, __m512 scale) {
    const __m512 none = _mm512_set1_ps(-HUGE_VALF);
    __m512 largest[2] = {none, none};
#pragma GCC unroll 8
    for (int i = 0; i < 2 * kPairs; ++i) {
        __m512 v = _mm512_mul_ps(_mm512_loadu_ps(scores + i * 16), scale);
        if (!kAll) v = _mm512_mask_mov_ps(none, seen_lanes(i, seen.begin, seen.end), v);
        largest[i % 2] = _mm512_max_ps(largest[i % 2], v);
    }
    return _mm512_reduce_max_ps(_mm512_max_ps(largest[0], largest[1]));
}

/// p = 2^(scaled score - max); returns the sum.
template <int kPairs, bool kAll>
inline float powers(char* p, const float* scores, KeyRange seen, __m512 scale, float max) {
    const __m512 top = _mm512_set1_ps(max);
    __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
#pragma GCC unroll 4
    for (int i = 0; i < 2 * kPairs; i += 2) {
        __m512 e[2];
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
            e[j] = exp2_of(_mm512_fmsub_ps(_mm512_loadu_ps(scores + (i + j) * 16), scale, top));
            if (!kAll) e[j] = _mm512_maskz_mov_ps(seen_lanes(i + j, seen.begin, seen.end), e[j]);
            sum[j] = _mm512_add_ps(sum[j], e[j]);
        }
        _mm512_storeu_si512(p + i * 32, __m512i(_mm512_cvtne2ps_pbh(e[1], e[0])));
    }
    for (int i = 2 * kPairs; i < kKeyBlock / 16; i += 2)
        _mm512_storeu_si512(p + i * 32, _mm512_setzero_si512());
    return _mm512_reduce_add_ps(_mm512_add_ps(sum[0], sum[1]));
}

/// Calls f with the pairs of vectors in which a row sees keys, and whether it sees all 128, as constants. The
/// steps are the same either way: what isn't seen adds zeros.
template <typename F>
inline void with_pairs(KeyRange seen, const F& f) {
    using std::integral_constant;
    if (seen.begin == 0 && seen.end == kKeyBlock) return f(integral_constant<int, 4>(), std::true_type());
    switch ((seen.end + 31) / 32) {
        case 1:
            return f(integral_constant<int, 1>(), std::false_type());
        case 2:
            return f(integral_constant<int, 2>(), std::false_type());
        case 3:
            return f(integral_constant<int, 3>(), std::false_type());
        default:
            return f(integral_constant<int, 4>(), std::false_type());
    }
}

/// Two thirds of the instructions of the general one: the exponent is put in and the pairs are rounded by one
/// instruction each, and the keys behind the last that a row sees are left out. Two passes over the rows:
/// each row's maximum waits for itself, the others' needn't.
void softmax(const SoftmaxRows& rows) {
    constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f;
    const __m512 s = _mm512_set1_ps(rows.scale * kLog2e);
    float top[kMaxQueryRows];
    for (int r = 0; r < rows.rows; ++r)
        with_pairs(rows.seen[r], [&](auto pairs, auto all) {
            top[r] = largest_score<pairs, all>(rows.scores + r * kKeyBlock, rows.seen[r], s);
        });
    for (int r = 0; r < rows.rows; ++r) {
        rows.max[r] = top[r] * kLn2;
        char* to = static_cast<char*>(rows.p) + r * kKeyBlock * 2;
        with_pairs(rows.seen[r], [&](auto pairs, auto all) {
            rows.sum[r] = powers<pairs, all>(to, rows.scores + r * kKeyBlock, rows.seen[r], s, top[r]);
        });
    }
}

void finish(void* out, DType, const float* total, float factor, int n) {
    const __m512 f = _mm512_set1_ps(factor);
    for (int i = 0; i < n; i += 16) {
        const __mmask16 m = first_lanes(n - i);
        const __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, total + i), f);
        _mm256_mask_storeu_epi16(static_cast<bf16*>(out) + i, m, __m256i(_mm512_cvtneps_pbh(v)));
    }
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
    kernels.finish = &finish;
}

}  // namespace llmgen::cpu
#else
namespace llmgen::cpu {
void use_avx512bf16(AttentionKernels&) {}
}  // namespace llmgen::cpu
#endif
