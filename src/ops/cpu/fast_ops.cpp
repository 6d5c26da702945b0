// The fast backend: SIMD kernels chosen once for this machine, threads over rows, panels, heads and blocks.
#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include "ops/cpu/attention_fast.h"
#include "ops/cpu/checks.h"
#include "ops/cpu/cpu_base.h"
#include "ops/cpu/kv_layout.h"
#include "ops/cpu/linear_fast.h"
#include "ops/cpu/packed_weight.h"
#include "ops/cpu/row_kernels.h"

namespace llmgen::cpu {
namespace {

// Rows of fewer values in all than this, 4 µs of one thread, are done by the calling thread: a fork costs 1
// to 2 µs.
constexpr std::int64_t kSerialValues = 20000;

/// Whether the next tokens, of `n`, are those of one whole page, in its order.
bool fills_page(const int* slots, std::int64_t n) {
    if (n < kPageSize || slots[0] % kPageSize != 0) return false;
    for (int i = 1; i < kPageSize; ++i)
        if (slots[i] != slots[0] + i) return false;
    return true;
}

class FastOps final : public CpuBase {
public:
    FastOps(Compute compute, int threads, Isa isa, bool onednn)
        : CpuBase(compute, threads, name_of(isa)),
          rows_(row_kernels(isa)),
          linear_(act(), isa, team_, onednn),
          attention_(act(), isa, team_),
          holds_steps_(!onednn) {
        borrows_ = act() == DType::bf16 && isa == Isa::avx512_bf16 && !onednn;
    }

    /// Scratch grows at its first use instead and is kept: sizes depend on weights that may come later.
    void reserve(const AttentionShape&, int, int, int) override {}

