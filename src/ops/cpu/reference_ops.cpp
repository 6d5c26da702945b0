// The oracle as a backend: each step is its reference.
#include "ops/cpu/checks.h"
#include "ops/cpu/cpu_base.h"
#include "ops/cpu/reference.h"

namespace llmgen::cpu {
namespace {

class ReferenceOps final : public CpuBase {
public:
    explicit ReferenceOps(Compute compute) : CpuBase(compute, 1, "plain loops") {}

    void reserve(const AttentionShape&, int, int, int) override {}
    void embed(Tensor x, const Weight& table, Tensor ids) override {
        check_embed(x, table, ids);
        reference::embed(x, table, ids);
    }
    void rmsnorm(Tensor out, Tensor x, const Vector& weight, float eps) override {
        check_rmsnorm(out, x, weight);
        reference::rmsnorm(out, x, weight, eps);
    }
    void linear(Tensor out, Tensor x, const Weight& w) override {
        check_linear(out, x, w, act());
        reference::linear(out, x, w);
    }
    void linear_add(Tensor x, Tensor h, const Weight& w) override {
        check_linear_add(x, h, w, act());
        reference::linear_add(x, h, w);
    }
    void linear_swiglu(Tensor out, Tensor h, const Weight& gate_up) override {
        check_linear_swiglu(out, h, gate_up, act());
        reference::linear_swiglu(out, h, gate_up);
    }
    void rope_angles(Tensor cos_sin, Tensor positions, const Vector& inv_freq, float factor) override {
        check_rope_angles(cos_sin, positions, inv_freq);
        reference::rope_angles(cos_sin, positions, inv_freq, factor);
    }
    void qk_norm_rope_store_kv(Tensor qkv,
                               const KvCache& kv,
                               Tensor cos_sin,
                               const Vector& q_norm,
                               const Vector& k_norm,
                               float eps,
                               const Batch& batch,
                               const AttentionShape& shape) override {
        check_store_kv(qkv, kv, cos_sin, q_norm, k_norm, batch, shape, act());
        reference::qk_norm_rope_store_kv(qkv, kv, cos_sin, q_norm, k_norm, eps, batch, shape);
    }
    void attention(
        Tensor out, Tensor q, const KvCache& kv, const Batch& batch, const AttentionShape& shape) override {
        check_attention(out, q, kv, batch, shape, act());
        reference::attention(out, q, kv, batch, shape);
    }
    void gather_rows(Tensor out, Tensor x, Tensor rows) override {
        check_gather_rows(out, x, rows);
        reference::gather_rows(out, x, rows);
    }
};

}  // namespace

std::unique_ptr<Ops> make_reference_ops(Compute compute) { return std::make_unique<ReferenceOps>(compute); }

}  // namespace llmgen::cpu
