// Attention's two products on the bf16 dot product; see linear_kernels_avx512bf16.cpp.
#include "ops/cpu/attention_kernels.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

namespace llmgen::cpu {
namespace {

inline __m512bh broadcast_pair(const std::uint32_t* x) { return __m512bh(_mm512_set1_epi32(int(*x))); }

template <int kRows, int kPages>
inline void score_pages(float* scores, const std::uint32_t* q, const void* const* keys, int head_dim) {
    __m512 acc[kRows][kPages];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < kPages; ++v) acc[r][v] = _mm512_setzero_ps();
    for (int i = 0; i < head_dim / 2; ++i, q += kRows) {
        __m512bh k[kPages];
#pragma GCC unroll 4
        for (int v = 0; v < kPages; ++v)
            k[v] = __m512bh(
                _mm512_loadu_si512(static_cast<const std::uint32_t*>(keys[v]) + std::int64_t(i) * kPageSize));
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
void scores(float* out, const void* q, const PageBlocks& keys, int begin, int end, int head_dim) {
    constexpr int kPages = kRows > 6 ? 2 : 4;
    const auto* x = static_cast<const std::uint32_t*>(q);
    int page = begin;
    for (; page + kPages <= end; page += kPages)
        score_pages<kRows, kPages>(out + page * kPageSize, x, keys.data() + page, head_dim);
    for (; page < end; ++page) score_pages<kRows, 1>(out + page * kPageSize, x, keys.data() + page, head_dim);
}

template <int kRows, int kVectors, bool kTail>
inline void value_columns(float* out,
                          const std::uint32_t* p,
                          const PageBlocks& values,
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
        const auto* from = static_cast<const std::uint32_t*>(values[std::size_t(key / kPageSize)]) +
                           std::int64_t(key % kPageSize / 2) * head_dim + column;
        // The partner of an odd last key may be a NaN.
        const __m512i exists = _mm512_set1_epi32(key + 1 < end ? -1 : 0xffff);
        __m512bh value[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
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
void values(float* out, const void* p, const PageBlocks& values, int begin, int end, int head_dim) {
    constexpr int kVectors = kRows > 6 ? 2 : 4;
    const auto* weights = static_cast<const std::uint32_t*>(p);
    int column = 0;
    for (; column + kVectors * 16 <= head_dim; column += kVectors * 16)
        value_columns<kRows, kVectors, false>(out, weights, values, begin, end, head_dim, column);
    for (; column + 16 <= head_dim; column += 16)
        value_columns<kRows, 1, false>(out, weights, values, begin, end, head_dim, column);
    if (column < head_dim) value_columns<kRows, 1, true>(out, weights, values, begin, end, head_dim, column);
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
}

}  // namespace llmgen::cpu
#else
namespace llmgen::cpu {
void use_avx512bf16(AttentionKernels&) {}
}  // namespace llmgen::cpu
#endif
