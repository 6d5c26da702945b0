// Rotary positions: the angles of a step, and the one pass that norms, rotates and stores q, k and v.
#include <cmath>

#include "ops/cpu/element.h"
#include "ops/cpu/kv_layout.h"
#include "ops/cpu/reference.h"

namespace llmgen::cpu::reference {
namespace {

void norm_head(float* head, int head_dim, const Vector& weight, float eps) {
    const auto* w = static_cast<const float*>(weight.buffer->data());
    double sum = 0;
    for (int d = 0; d < head_dim; ++d) sum += double(head[d]) * head[d];
    const double scale = 1 / std::sqrt(sum / head_dim + eps);
    for (int d = 0; d < head_dim; ++d) head[d] = float(head[d] * scale) * w[d];
}

void rotate(float* head, const float* cos_sin, int rotary_dim) {
    const int half = rotary_dim / 2;
    for (int d = 0; d < half; ++d) {
        const float a = head[d], b = head[d + half], c = cos_sin[d], s = cos_sin[half + d];
        head[d] = a * c - b * s;
        head[d + half] = b * c + a * s;
    }
}

}  // namespace

void rope_angles(Tensor cos_sin, Tensor positions, const Vector& inv_freq, float factor) {
    const auto* frequency = static_cast<const float*>(inv_freq.buffer->data());
    const std::int64_t half = inv_freq.size;
    for (std::int64_t t = 0; t < positions.dim(0); ++t)
        for (std::int64_t d = 0; d < half; ++d) {
            const float angle = float(positions.as<int>()[t]) * frequency[d];
            cos_sin.as<float>()[(2 * t) * half + d] = std::cos(angle) * factor;
            cos_sin.as<float>()[(2 * t + 1) * half + d] = std::sin(angle) * factor;
        }
}

void qk_norm_rope_store_kv(Tensor qkv,
                           const KvCache& kv,
                           Tensor cos_sin,
                           const Vector& q_norm,
                           const Vector& k_norm,
                           float eps,
                           const Batch& batch,
                           const AttentionShape& shape) {
    const int head_dim = shape.head_dim;
    for (std::int64_t t = 0; t < qkv.dim(0); ++t) {
        const float* angles = cos_sin.as<float>() + t * shape.rotary_dim;
        const int slot = batch.slots.as<int>()[t], page = slot / kPageSize, row = slot % kPageSize;
        float* head = qkv.as<float>() + t * qkv.stride[0];
        for (int h = 0; h < shape.n_heads; ++h, head += head_dim) {
            if (q_norm) norm_head(head, head_dim, q_norm, eps);
            rotate(head, angles, shape.rotary_dim);
        }
        for (int h = 0; h < shape.n_kv_heads; ++h, head += head_dim) {
            if (k_norm) norm_head(head, head_dim, k_norm, eps);
            rotate(head, angles, shape.rotary_dim);
            for (int d = 0; d < head_dim; ++d)
                store(kv.k.data, kv.k.dtype, block_offset(kv.k, page, h) + key_offset(kv.k.dtype, row, d),
                      head[d]);
        }
        for (int h = 0; h < shape.n_kv_heads; ++h, head += head_dim)
            for (int d = 0; d < head_dim; ++d)
                store(kv.v.data, kv.v.dtype,
                      block_offset(kv.v, page, h) + value_offset(kv.v.dtype, row, d, head_dim), head[d]);
    }
}

}  // namespace llmgen::cpu::reference
