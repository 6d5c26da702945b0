// out[t, h] = sum_p softmax_p(scale · q[t, h] · k[p]) v[p], straight from the formula.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/cpu/element.h"
#include "ops/cpu/kv_layout.h"
#include "ops/cpu/reference.h"

namespace llmgen::cpu::reference {
namespace {

/// Keys begin to end - 1 of one kv head of one sequence.
struct Keys {
    const KvCache& kv;
    const int* pages;
    int head;
    int head_dim;

    float k(int position, int d) const {
        return load(kv.k.data, kv.k.dtype,
                    block_offset(kv.k, pages[position / kPageSize], head) +
                        key_offset(kv.k.dtype, position % kPageSize, d));
    }
    float v(int position, int d) const {
        return load(kv.v.data, kv.v.dtype,
                    block_offset(kv.v, pages[position / kPageSize], head) +
                        value_offset(kv.v.dtype, position % kPageSize, d, head_dim));
    }
};

void attend(const Tensor& out,
            std::int64_t t,
            std::int64_t column,
            const float* q,
            const Keys& keys,
            int begin,
            int end,
            float scale) {
    std::vector<double> p(std::size_t(end - begin));
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int i = begin; i < end; ++i) {
        double score = 0;
        for (int d = 0; d < keys.head_dim; ++d) score += double(q[d]) * keys.k(i, d);
        p[std::size_t(i - begin)] = score * scale;
        largest = std::max(largest, score * scale);
    }
    for (double& value : p) sum += value = std::exp(value - largest);
    for (int d = 0; d < keys.head_dim; ++d) {
        double value = 0;
        for (int i = begin; i < end; ++i) value += p[std::size_t(i - begin)] * keys.v(i, d);
        set(out, t, column + d, float(value / sum));
    }
}

}  // namespace

void attention(Tensor out, Tensor q, const KvCache& kv, const Batch& batch, const AttentionShape& shape) {
    const int group = shape.n_heads / shape.n_kv_heads;
    for (std::int64_t s = 0; s < batch.context_len.dim(0); ++s) {
        const int first = batch.first_token.as<int>()[s], end = batch.first_token.as<int>()[s + 1];
        const int* pages = batch.page_table.as<int>() + s * batch.page_table.stride[0];
        for (int t = first; t < end; ++t) {
            const int position = batch.context_len.as<int>()[s] - (end - t);
            const int oldest = shape.window > 0 ? std::max(0, position - shape.window + 1) : 0;
            for (int h = 0; h < shape.n_heads; ++h) {
                const std::int64_t column = std::int64_t(h) * shape.head_dim;
                attend(out, t, column, q.as<float>() + t * q.stride[0] + column,
                       Keys{kv, pages, h / group, shape.head_dim}, oldest, position + 1, shape.scale);
            }
        }
    }
}

}  // namespace llmgen::cpu::reference
