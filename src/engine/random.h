// Random numbers that depend on (seed, step) and on nothing else: no state to carry, so a request draws the
// same numbers alone, in any batch, and after it was preempted.
//
// Philox4x32-10: ten rounds of two 32×32→64 bit products and xors over a 128-bit counter, with a 64-bit key.
// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
#pragma once

#include <array>
#include <cstdint>

namespace llmgen {

constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t a = std::uint64_t(0xD2511F53u) * counter[0];
        const std::uint64_t b = std::uint64_t(0xCD9E8D57u) * counter[2];
        counter = {std::uint32_t(b >> 32) ^ counter[1] ^ key[0], std::uint32_t(b),
                   std::uint32_t(a >> 32) ^ counter[3] ^ key[1], std::uint32_t(a)};
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return counter;
}

/// Uniform in [0, 1), 53 bits.
constexpr double uniform(std::uint64_t seed, std::uint64_t step) {
    const auto bits = philox4x32({std::uint32_t(step), std::uint32_t(step >> 32), 0, 0},
                                 {std::uint32_t(seed), std::uint32_t(seed >> 32)});
    const std::uint64_t word = (std::uint64_t(bits[0]) << 32) | bits[1];
    return double(word >> 11) * 0x1p-53;
}

}  // namespace llmgen
