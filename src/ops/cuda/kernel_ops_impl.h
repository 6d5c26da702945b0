// The class behind kernel_ops.h. Its parts: kernel_ops.cpp (memory, weights), kernel_steps.cpp (the single
// steps), kernel_fused.cpp (steps in one, choosing tokens).
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "kernels.h"
#include "ops/cuda/runtime.h"

namespace llmgen::cuda {

using kernels::Dependent;

/// Up to here GEMV reads the weight at memory pace; above, the GEMM's tensor cores win. Not measured yet: the
/// instructions of 8 rows are three quarters of what an H100 issues while it reads, and all of an H200's
/// (kernels/NOTES.md).
constexpr std::int64_t kGemvTokens = kernels::kMaxGemvTokens;

/// The f32 products of gate and up wait here between the GEMM and SwiGLU; longer batches go in parts.
constexpr std::size_t kMaxProducts = 64 << 20;

class DeviceBuffer : public Buffer {
public:
    DeviceBuffer(std::shared_ptr<Runtime> runtime, std::size_t bytes, const char* what)
        : runtime_(std::move(runtime)) {
        data_ = runtime_->allocate(std::max<std::size_t>(bytes, 256));
        bytes_ = bytes;
        if (data_ != nullptr) return;
        const DeviceInfo info = runtime_->info();
        fail(
            "{}: {} needs {} MiB of GPU memory, {} of {} MiB are free; give a shorter --max-context, a "
            "smaller "
            "--kv-memory or a smaller model",
            info.name, what, bytes >> 20, info.memory_free >> 20, info.memory_total >> 20);
    }
    ~DeviceBuffer() override {
        if (data_ != nullptr) runtime_->release(data_);
    }

private:
    std::shared_ptr<Runtime> runtime_;
};

struct DeviceWeight : PackedWeight {
    std::unique_ptr<DeviceBuffer> values;  // [out, in], row-major
};

inline void expect_dtype(const Tensor& tensor, const char* name, DType dtype) {
    CHECK(tensor.dtype == dtype, "{} is {}, expected {}", name, describe(tensor), name_of(dtype));
}

class KernelOps : public Ops {
public:
    KernelOps(std::unique_ptr<Runtime> runtime, Compute compute)
        : runtime_(std::move(runtime)), compute_(compute) {}

    DeviceInfo info() const override { return runtime_->info(); }
    Compute compute() const override { return compute_; }
    std::unique_ptr<Buffer> allocate(std::size_t bytes, const char* what) override {
        return std::make_unique<DeviceBuffer>(runtime_, bytes, what);
    }
    void reserve(const AttentionShape& shape, int max_tokens, int max_seqs, int max_context) override;
    std::size_t scratch_bytes(const AttentionShape& shape,
                              int max_tokens,
                              int max_seqs,
                              int max_context) const override;
    void upload(Tensor dst, const void* host) override;
    void download(void* host, Tensor src) override;
    void synchronize() override { runtime_->synchronize(); }
    Tensor step(std::uint64_t key, const std::function<Tensor()>& enqueue) override {
        return runtime_->step(key, enqueue);
    }
    bool records_steps() const override { return true; }
    Weight make_weight(std::span<const Tensor> parts, std::span<const Tensor> bias_parts) override;
    Vector make_vector(Tensor host) override;

    void embed(Tensor x, const Weight& table, Tensor ids) override;
    void rmsnorm(Tensor out, Tensor x, const Vector& weight, float eps) override;
    void linear(Tensor out, Tensor x, const Weight& w) override;
    void linear_add(Tensor x, Tensor h, const Weight& w) override;
    void linear_swiglu(Tensor out, Tensor h, const Weight& gate_up) override;
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
        Tensor out, Tensor q, const KvCache& kv, const Batch& batch, const AttentionShape& shape) override;
    void gather_rows(Tensor out, Tensor x, Tensor rows) override;

    void norm_linear(Tensor out, const NormedRows& in, const Weight& w) override;
    void norm_linear_swiglu(Tensor out, const NormedRows& in, const Weight& gate_up) override;
    void norm_qkv_rope_store(Tensor qkv,
                             const NormedRows& in,
                             const Weight& w,
                             const KvCache& kv,
                             Tensor cos_sin,
                             const Vector& q_norm,
                             const Vector& k_norm,
                             const Batch& batch,
                             const AttentionShape& shape) override;
    bool chooses_tokens() const override { return true; }
    void norm_head(Tensor logits, Tensor ids, const NormedRows& in, const Weight& head) override;
    void choose(Tensor ids, Tensor logits, std::span<const TokenChoice> rows) override;
    int begin_read(Tensor ids) override;
    void finish_read(std::span<int> ids, int ticket) override;

private:
    DType act() const { return activation_type(compute_); }
    kernels::Stream stream() { return runtime_->stream(); }
    kernels::Gemv gemv_of(const Tensor& y, const Tensor& x, const Weight& w) const;
    bool fuses_norm(const NormedRows& in, const Weight& w) const;
    kernels::Gemv fused_gemv_of(const Tensor& y, const NormedRows& in, const Weight& w) const;
    kernels::RopeStore rope_of(const Tensor& qkv,
                               const KvCache& kv,
                               const Tensor& cos_sin,
                               const Vector& q_norm,
                               const Vector& k_norm,
                               float eps,
                               const Batch& batch,
                               const AttentionShape& shape) const;
    void gemm(const Tensor& y, const Tensor& x, const Weight& w, bool accumulate);
    void gemv_in_parts(const Tensor& y, const Tensor& x, const Weight& w, bool accumulate);
    void* zeros(std::unique_ptr<DeviceBuffer>& buffer, std::size_t bytes, const char* what);
    float* scratch(std::unique_ptr<DeviceBuffer>& buffer, std::size_t values, const char* what);
    bool tiled(const AttentionShape& shape) const {
        return compute_ == Compute::bf16 && kernels::attn_tiled(shape.head_dim);
    }

    std::shared_ptr<Runtime> runtime_;
    Compute compute_;
    std::int64_t reserved_tokens_ = 0;  // of a step
    std::unique_ptr<DeviceBuffer> attention_scratch_, product_scratch_;
    // zero between launches: each leaves them as it found them
    std::unique_ptr<DeviceBuffer> arrivals_, attention_arrivals_, best_;
    std::unique_ptr<DeviceBuffer> choice_scratch_;
    std::vector<char> choice_staging_;
};

inline const void* values_of(const Weight& w) {
    return static_cast<const DeviceWeight&>(*w.packed).values->data();
}
inline const float* bias_of(const Weight& w) {
    return w.bias ? static_cast<const float*>(w.bias->data()) : nullptr;
}
inline const float* values_of(const Vector& v) {
    return v ? static_cast<const float*>(v.buffer->data()) : nullptr;
}

}  // namespace llmgen::cuda
