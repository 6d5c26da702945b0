// Element types and the two 16-bit float formats.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace llmgen {

enum class DType : std::uint8_t { f32, bf16, f16, i32, u8 };

constexpr std::size_t size_of(DType dtype) {
    switch (dtype) {
        case DType::f32:
        case DType::i32:
            return 4;
        case DType::bf16:
        case DType::f16:
            return 2;
        case DType::u8:
            return 1;
    }
    return 0;
}

constexpr std::string_view name_of(DType dtype) {
    switch (dtype) {
        case DType::f32:
            return "f32";
        case DType::bf16:
            return "bf16";
        case DType::f16:
            return "f16";
        case DType::i32:
            return "i32";
        case DType::u8:
            return "u8";
    }
    return "?";
}

/// The upper half of an f32.
struct bf16 {
    std::uint16_t bits = 0;
};

/// IEEE binary16.
struct f16 {
    std::uint16_t bits = 0;
};

constexpr float to_f32(bf16 value) { return std::bit_cast<float>(std::uint32_t(value.bits) << 16); }

/// Round to nearest even; NaN stays NaN.
constexpr bf16 to_bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bf16{std::uint16_t((bits >> 16) | 0x40u)};
    return bf16{std::uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

constexpr float to_f32(f16 value) {
    const std::uint32_t sign = std::uint32_t(value.bits & 0x8000u) << 16;
    const std::uint32_t exponent = (value.bits >> 10) & 0x1fu;
    const std::uint32_t mantissa = value.bits & 0x3ffu;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
    const float magnitude = float(mantissa) * 0x1p-24f;  // zero or subnormal
    return sign ? -magnitude : magnitude;
}

/// Round to nearest even; overflow gives infinity, NaN stays NaN.
constexpr f16 to_f16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = std::uint16_t((bits >> 16) & 0x8000u);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return f16{std::uint16_t(sign | 0x7e00u)};
    if (magnitude >= 0x47800000u) return f16{std::uint16_t(sign | 0x7c00u)};
    if (magnitude < 0x38800000u) {  // subnormal in f16: adding 0.5 leaves the rounded value in the low bits
        const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
        return f16{std::uint16_t(sign | (std::bit_cast<std::uint32_t>(rounded) - 0x3f000000u))};
    }
    const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return f16{std::uint16_t(sign | ((rounded - 0x38000000u) >> 13))};
}

}  // namespace llmgen
