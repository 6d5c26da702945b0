// The reference of each op: plain loops, sums in f64, one thread. Written to be read; contracts in ops.h.
#pragma once

#include "ops/ops.h"

namespace llmgen::cpu::reference {

void embed(Tensor x, const Weight& table, Tensor ids);
void rmsnorm(Tensor out, Tensor x, const Vector& weight, float eps);
void linear(Tensor out, Tensor x, const Weight& w);
void linear_add(Tensor x, Tensor h, const Weight& w);
void linear_swiglu(Tensor out, Tensor h, const Weight& gate_up);
void rope_angles(Tensor cos_sin, Tensor positions, const Vector& inv_freq, float factor);
void qk_norm_rope_store_kv(Tensor qkv,
                           const KvCache& kv,
                           Tensor cos_sin,
                           const Vector& q_norm,
                           const Vector& k_norm,
                           float eps,
                           const Batch& batch,
                           const AttentionShape& shape);
void attention(Tensor out, Tensor q, const KvCache& kv, const Batch& batch, const AttentionShape& shape);
void gather_rows(Tensor out, Tensor x, Tensor rows);

}  // namespace llmgen::cpu::reference
