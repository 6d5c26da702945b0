// Steps in one, where a batch is small enough for the kernels that fuse them, and choosing tokens.
#include <bit>
#include <cstring>

#include "ops/cuda/kernel_ops_impl.h"
#include "ops/cuda/sample_row.h"

namespace llmgen::cuda {

// --- steps in one

bool KernelOps::fuses_norm(const NormedRows& in, const Weight& w) const {
    return in.x.dim(0) <= kGemvTokens && kernels::gemv_fuses_norm(int(in.x.dim(0)), int(w.in), act(), act());
}

kernels::Gemv KernelOps::fused_gemv_of(const Tensor& y, const NormedRows& in, const Weight& w) const {
    expect_shape(in.x, "x", {-1, w.in});
    expect_dtype(in.x, "x", DType::f32);
    CHECK(in.weight.size == w.in, "a norm of {} before {} columns", in.weight.size, w.in);
    kernels::Gemv p = gemv_of(y, in.x, w);
    p.norm_weight = values_of(in.weight);
    p.eps = in.eps;
    return p;
}

void KernelOps::norm_linear(Tensor out, const NormedRows& in, const Weight& w) {
    if (!fuses_norm(in, w)) return Ops::norm_linear(out, in, w);
    expect_shape(out, "out", {in.x.dim(0), w.out});
    kernels::gemv(fused_gemv_of(out, in, w), Dependent::yes, stream());
    runtime_->check("norm_linear");
}

void KernelOps::norm_linear_swiglu(Tensor out, const NormedRows& in, const Weight& gate_up) {
    if (!fuses_norm(in, gate_up)) return Ops::norm_linear_swiglu(out, in, gate_up);
    CHECK(gate_up.out % 2 == 0, "gate and up have {} rows", gate_up.out);
    expect_shape(out, "out", {in.x.dim(0), gate_up.out / 2});
    expect_dtype(out, "out", act());
    kernels::gemv_swiglu(fused_gemv_of(out, in, gate_up), Dependent::yes, stream());
    runtime_->check("norm_linear_swiglu");
}

void KernelOps::norm_qkv_rope_store(Tensor qkv,
                                    const NormedRows& in,
                                    const Weight& w,
                                    const KvCache& kv,
                                    Tensor cos_sin,
                                    const Vector& q_norm,
                                    const Vector& k_norm,
                                    const Batch& batch,
                                    const AttentionShape& shape) {
    const std::size_t counters = std::size_t(shape.n_heads + shape.n_kv_heads) * sizeof(int);
    const bool norms = q_norm || k_norm, counted = arrivals_ != nullptr && arrivals_->bytes() >= counters;
    if (!fuses_norm(in, w) || !kernels::gemv_takes_qkv(shape.head_dim, shape.rotary_dim, norms) ||
        (norms && !counted))
        return Ops::norm_qkv_rope_store(qkv, in, w, kv, cos_sin, q_norm, k_norm, batch, shape);
    expect_shape(qkv, "qkv", {in.x.dim(0), w.out});
    kernels::Gemv p = fused_gemv_of(qkv, in, w);
    p.rope = rope_of(qkv, kv, cos_sin, q_norm, k_norm, in.eps, batch, shape);
    p.arrivals = norms ? static_cast<int*>(arrivals_->data()) : nullptr;
    kernels::gemv_qkv(p, Dependent::yes, stream());
    runtime_->check("norm_qkv_rope_store");
}

// --- choosing tokens

void KernelOps::norm_head(Tensor logits, Tensor ids, const NormedRows& in, const Weight& head) {
    const int n = int(in.x.dim(0));
    expect_shape(logits, "logits", {n, head.out});
    if (!ids) return norm_linear(logits, in, head);
    expect_shape(ids, "ids", {n});
    expect_dtype(ids, "ids", DType::i32);
    expect_dtype(logits, "logits", DType::f32);
    auto* best =
        static_cast<kernels::Best*>(zeros(best_, std::size_t(n) * sizeof(kernels::Best), "counters"));
    if (fuses_norm(in, head)) {
        kernels::Gemv p = fused_gemv_of(logits, in, head);
        p.best = best;
        kernels::gemv_argmax(p, Dependent::yes, stream());
    } else {
        Ops::norm_linear(logits, in, head);
        kernels::argmax(best, logits.as<float>(), logits.stride[0], n, int(head.out), stream());
    }
    kernels::take_best(ids.as<int>(), best, n, stream());
    runtime_->check("norm_head");
}

/// What a choice needs on the device, in one piece of memory and so one copy:
///   rows [n] SampleRow | chosen [n] Sampled | ids and values of biases and penalties, 4 bytes each
void KernelOps::choose(Tensor ids, Tensor logits, std::span<const TokenChoice> rows) {
    using kernels::Sampled, kernels::SampleRow;
    if (rows.empty()) return;
    expect_shape(ids, "ids", {logits.dim(0)});
    expect_dtype(ids, "ids", DType::i32);
    expect_dtype(logits, "logits", DType::f32);
    std::size_t lists = rows.size() * (sizeof(SampleRow) + sizeof(Sampled)), bytes = lists;
    for (const TokenChoice& c : rows) bytes += 8 * (c.biases.size() + c.penalties.size());
    scratch(choice_scratch_, std::bit_ceil(std::max<std::size_t>(bytes, 1 << 16)) / sizeof(float),
            "choices of tokens");
    char* device = static_cast<char*>(choice_scratch_->data());
    choice_staging_.assign(bytes, 0);
    auto* to = reinterpret_cast<SampleRow*>(choice_staging_.data());
    const auto place = [&](std::span<const std::pair<int, float>> list, const int*& list_ids,
                           const float*& values, int& n) {
        n = int(list.size());
        list_ids = reinterpret_cast<const int*>(device + lists);
        values = reinterpret_cast<const float*>(device + lists + 4 * list.size());
        for (std::size_t i = 0; i < list.size(); ++i) {
            std::memcpy(&choice_staging_[lists + 4 * i], &list[i].first, 4);
            std::memcpy(&choice_staging_[lists + 4 * (list.size() + i)], &list[i].second, 4);
        }
        lists += 8 * list.size();
    };
    for (const TokenChoice& c : rows) {
        CHECK(c.row >= 0 && c.row < logits.dim(0), "row {} of {}", c.row, logits.dim(0));
        SampleRow row = sample_row(c);
        row.id = ids.as<int>() + c.row;
        place(c.penalties, row.penalty_ids, row.penalties, row.n_penalties);
        place(c.biases, row.bias_ids, row.biases, row.n_bias);
        *to++ = row;
    }
    runtime_->copy_in({device, bytes}, {choice_staging_.data(), bytes}, bytes, 1);
    auto* chosen = reinterpret_cast<Sampled*>(device + rows.size() * sizeof(SampleRow));
    kernels::sample(chosen, logits.as<float>(), logits.stride[0], reinterpret_cast<SampleRow*>(device),
                    int(rows.size()), int(logits.dim(1)), stream());
    runtime_->check("choose");
}

int KernelOps::begin_read(Tensor ids) {
    expect_dtype(ids, "ids", DType::i32);
    CHECK(ids.contiguous());
    return runtime_->begin_read(ids.data, std::size_t(ids.bytes()));
}

void KernelOps::finish_read(std::span<int> ids, int ticket) {
    runtime_->finish_read(ids.data(), ids.size_bytes(), ticket);
}

}  // namespace llmgen::cuda
