// Runs of consecutive elements between memory and f32 registers, 16 bytes at a time.
#pragma once

#include "common/device.h"

namespace llmgen::kernels {

/// The i-th 16-bit value of a word, as f32.
template <typename T>
__device__ __forceinline__ float half_of(std::uint32_t word, int i) {
    if constexpr (std::is_same_v<T, bf16>)
        return bits_to_f32(i == 0 ? word << 16 : word & 0xffff0000u);
    else
        return as_f32(f16{std::uint16_t(i == 0 ? word & 0xffffu : word >> 16)});
}

/// The elements of a 16-byte vector.
template <typename T>
inline constexpr int kPerVec = 16 / int(sizeof(T));

template <typename T>
__device__ __forceinline__ void unpack(const Vec16& v, float (&values)[kPerVec<T>]) {
    for (int i = 0; i < 4; ++i) {
        if constexpr (sizeof(T) == 4) {
            values[i] = bits_to_f32(v.w[i]);
        } else {
            values[2 * i] = half_of<T>(v.w[i], 0);
            values[2 * i + 1] = half_of<T>(v.w[i], 1);
        }
    }
}

/// kN consecutive elements at `p`, which is aligned to min(16, kN * sizeof(T)).
template <int kN, typename T>
__device__ __forceinline__ void load_f32(const T* p, float (&values)[kN]) {
    if constexpr (kN * sizeof(T) == 8) {
        const Vec8 v = load8(p);
        for (int i = 0; i < 2; ++i) {
            values[2 * i] = half_of<T>(v.w[i], 0);
            values[2 * i + 1] = half_of<T>(v.w[i], 1);
        }
    } else {
        static_assert(kN % kPerVec<T> == 0);
        for (int j = 0; j < kN / kPerVec<T>; ++j) {
            float part[kPerVec<T>];
            unpack<T>(load16(p + j * kPerVec<T>), part);
            for (int i = 0; i < kPerVec<T>; ++i) values[j * kPerVec<T> + i] = part[i];
        }
    }
}

/// Four consecutive elements rounded to T, 16 or 8 bytes at `p`.
template <typename T>
__device__ __forceinline__ void store4(T* p, const float (&values)[4]) {
    if constexpr (sizeof(T) == 4)
        store16(p, Vec16{f32_to_bits(values[0]), f32_to_bits(values[1]), f32_to_bits(values[2]),
                         f32_to_bits(values[3])});
    else
        store8(p, Vec8{pack2<T>(values[0], values[1]), pack2<T>(values[2], values[3])});
}

__device__ __forceinline__ float silu(float g) { return g / (1.0f + expf(-g)); }

}  // namespace llmgen::kernels
