// Masks of AVX-512 lanes, for the files that are compiled for it.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace llmgen::cpu {

/// The first n of 16; none below 0, all from 16 on.
static inline __mmask16 first_lanes(std::int64_t n) {
    return __mmask16(n <= 0 ? 0u : n >= 16 ? 0xffffu : (1u << n) - 1);
}

}  // namespace llmgen::cpu