    Tensor step(std::uint64_t, const std::function<Tensor()>& enqueue) override {
        if (!holds_steps_) return enqueue();
        struct Order {
            explicit Order(LinearRunner& of) : linear(of) { linear.begin_step(); }
            ~Order() { linear.end_step(); }
            LinearRunner& linear;
        } order(linear_);
        return team_.step(enqueue);
    }
    void embed(Tensor x, const Weight& table, Tensor ids) override;
    void rmsnorm(Tensor out, Tensor x, const Vector& weight, float eps) override;
    void linear(Tensor out, Tensor x, const Weight& w) override {
        check_linear(out, x, w, act());
        linear_.run(TileOutput::Kind::store, out, x, w);
    }
    void linear_add(Tensor x, Tensor h, const Weight& w) override {
        check_linear_add(x, h, w, act());
        linear_.run(TileOutput::Kind::add, x, h, w);
    }
    void linear_swiglu(Tensor out, Tensor h, const Weight& gate_up) override {
        check_linear_swiglu(out, h, gate_up, act());
        linear_.run(TileOutput::Kind::swiglu, out, h, gate_up);
    }
    void norm_linear(Tensor out, const NormedRows& in, const Weight& w) override {
        check_rmsnorm(in.h, in.x, in.weight);
        check_linear(out, in.h, w, act());
        linear_.run(TileOutput::Kind::store, out, in.h, w, {norm_of(in), {}});
    }
    void norm_linear_swiglu(Tensor out, const NormedRows& in, const Weight& gate_up) override {
        check_rmsnorm(in.h, in.x, in.weight);
        check_linear_swiglu(out, in.h, gate_up, act());
        linear_.run(TileOutput::Kind::swiglu, out, in.h, gate_up, {norm_of(in), {}});
    }
    void norm_mlp(
        Tensor x, Tensor mlp, const NormedRows& in, const Weight& gate_up, const Weight& down) override {
        check_rmsnorm(in.h, in.x, in.weight);
        check_linear_swiglu(mlp, in.h, gate_up, act());
        check_linear_add(x, mlp, down, act());
        linear_.run_mlp(x, mlp, in.h, gate_up, down, {norm_of(in)});
    }
    void norm_qkv_rope_store(Tensor qkv,
                             const NormedRows& in,
                             const Weight& w,
                             const KvCache& kv,
                             Tensor cos_sin,
                             const Vector& q_norm,
                             const Vector& k_norm,
                             const Batch& batch,
                             const AttentionShape& shape) override {
        check_rmsnorm(in.h, in.x, in.weight);
        check_linear(qkv, in.h, w, act());
        check_store_kv(qkv, kv, cos_sin, q_norm, k_norm, batch, shape, act());
        const Rope rope{qkv, kv, cos_sin, q_norm, k_norm, in.eps, batch, shape};
        linear_.run(TileOutput::Kind::store, qkv, in.h, w,
                    {norm_of(in), [&](std::int64_t begin, std::int64_t end) { run_rope(rope, begin, end); }});
    }
    bool finds_largest() const override { return true; }
    void norm_head(Tensor logits, Tensor ids, const NormedRows& in, const Weight& head) override;
    void rope_angles(Tensor cos_sin, Tensor positions, const Vector& inv_freq, float factor) override;
    void qk_norm_rope_store_kv(Tensor qkv,
                               const KvCache& kv,
                               Tensor cos_sin,
                               const Vector& q_norm,
                               const Vector& k_norm,
                               float eps,
                               const Batch& batch,
                               const AttentionShape& shape) override;
    void attention(
        Tensor out, Tensor q, const KvCache& kv, const Batch& batch, const AttentionShape& shape) override {
        check_attention(out, q, kv, batch, shape, act());
        attention_.run(out, q, kv, batch, shape);
    }
    void attention_of_wanted(
        Tensor out, Tensor q, const KvCache& kv, const Batch& batch, const AttentionShape& shape) override {
        check_attention(out, q, kv, batch, shape, act());
        attention_.run(out, q, kv, batch, shape, AttentionRunner::Rows::wanted);
    }
    void gather_rows(Tensor out, Tensor x, Tensor rows) override;

private:
    /// What qk_norm_rope_store_kv gets, for its rows one by one.
    struct Rope {
        const Tensor& qkv;
        const KvCache& kv;
        const Tensor& cos_sin;
        const Vector& q_norm;
        const Vector& k_norm;
        float eps;
        const Batch& batch;
        const AttentionShape& shape;
    };
    void run_rope(const Rope& rope, std::int64_t begin, std::int64_t end) const;
    void run_norm(const Tensor& out,
                  const Tensor& x,
                  const Vector& weight,
                  float eps,
                  std::int64_t begin,
                  std::int64_t end) const;
    RowSteps::Step norm_of(const NormedRows& in) const {
        return [this, &in](std::int64_t begin, std::int64_t end) {
            run_norm(in.h, in.x, in.weight, in.eps, begin, end);
        };
    }

    /// body(begin, end) over rows of `width` values.
    template <typename Body>
    void over_rows(std::int64_t n, std::int64_t width, const Body& body) {
        if (n * width < kSerialValues) return body(std::int64_t(0), n);
        team_.ranges(n, body);
    }

    RowKernels rows_;
    LinearRunner linear_;
    AttentionRunner attention_;
    std::vector<Largest> largest_;  // [threads][rows] of norm_head
    bool holds_steps_;              // oneDNN opens parallel regions of its own
};

void FastOps::embed(Tensor x, const Weight& table, Tensor ids) {
    check_embed(x, table, ids);
    const PanelWeight& w = panels_of(table);
    over_rows(ids.dim(0), table.in, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
            float* to = x.as<float>() + t * x.stride[0];
            if (w.borrowed) {
                const bf16* row = w.borrowed->row(ids.as<int>()[t]);
                for (std::int64_t d = 0; d < table.in; ++d) to[d] = to_f32(row[d]);
                continue;
            }
            const std::int64_t first = w.offset(ids.as<int>()[t], 0);
            if (w.dtype == DType::f32) {
                const float* from = static_cast<const float*>(w.memory.data) + first;
                for (std::int64_t d = 0; d < table.in; ++d) to[d] = from[d * kPanel];
            } else {
                const bf16* from = static_cast<const bf16*>(w.memory.data) + first;
                for (std::int64_t d = 0; d < table.in; ++d)
                    to[d] = to_f32(from[d / 2 * (2 * kPanel) + d % 2]);
            }
        }
    });
}

