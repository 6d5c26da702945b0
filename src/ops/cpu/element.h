// Reads and writes single elements of any float type: for the references and for edges.
#pragma once

#include "base/tensor.h"

namespace llmgen::cpu {

inline float load(const void* data, DType dtype, std::int64_t i) {
    switch (dtype) {
        case DType::f32:
            return static_cast<const float*>(data)[i];
        case DType::bf16:
            return to_f32(static_cast<const bf16*>(data)[i]);
        case DType::f16:
            return to_f32(static_cast<const f16*>(data)[i]);
        default:
            CHECK(false, "{} is no float type", name_of(dtype));
    }
    return 0;
}

inline void store(void* data, DType dtype, std::int64_t i, float value) {
    switch (dtype) {
        case DType::f32:
            static_cast<float*>(data)[i] = value;
            return;
        case DType::bf16:
            static_cast<bf16*>(data)[i] = to_bf16(value);
            return;
        default:
            CHECK(false, "no output is {}", name_of(dtype));
    }
}

inline float at(const Tensor& x, std::int64_t t, std::int64_t d) {
    return load(x.data, x.dtype, t * x.stride[0] + d);
}
inline void set(const Tensor& x, std::int64_t t, std::int64_t d, float value) {
    store(x.data, x.dtype, t * x.stride[0] + d, value);
}
inline float round_to(DType dtype, float value) {
    return dtype == DType::bf16 ? to_f32(to_bf16(value)) : value;
}

}  // namespace llmgen::cpu
