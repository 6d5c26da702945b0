// The shape checks of each op's contract, shared by both forms of the CPU backend.
#pragma once

#include "ops/ops.h"

namespace llmgen::cpu {

void expect_dtype(const Tensor& tensor, const char* name, DType dtype);

void check_embed(const Tensor& x, const Weight& table, const Tensor& ids);
void check_rmsnorm(const Tensor& out, const Tensor& x, const Vector& weight);
void check_linear(const Tensor& out, const Tensor& x, const Weight& w, DType act);
void check_linear_add(const Tensor& x, const Tensor& h, const Weight& w, DType act);
void check_linear_swiglu(const Tensor& out, const Tensor& h, const Weight& gate_up, DType act);
void check_rope_angles(const Tensor& cos_sin, const Tensor& positions, const Vector& inv_freq);
void check_store_kv(const Tensor& qkv,
                    const KvCache& kv,
                    const Tensor& cos_sin,
                    const Vector& q_norm,
                    const Vector& k_norm,
                    const Batch& batch,
                    const AttentionShape& shape,
                    DType act);
void check_attention(const Tensor& out,
                     const Tensor& q,
                     const KvCache& kv,
                     const Batch& batch,
                     const AttentionShape& shape,
                     DType act);
void check_gather_rows(const Tensor& out, const Tensor& x, const Tensor& rows);

}  // namespace llmgen::cpu
