// The single steps of the waist on the kernels.
#include "ops/cuda/kernel_ops_impl.h"

namespace llmgen::cuda {
// --- rows

void KernelOps::embed(Tensor x, const Weight& table, Tensor ids) {
    expect_shape(x, "x", {ids.dim(0), table.in});
    expect_dtype(x, "x", DType::f32);
    expect_dtype(ids, "ids", DType::i32);
    kernels::embed(x.as<float>(), x.stride[0], values_of(table), act(), ids.as<int>(), int(ids.dim(0)),
                   int(table.in), int(table.out), stream());
    runtime_->check("embed");
}

void KernelOps::gather_rows(Tensor out, Tensor x, Tensor rows) {
    expect_shape(out, "out", {rows.dim(0), x.dim(1)});
    expect_dtype(out, "out", DType::f32);
    expect_dtype(x, "x", DType::f32);
    kernels::gather_rows(out.as<float>(), out.stride[0], x.as<float>(), x.stride[0], rows.as<int>(),
                         int(rows.dim(0)), int(x.dim(1)), stream());
    runtime_->check("gather_rows");
}

void KernelOps::rmsnorm(Tensor out, Tensor x, const Vector& weight, float eps) {
    expect_shape(x, "x", {-1, weight.size});
    expect_shape(out, "out", {x.dim(0), weight.size});
    expect_dtype(x, "x", DType::f32);
    kernels::RmsNorm p{};
    p.out = out.data;
    p.out_type = out.dtype;
    p.out_stride = out.stride[0];
    p.x = x.as<float>();
    p.x_stride = x.stride[0];
    p.weight = values_of(weight);
    p.n_tokens = int(x.dim(0));
    p.hidden = int(weight.size);
    p.eps = eps;
    kernels::rmsnorm(p, Dependent::yes, stream());
    runtime_->check("rmsnorm");
}

// --- products

kernels::Gemv KernelOps::gemv_of(const Tensor& y, const Tensor& x, const Weight& w) const {
    kernels::Gemv p{};
    p.weight = values_of(w);
    p.weight_type = p.act_type = act();
    p.bias = bias_of(w);
    p.x = x.data;
    p.x_stride = x.stride[0];
    p.n_tokens = int(x.dim(0));
    p.out = int(w.out);
    p.in = int(w.in);
    p.y = y.data;
    p.y_type = y.dtype;
    p.y_stride = y.stride[0];
    return p;
}

/// y = W x + bias by the kernel for few rows, a few at a time: for what cuBLASLt has no way to do.
void KernelOps::gemv_in_parts(const Tensor& y, const Tensor& x, const Weight& w, bool accumulate) {
    for (std::int64_t first = 0; first < x.dim(0); first += kGemvTokens) {
        const std::int64_t rows = std::min(kGemvTokens, x.dim(0) - first);
        const auto launch = accumulate ? kernels::gemv_add : kernels::gemv;
        launch(gemv_of(y.rows(first, rows), x.rows(first, rows), w), Dependent::yes, stream());
    }
}

void KernelOps::gemm(const Tensor& y, const Tensor& x, const Weight& w, bool accumulate) {
    Gemm p{};
    p.y = y.data;
    p.y_type = y.dtype;
    p.y_stride = y.stride[0];
    p.x = x.data;
    p.act_type = act();
    p.x_stride = x.stride[0];
    p.weight = values_of(w);
    p.bias = bias_of(w);
    p.n_tokens = int(x.dim(0));
    p.out = int(w.out);
    p.in = int(w.in);
    p.accumulate = accumulate;
    if (!runtime_->gemm(p)) gemv_in_parts(y, x, w, accumulate);
}

void KernelOps::linear(Tensor out, Tensor x, const Weight& w) {
    expect_shape(x, "x", {-1, w.in});
    expect_shape(out, "out", {x.dim(0), w.out});
    expect_dtype(x, "x", act());
    const std::int64_t n = x.dim(0);
    if (n <= kGemvTokens) {
        kernels::gemv(gemv_of(out, x, w), Dependent::yes, stream());
    } else if (out.dtype == DType::f32 || !w.bias) {
        gemm(out, x, w, false);
    } else {  // cuBLASLt adds no f32 bias to a bf16 output; no model asks for this
        gemv_in_parts(out, x, w, false);
    }
    runtime_->check("linear");
}

void KernelOps::linear_add(Tensor x, Tensor h, const Weight& w) {
    expect_shape(h, "h", {-1, w.in});
    expect_shape(x, "x", {h.dim(0), w.out});
    expect_dtype(x, "x", DType::f32);
    expect_dtype(h, "h", act());
    if (h.dim(0) <= kGemvTokens)
        kernels::gemv_add(gemv_of(x, h, w), Dependent::yes, stream());
    else
        gemm(x, h, w, true);
    runtime_->check("linear_add");
}

void KernelOps::linear_swiglu(Tensor out, Tensor h, const Weight& gate_up) {
    CHECK(gate_up.out % 2 == 0, "gate and up have {} rows", gate_up.out);
    expect_shape(h, "h", {-1, gate_up.in});
    expect_shape(out, "out", {h.dim(0), gate_up.out / 2});
    expect_dtype(h, "h", act());
    expect_dtype(out, "out", act());
    const std::int64_t n = h.dim(0);
    if (n <= kGemvTokens) {
        kernels::gemv_swiglu(gemv_of(out, h, gate_up), Dependent::yes, stream());
        return runtime_->check("linear_swiglu");
    }
    // Whole tiles of the library's products: the last rows of a part would cost as much as a whole tile.
    constexpr std::int64_t kTile = 256;
    std::int64_t most = std::max<std::int64_t>(1, std::int64_t(kMaxProducts / sizeof(float)) / gate_up.out);
    if (most > kTile) most = most / kTile * kTile;
    // At once for the longest batch there will be: growing step by step it would end at twice as much.
    const std::int64_t longest = std::min(most, std::max(n, reserved_tokens_));
    float* products =
        scratch(product_scratch_, std::size_t(longest * gate_up.out), "products of gate and up");
    for (std::int64_t first = 0; first < n; first += most) {
        const std::int64_t rows = std::min(most, n - first);
        gemm(Tensor(products, DType::f32, {rows, gate_up.out}), h.rows(first, rows), gate_up, false);
        const Tensor part = out.rows(first, rows);
        kernels::swiglu(part.data, part.dtype, part.stride[0], products, int(rows), int(gate_up.out / 2),
                        stream());
    }
    runtime_->check("linear_swiglu");
}

// --- positions and attention

void KernelOps::rope_angles(Tensor cos_sin, Tensor positions, const Vector& inv_freq, float factor) {
    expect_shape(cos_sin, "cos_sin", {positions.dim(0), 2, inv_freq.size});
    CHECK(cos_sin.contiguous());
    kernels::rope_angles(cos_sin.as<float>(), positions.as<int>(), values_of(inv_freq), factor,
                         int(positions.dim(0)), int(inv_freq.size), stream());
    runtime_->check("rope_angles");
}

kernels::RopeStore KernelOps::rope_of(const Tensor& qkv,
                                      const KvCache& kv,
                                      const Tensor& cos_sin,
                                      const Vector& q_norm,
                                      const Vector& k_norm,
                                      float eps,
                                      const Batch& batch,
                                      const AttentionShape& shape) const {
    expect_shape(qkv, "qkv", {-1, shape.qkv_width()});
    expect_shape(cos_sin, "cos_sin", {qkv.dim(0), 2, shape.rotary_dim / 2});
    expect_shape(kv.k, "k", {-1, shape.n_kv_heads, kPageSize, shape.head_dim});
    expect_dtype(qkv, "qkv", DType::f32);
    expect_dtype(kv.k, "k", act());
    CHECK(shape.head_dim <= 256, "head_dim {}", shape.head_dim);
    kernels::RopeStore p{};
    p.qkv = qkv.as<float>();
    p.qkv_stride = qkv.stride[0];
    p.k = kv.k.data;
    p.v = kv.v.data;
    p.kv_type = act();
    p.cos_sin = cos_sin.as<float>();
    p.slots = batch.slots.as<int>();
    p.q_norm = values_of(q_norm);
    p.k_norm = values_of(k_norm);
    p.eps = eps;
    p.n_tokens = int(qkv.dim(0));
    p.n_heads = shape.n_heads;
    p.n_kv_heads = shape.n_kv_heads;
    p.head_dim = shape.head_dim;
    p.rotary_dim = shape.rotary_dim;
    return p;
}

void KernelOps::qk_norm_rope_store_kv(Tensor qkv,
                                      const KvCache& kv,
                                      Tensor cos_sin,
                                      const Vector& q_norm,
                                      const Vector& k_norm,
                                      float eps,
                                      const Batch& batch,
                                      const AttentionShape& shape) {
    kernels::qk_norm_rope_store_kv(rope_of(qkv, kv, cos_sin, q_norm, k_norm, eps, batch, shape),
                                   Dependent::yes, stream());
    runtime_->check("qk_norm_rope_store_kv");
}

void KernelOps::attention(
    Tensor out, Tensor q, const KvCache& kv, const Batch& batch, const AttentionShape& shape) {
    expect_shape(q, "q", {-1, shape.q_width()});
    expect_shape(out, "out", {q.dim(0), shape.q_width()});
    expect_dtype(q, "q", DType::f32);
    expect_dtype(out, "out", act());
    CHECK(shape.n_kv_heads > 0 && shape.n_heads % shape.n_kv_heads == 0 && shape.head_dim <= 256);
    kernels::Attention p{};
    p.out = out.data;
    p.out_stride = out.stride[0];
    p.q = q.as<float>();
    p.q_stride = q.stride[0];
    p.k = kv.k.data;
    p.v = kv.v.data;
    p.kv_type = act();
    p.first_token = batch.first_token.as<int>();
    p.context_len = batch.context_len.as<int>();
    p.page_table = batch.page_table.as<int>();
    p.page_stride = int(batch.page_table.stride[0]);
    p.n_seqs = int(batch.context_len.dim(0));
    p.n_heads = shape.n_heads;
    p.n_kv_heads = shape.n_kv_heads;
    p.head_dim = shape.head_dim;
    p.window = shape.window;
    p.scale = shape.scale;
    if (!tiled(shape)) {
        kernels::attn_generic(p, int(q.dim(0)), Dependent::yes, stream());
        return runtime_->check("attention");
    }
    const HostBatch& host = *batch.host;
    int n_tiles = 0, longest = 0;
    for (std::size_t s = 0; s < host.context_len.size(); ++s) {
        const int n_new = host.first_token[s + 1] - host.first_token[s];
        n_tiles += kernels::attn_prefill_tiles(n_new, shape.n_heads, shape.n_kv_heads);
        if (n_new > 0 && kernels::attn_is_decode(n_new, shape.n_heads, shape.n_kv_heads))
            longest = std::max(longest, host.context_len[s]);
    }
    kernels::attn_prefill(p, n_tiles, Dependent::yes, stream());
    if (longest > 0) {
        if (host.context_bound > 0) longest = host.context_bound;
        const std::size_t values =
            kernels::attn_decode_scratch(p.n_seqs, shape.n_heads, shape.n_kv_heads, shape.head_dim);
        const std::size_t arrivals = kernels::attn_decode_arrivals(p.n_seqs, shape.n_heads, shape.n_kv_heads);
        p.arrivals = static_cast<int*>(zeros(attention_arrivals_, arrivals * sizeof(int), "counters"));
        kernels::attn_decode(p, scratch(attention_scratch_, values, "attention scratch"), longest,
                             Dependent::yes, stream());
    }
    runtime_->check("attention");
}

}  // namespace llmgen::cuda