void FastOps::rmsnorm(Tensor out, Tensor x, const Vector& weight, float eps) {
    check_rmsnorm(out, x, weight);
    over_rows(x.dim(0), weight.size,
              [&](std::int64_t begin, std::int64_t end) { run_norm(out, x, weight, eps, begin, end); });
}

void FastOps::run_norm(const Tensor& out,
                       const Tensor& x,
                       const Vector& weight,
                       float eps,
                       std::int64_t begin,
                       std::int64_t end) const {
    const auto* w = static_cast<const float*>(weight.buffer->data());
    const std::int64_t out_row = out.stride[0] * std::int64_t(size_of(out.dtype));
    for (std::int64_t t = begin; t < end; ++t)
        rows_.rmsnorm(static_cast<char*>(out.data) + t * out_row, out.dtype, x.as<float>() + t * x.stride[0],
                      w, weight.size, eps);
}

/// Each thread looks at its own outputs of a row while they are in the nearest cache.
void FastOps::norm_head(Tensor logits, Tensor ids, const NormedRows& in, const Weight& head) {
    if (!ids) return norm_linear(logits, in, head);
    check_rmsnorm(in.h, in.x, in.weight);
    check_linear(logits, in.h, head, act());
    const std::int64_t n = logits.dim(0);
    expect_shape(logits, "logits", {n, head.out});
    expect_dtype(logits, "logits", DType::f32);
    expect_shape(ids, "ids", {n});
    expect_dtype(ids, "ids", DType::i32);
    largest_.assign(std::size_t(n * team_.size()), {});
    const auto look = [&](int self, std::int64_t first, std::int64_t width, std::int64_t row, int rows) {
        for (std::int64_t r = row; r < row + rows; ++r)
            rows_.find_largest(largest_[std::size_t(self * n + r)],
                               logits.as<float>() + r * logits.stride[0] + first, int(first), int(width));
    };
    linear_.run(TileOutput::Kind::store, logits, in.h, head, {norm_of(in), {}, look});
    for (std::int64_t row = 0; row < n; ++row) {
        Largest found;
        for (int i = 0; i < team_.size(); ++i) {
            const Largest& part = largest_[std::size_t(i * n + row)];
            found.sound &= part.sound;
            if (part.value > found.value) std::tie(found.value, found.at) = std::pair(part.value, part.at);
        }
        ids.as<int>()[row] = found.sound ? found.at : -1;
    }
}

void FastOps::rope_angles(Tensor cos_sin, Tensor positions, const Vector& inv_freq, float factor) {
    check_rope_angles(cos_sin, positions, inv_freq);
    const auto* frequency = static_cast<const float*>(inv_freq.buffer->data());
    const std::int64_t half = inv_freq.size;
    // A sine costs about as much as 16 of the values that other rows count.
    over_rows(positions.dim(0), half * 32, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
            float* to = cos_sin.as<float>() + 2 * t * half;
            for (std::int64_t d = 0; d < half; ++d) {
                const float angle = float(positions.as<int>()[t]) * frequency[d];
                to[d] = std::cos(angle) * factor;
                to[half + d] = std::sin(angle) * factor;
            }
        }
    });
}

void FastOps::qk_norm_rope_store_kv(Tensor qkv,
                                    const KvCache& kv,
                                    Tensor cos_sin,
                                    const Vector& q_norm,
                                    const Vector& k_norm,
                                    float eps,
                                    const Batch& batch,
                                    const AttentionShape& shape) {
    check_store_kv(qkv, kv, cos_sin, q_norm, k_norm, batch, shape, act());
    const Rope rope{qkv, kv, cos_sin, q_norm, k_norm, eps, batch, shape};
    over_rows(qkv.dim(0), shape.qkv_width(),
              [&](std::int64_t begin, std::int64_t end) { run_rope(rope, begin, end); });
}

