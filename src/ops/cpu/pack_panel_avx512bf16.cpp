// Turning rows into panels in registers. Compiled for its instruction set alone: nothing here runs before the
// CPU was asked.
#include "ops/cpu/pack_panel.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

#include <cstdint>

// g++ 12 takes the deliberately undefined operands inside its own intrinsics for mistakes (its bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace llmgen::cpu {
namespace {

constexpr int kRows = 16;           // of one turn
constexpr std::int64_t kLine = 64;  // bytes of a row, 16 pairs

// A file is mapped in pages of 4 KiB, and finding one takes longer than reading it: so the lines are drawn
// near well ahead, and a page is looked up long before that.
constexpr std::int64_t kLinesAhead = 32 << 10;
constexpr std::int64_t kPagesAhead = 96 << 10;

/// Draws `bytes` near, which stand kLinesAhead after `here`.
inline void draw_near(const char* here, std::int64_t bytes) {
#pragma GCC unroll 32
    for (std::int64_t i = 0; i < bytes; i += kLine) _mm_prefetch(here + kLinesAhead + i, _MM_HINT_T1);
    if (reinterpret_cast<std::uintptr_t>(here) % 4096 < std::uintptr_t(bytes))
        _mm_prefetch(here + kPagesAhead, _MM_HINT_T1);
}

/// v[i] holds pair `at` to `at` + 15 of row i; afterwards v[p] holds pair p of the 16 rows.
inline void turn(__m512i (&v)[kRows]) {
    __m512i t[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    // v[4 g + k]: of rows 4 g to 4 g + 3 the pairs k, k + 4, k + 8 and k + 12, a quarter each.
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
        t[k] = _mm512_shuffle_i32x4(v[k], v[4 + k], 0x88);
        t[4 + k] = _mm512_shuffle_i32x4(v[k], v[4 + k], 0xdd);
        t[8 + k] = _mm512_shuffle_i32x4(v[8 + k], v[12 + k], 0x88);
        t[12 + k] = _mm512_shuffle_i32x4(v[8 + k], v[12 + k], 0xdd);
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
        v[k] = _mm512_shuffle_i32x4(t[k], t[8 + k], 0x88);
        v[8 + k] = _mm512_shuffle_i32x4(t[k], t[8 + k], 0xdd);
        v[4 + k] = _mm512_shuffle_i32x4(t[4 + k], t[12 + k], 0x88);
        v[12 + k] = _mm512_shuffle_i32x4(t[4 + k], t[12 + k], 0xdd);
    }
}

inline void load_turned(__m512i (&v)[kRows], const void* const* rows, std::int64_t at) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) v[i] = _mm512_loadu_si512(static_cast<const char*>(rows[i]) + at);
    turn(v);
}

void pack(void* panel, const void* const* rows, std::int64_t depth) {
    auto* to = static_cast<char*>(panel);
    for (std::int64_t at = 0; at < depth * 2; at += kLine, to += 16 * 2 * kLine)
        for (int half = 0; half < 2; ++half) {
            __m512i v[kRows];
            load_turned(v, rows + half * kRows, at);
#pragma GCC unroll 16
            for (int p = 0; p < 16; ++p) _mm512_storeu_si512(to + p * 2 * kLine + half * kLine, v[p]);
        }
}

/// The 16 bytes at four places.
inline __m512i four(const void* const* rows, std::int64_t at) {
    const auto load = [&](int i) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const char*>(rows[i]) + at));
    };
    __m512i v = _mm512_castsi128_si512(load(0));
    v = _mm512_inserti32x4(v, load(4), 1);
    v = _mm512_inserti32x4(v, load(8), 2);
    return _mm512_inserti32x4(v, load(12), 3);
}

/// Four pairs of 32 rows at a time, turned inside the quarters of four vectors.
template <bool kAdd>
void multiply(float* out, const void* const* rows, const void* x, std::int64_t depth) {
    constexpr std::int64_t kStep = 16;  // bytes of a row
    const char* ahead = static_cast<const char*>(rows[0]) + 32 * depth * 2;
    __m512 acc[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (std::int64_t at = 0; at < depth * 2; at += kStep, ahead += 32 * kStep) {
        draw_near(ahead, 32 * kStep);
        const __m512i pairs = _mm512_broadcast_i32x4(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const char*>(x) + at)));
        const auto x0 = __m512bh(_mm512_shuffle_epi32(pairs, _MM_PERM_AAAA));
        const auto x1 = __m512bh(_mm512_shuffle_epi32(pairs, _MM_PERM_BBBB));
        const auto x2 = __m512bh(_mm512_shuffle_epi32(pairs, _MM_PERM_CCCC));
        const auto x3 = __m512bh(_mm512_shuffle_epi32(pairs, _MM_PERM_DDDD));
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
            const void* const* first = rows + half * kRows;
            const __m512i v0 = four(first, at), v1 = four(first + 1, at);
            const __m512i v2 = four(first + 2, at), v3 = four(first + 3, at);
            const __m512i low01 = _mm512_unpacklo_epi32(v0, v1), high01 = _mm512_unpackhi_epi32(v0, v1);
            const __m512i low23 = _mm512_unpacklo_epi32(v2, v3), high23 = _mm512_unpackhi_epi32(v2, v3);
            __m512& sum = acc[half];
            sum = _mm512_dpbf16_ps(sum, __m512bh(_mm512_unpacklo_epi64(low01, low23)), x0);
            sum = _mm512_dpbf16_ps(sum, __m512bh(_mm512_unpackhi_epi64(low01, low23)), x1);
            sum = _mm512_dpbf16_ps(sum, __m512bh(_mm512_unpacklo_epi64(high01, high23)), x2);
            sum = _mm512_dpbf16_ps(sum, __m512bh(_mm512_unpackhi_epi64(high01, high23)), x3);
        }
    }
    for (int half = 0; half < 2; ++half, out += 16) {
        if (kAdd) acc[half] = _mm512_add_ps(acc[half], _mm512_loadu_ps(out));
        _mm512_storeu_ps(out, acc[half]);
    }
}

}  // namespace

RowsKernels rows_kernels_avx512bf16() { return {&pack, &multiply<false>, &multiply<true>}; }

}  // namespace llmgen::cpu
#else
namespace llmgen::cpu {
RowsKernels rows_kernels_avx512bf16() { return {}; }
}  // namespace llmgen::cpu
#endif
