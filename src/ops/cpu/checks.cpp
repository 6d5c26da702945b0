#include "ops/cpu/checks.h"

#include <string>

namespace llmgen::cpu {
namespace {

void expect_ids(const Tensor& ids, const char* name, std::int64_t n, std::int64_t limit) {
    expect_shape(ids, name, {n});
    expect_dtype(ids, name, DType::i32);
    for (std::int64_t i = 0; i < n; ++i) {
        const int id = ids.as<int>()[i];
        CHECK(id >= 0 && id < limit, "{}[{}] is {}, limit {}", name, i, id, limit);
    }
}

void check_kv(const KvCache& kv, const AttentionShape& shape, DType act) {
    CHECK(shape.n_kv_heads > 0 && shape.n_heads % shape.n_kv_heads == 0, "{} heads over {}", shape.n_heads,
          shape.n_kv_heads);
    for (const Tensor* cache : {&kv.k, &kv.v}) {
        expect_shape(*cache, "kv", {-1, shape.n_kv_heads, kPageSize, shape.head_dim});
        expect_dtype(*cache, "kv", act);
        CHECK(cache->rows(1).contiguous());  // pages may lie apart
    }
    CHECK(act == DType::f32 || shape.head_dim % 2 == 0, "head_dim {} is odd", shape.head_dim);
}

void check_batch(const Batch& batch) {
    const std::int64_t n_seqs = batch.context_len.dim(0);
    expect_shape(batch.first_token, "first_token", {n_seqs + 1});
    expect_shape(batch.page_table, "page_table", {n_seqs, -1});
    for (const Tensor* t : {&batch.slots, &batch.first_token, &batch.context_len, &batch.page_table})
        expect_dtype(*t, "batch", DType::i32);
}

}  // namespace

void expect_dtype(const Tensor& tensor, const char* name, DType dtype) {
    CHECK(tensor.dtype == dtype, "{} is {}, expected {}", name, describe(tensor), name_of(dtype));
}

void check_embed(const Tensor& x, const Weight& table, const Tensor& ids) {
    expect_shape(x, "x", {ids.dim(0), table.in});
    expect_dtype(x, "x", DType::f32);
    expect_ids(ids, "ids", ids.dim(0), table.out);
}

void check_rmsnorm(const Tensor& out, const Tensor& x, const Vector& weight) {
    expect_shape(x, "x", {-1, weight.size});
    expect_shape(out, "out", {x.dim(0), weight.size});
    expect_dtype(x, "x", DType::f32);
    CHECK(out.dtype == DType::f32 || out.dtype == DType::bf16, "out is {}", describe(out));
}

void check_linear(const Tensor& out, const Tensor& x, const Weight& w, DType act) {
    expect_shape(x, "x", {-1, w.in});
    expect_shape(out, "out", {x.dim(0), w.out});
    expect_dtype(x, "x", act);
    CHECK(out.dtype == DType::f32 || out.dtype == act, "out is {}", describe(out));
}

void check_linear_add(const Tensor& x, const Tensor& h, const Weight& w, DType act) {
    check_linear(x, h, w, act);
    expect_dtype(x, "x", DType::f32);
}

void check_linear_swiglu(const Tensor& out, const Tensor& h, const Weight& gate_up, DType act) {
    CHECK(gate_up.out % 2 == 0, "gate and up have {} rows", gate_up.out);
    expect_shape(h, "h", {-1, gate_up.in});
    expect_shape(out, "out", {h.dim(0), gate_up.out / 2});
    expect_dtype(h, "h", act);
    expect_dtype(out, "out", act);
}

void check_rope_angles(const Tensor& cos_sin, const Tensor& positions, const Vector& inv_freq) {
    expect_shape(positions, "positions", {-1});
    expect_dtype(positions, "positions", DType::i32);
    expect_shape(cos_sin, "cos_sin", {positions.dim(0), 2, inv_freq.size});
    expect_dtype(cos_sin, "cos_sin", DType::f32);
    CHECK(cos_sin.contiguous());
}

void check_store_kv(const Tensor& qkv,
                    const KvCache& kv,
                    const Tensor& cos_sin,
                    const Vector& q_norm,
                    const Vector& k_norm,
                    const Batch& batch,
                    const AttentionShape& shape,
                    DType act) {
    const std::int64_t n_tokens = qkv.dim(0);
    check_kv(kv, shape, act);
    check_batch(batch);
    expect_shape(qkv, "qkv", {n_tokens, shape.qkv_width()});
    expect_dtype(qkv, "qkv", DType::f32);
    CHECK(shape.rotary_dim % 2 == 0 && shape.rotary_dim <= shape.head_dim, "rotary_dim {}", shape.rotary_dim);
    expect_shape(cos_sin, "cos_sin", {n_tokens, 2, shape.rotary_dim / 2});
    expect_dtype(cos_sin, "cos_sin", DType::f32);
    CHECK(!q_norm || q_norm.size == shape.head_dim, "q_norm has {} values", q_norm.size);
    CHECK(!k_norm || k_norm.size == shape.head_dim, "k_norm has {} values", k_norm.size);
    expect_ids(batch.slots, "slots", n_tokens, kv.k.dim(0) * kPageSize);
}

void check_attention(const Tensor& out,
                     const Tensor& q,
                     const KvCache& kv,
                     const Batch& batch,
                     const AttentionShape& shape,
                     DType act) {
    check_kv(kv, shape, act);
    check_batch(batch);
    const std::int64_t n_seqs = batch.context_len.dim(0);
    const int* first = batch.first_token.as<int>();
    const std::int64_t n_tokens = first[n_seqs];
    expect_shape(q, "q", {n_tokens, shape.q_width()});
    expect_shape(out, "out", {n_tokens, shape.q_width()});
    expect_dtype(q, "q", DType::f32);
    expect_dtype(out, "out", act);
    const std::int64_t max_pages = batch.page_table.dim(1);
    for (std::int64_t s = 0; s < n_seqs; ++s) {
        const int context = batch.context_len.as<int>()[s];
        CHECK(first[s + 1] >= first[s] && context >= first[s + 1] - first[s],
              "sequence {}: {} keys for {} tokens", s, context, first[s + 1] - first[s]);
        CHECK(context <= max_pages * kPageSize, "sequence {}: {} keys in {} pages", s, context, max_pages);
        for (int page = 0; page * kPageSize < context; ++page) {
            const int id = batch.page_table.as<int>()[s * batch.page_table.stride[0] + page];
            CHECK(id >= 0 && id < kv.k.dim(0), "page_table[{}, {}] is {}, limit {}", s, page, id,
                  kv.k.dim(0));
        }
    }
}

void check_gather_rows(const Tensor& out, const Tensor& x, const Tensor& rows) {
    expect_shape(out, "out", {rows.dim(0), x.dim(1)});
    expect_dtype(out, "out", DType::f32);
    expect_dtype(x, "x", DType::f32);
    expect_ids(rows, "rows", rows.dim(0), x.dim(0));
}

}  // namespace llmgen::cpu