void FastOps::run_rope(const Rope& rope, std::int64_t begin, std::int64_t end) const {
    const AttentionShape& shape = rope.shape;
    const KvCache& kv = rope.kv;
    const int head_dim = shape.head_dim, half = shape.rotary_dim / 2;
    const auto weight_of = [](const Vector& v) {
        return v ? static_cast<const float*>(v.buffer->data()) : nullptr;
    };
    const float *q_weight = weight_of(rope.q_norm), *k_weight = weight_of(rope.k_norm);
    const auto turn = [&](float* head, const float* weight, const float* angles) {
        if (weight) rows_.rmsnorm(head, DType::f32, head, weight, head_dim, rope.eps);
        rows_.rotate(head, angles, angles + half, half);
    };
    const int* slots = rope.batch.slots.as<int>();
    const auto block_of = [&](int slot, int head) {
        return block_offset(kv.k, slot / kPageSize, head) * std::int64_t(size_of(act()));
    };
    const auto prefetch = [&](int slot) {
        for (int h = 0; h < shape.n_kv_heads; ++h)
            rows_.prefetch_kv(static_cast<char*>(kv.k.data) + block_of(slot, h),
                              static_cast<char*>(kv.v.data) + block_of(slot, h), act(), slot % kPageSize,
                              head_dim);
    };
    if (begin < end) prefetch(slots[begin]);
    for (std::int64_t t = begin, n = 1; t < end; t += n) {
        n = rows_.store_kv_page && fills_page(slots + t, end - t) ? kPageSize : 1;
        const int slot = slots[t];
        // Rows of one page follow each other in a prompt; in a step of many sequences each has its own.
        if (t + n < end && slots[t + n] / kPageSize != slot / kPageSize) prefetch(slots[t + n]);
        float* q = rope.qkv.as<float>() + t * rope.qkv.stride[0];
        const std::int64_t stride = rope.qkv.stride[0];
        for (std::int64_t i = 0; i < n; ++i) {
            const float* angles = rope.cos_sin.as<float>() + (t + i) * shape.rotary_dim;
            float *head = q + i * stride, *k = head + shape.q_width();
            for (int h = 0; h < shape.n_heads; ++h, head += head_dim) turn(head, q_weight, angles);
            for (int h = 0; h < shape.n_kv_heads; ++h, k += head_dim) turn(k, k_weight, angles);
        }
        const float *k = q + shape.q_width(), *v = k + std::int64_t(shape.n_kv_heads) * head_dim;
        for (int h = 0; h < shape.n_kv_heads; ++h, k += head_dim, v += head_dim) {
            char* to_k = static_cast<char*>(kv.k.data) + block_of(slot, h);
            char* to_v = static_cast<char*>(kv.v.data) + block_of(slot, h);
            if (n > 1)
                rows_.store_kv_page(to_k, to_v, act(), k, v, stride, head_dim);
            else
                rows_.store_kv(to_k, to_v, act(), k, v, slot % kPageSize, head_dim);
        }
    }
}

void FastOps::gather_rows(Tensor out, Tensor x, Tensor rows) {
    check_gather_rows(out, x, rows);
    for (std::int64_t i = 0; i < rows.dim(0); ++i)
        std::memmove(out.as<float>() + i * out.stride[0], x.as<float>() + rows.as<int>()[i] * x.stride[0],
                     std::size_t(x.dim(1)) * sizeof(float));
}

}  // namespace

std::unique_ptr<Ops> make_fast_ops(Compute compute, int threads, Isa isa, bool onednn) {
    return std::make_unique<FastOps>(compute, threads, isa, onednn);
}

}  // namespace llmgen::cpu
