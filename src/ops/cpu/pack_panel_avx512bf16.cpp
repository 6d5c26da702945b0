// Turning rows into panels in registers. Compiled for its instruction set alone: nothing here runs before the
// CPU was asked.
#include "ops/cpu/pack_panel.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

// g++ 12 takes the deliberately undefined operands inside its own intrinsics for mistakes (its bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace llmgen::cpu {
namespace {

constexpr int kRows = 16;           // of one turn
constexpr std::int64_t kLine = 64;  // bytes of a row, 16 pairs

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

}  // namespace

PackPanel pack_panel_avx512bf16() { return &pack; }

}  // namespace llmgen::cpu
#else
namespace llmgen::cpu {
PackPanel pack_panel_avx512bf16() { return nullptr; }
}  // namespace llmgen::cpu
#endif
