// What the tests of paths share.
#pragma once

#include "base/dtype.h"
#include "simt/testing.h"

namespace llmgen::simt {

template <typename T>
constexpr DType type_of() {
    return std::is_same_v<T, float> ? DType::f32 : std::is_same_v<T, bf16> ? DType::bf16 : DType::f16;
}

/// A value of a type, from one of another.
template <typename T>
T made(double value) {
    if constexpr (std::is_same_v<T, bf16>)
        return to_bf16(float(value));
    else if constexpr (std::is_same_v<T, f16>)
        return to_f16(float(value));
    else
        return float(value);
}

}  // namespace llmgen::simt
