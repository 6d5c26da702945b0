#include "ops/cuda/kernel_ops.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <vector>

#include "base/error.h"
#include "kernels.h"

namespace llmgen::cuda {
namespace {

using kernels::Dependent;

/// Up to here GEMV reads the weight at memory pace; above, the GEMM's tensor cores win. Not measured yet:
/// GEMV's arithmetic at 8 rows is half of what an H100 does while it reads (kernels/NOTES.md).
constexpr std::int64_t kGemvTokens = kernels::kMaxGemvTokens;
/// The f32 products of gate and up wait here between the GEMM and SwiGLU; longer batches go in parts.
constexpr std::size_t kMaxScratch = 64 << 20;

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

float element(const Tensor& t, std::int64_t i) {
    if (t.dtype == DType::f32) return t.as<float>()[i];
    return t.dtype == DType::bf16 ? to_f32(t.as<bf16>()[i]) : to_f32(t.as<f16>()[i]);
}

/// One row of a host view as f32 or bf16.
void convert_row(void* to, DType type, const Tensor& from, std::int64_t row, std::int64_t width) {
    const std::int64_t first = row * from.stride[0];
    if (from.dtype == type) {
        std::memcpy(to, from.as<char>() + first * std::int64_t(size_of(type)),
                    std::size_t(width) * size_of(type));
        return;
    }
    for (std::int64_t i = 0; i < width; ++i) {
        const float value = element(from, first + i);
        if (type == DType::f32)
            static_cast<float*>(to)[i] = value;
        else
            static_cast<bf16*>(to)[i] = to_bf16(value);
    }
}

void expect_dtype(const Tensor& tensor, const char* name, DType dtype) {
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
    void choose(std::span<int> ids, Tensor logits, std::span<const TokenChoice> rows) override;

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
    void* zeros(std::unique_ptr<DeviceBuffer>& buffer, std::size_t bytes, const char* what);
    float* scratch(std::unique_ptr<DeviceBuffer>& buffer, std::size_t values, const char* what);
    bool tiled(const AttentionShape& shape) const {
        return compute_ == Compute::bf16 && kernels::attn_tiled(shape.head_dim);
    }

    std::shared_ptr<Runtime> runtime_;
    Compute compute_;
    std::unique_ptr<DeviceBuffer> attention_scratch_, product_scratch_;
    std::unique_ptr<DeviceBuffer> arrivals_,
        best_;  // zero between launches: each leaves them as it found them
    std::unique_ptr<DeviceBuffer> choice_scratch_;
    std::vector<char> choice_staging_;
};

// --- memory

/// Grows outside of reserve() only where a caller never reserved, or at the first batch that a GEMM takes.
float* KernelOps::scratch(std::unique_ptr<DeviceBuffer>& buffer, std::size_t values, const char* what) {
    if (buffer == nullptr || buffer->bytes() < values * sizeof(float)) {
        if (buffer != nullptr) {  // twice as much: lists that grow with the answer mustn't move at each token
            values = std::max(values, 2 * buffer->bytes() / sizeof(float));
            runtime_->forget_steps();
            runtime_->synchronize();
        }
        buffer.reset();
        buffer = std::make_unique<DeviceBuffer>(runtime_, values * sizeof(float), what);
    }
    return static_cast<float*>(buffer->data());
}

/// Memory that was zeroed when it was made.
void* KernelOps::zeros(std::unique_ptr<DeviceBuffer>& buffer, std::size_t bytes, const char* what) {
    if (buffer == nullptr || buffer->bytes() < bytes) {
        if (buffer != nullptr) runtime_->forget_steps();
        if (buffer != nullptr) runtime_->synchronize();
        buffer.reset();
        buffer = std::make_unique<DeviceBuffer>(runtime_, bytes, what);
        std::vector<char> nothing(bytes);
        runtime_->copy_in({buffer->data(), bytes}, {nothing.data(), bytes}, bytes, 1);
    }
    return buffer->data();
}

void KernelOps::reserve(const AttentionShape& shape, int max_tokens, int max_seqs, int) {
    runtime_->finish_writes();
    runtime_->forget_steps();
    zeros(arrivals_, std::size_t(shape.n_heads + shape.n_kv_heads) * sizeof(int), "counters");
    zeros(best_, std::size_t(max_tokens) * sizeof(kernels::Best), "counters");
    if (tiled(shape))
        scratch(attention_scratch_,
                kernels::attn_decode_scratch(max_seqs, shape.n_heads, shape.n_kv_heads, shape.head_dim),
                "attention scratch");
}

/// A view as rows of contiguous bytes.
struct RowShape {
    std::size_t pitch, width, height;
};
RowShape rows_of(const Tensor& t) {
    const std::size_t element = size_of(t.dtype);
    if (t.contiguous()) return {std::size_t(t.bytes()), std::size_t(t.bytes()), t.bytes() > 0 ? 1u : 0u};
    CHECK(t.rank == 2, "{} is strided over more than rows", describe(t));
    return {std::size_t(t.stride[0]) * element, std::size_t(t.dim(1)) * element, std::size_t(t.dim(0))};
}

void KernelOps::upload(Tensor dst, const void* host) {
    const RowShape rows = rows_of(dst);
    if (rows.height * rows.width == 0) return;
    runtime_->copy_in({dst.data, rows.pitch}, {const_cast<void*>(host), rows.width}, rows.width, rows.height);
}

void KernelOps::download(void* host, Tensor src) {
    const RowShape rows = rows_of(src);
    if (rows.height * rows.width == 0) return runtime_->synchronize();
    runtime_->copy_out({host, rows.width}, {src.data, rows.pitch}, rows.width, rows.height);
}

// --- weights

Weight KernelOps::make_weight(std::span<const Tensor> parts, std::span<const Tensor> bias_parts) {
    CHECK(!parts.empty() && (bias_parts.empty() || bias_parts.size() == parts.size()));
    Weight weight;
    weight.format = compute_ == Compute::f32 ? WeightFormat::f32 : WeightFormat::bf16;
    weight.in = parts[0].dim(1);
    for (const Tensor& part : parts) {
        expect_shape(part, "weight", {-1, weight.in});
        weight.out += part.dim(0);
    }
    const std::size_t row_bytes = std::size_t(weight.in) * size_of(act());
    auto packed = std::make_shared<DeviceWeight>();
    packed->values =
        std::make_unique<DeviceBuffer>(runtime_, std::size_t(weight.out) * row_bytes, "a weight");
    // Converted piece by piece on their way, so that the host never holds a second copy of a large matrix.
    std::size_t at = 0;
    for (const Tensor& part : parts) {
        const std::size_t bytes = std::size_t(part.dim(0)) * row_bytes;
        if (bytes == 0) continue;
        runtime_->write(static_cast<char*>(packed->values->data()) + at, bytes, row_bytes,
                        [&](char* to, std::size_t first, std::size_t n) {
                            for (std::size_t i = 0; i < n / row_bytes; ++i)
                                convert_row(to + i * row_bytes, act(), part,
                                            std::int64_t(first / row_bytes + i), weight.in);
                        });
        at += bytes;
    }
    weight.bytes = at;
    weight.packed = std::move(packed);
    if (!bias_parts.empty()) {
        std::vector<float> bias;
        for (std::size_t i = 0; i < parts.size(); ++i)
            for (std::int64_t o = 0; o < parts[i].dim(0); ++o)
                bias.push_back(bias_parts[i] ? element(bias_parts[i], o) : 0.0f);
        auto buffer = std::make_shared<DeviceBuffer>(runtime_, bias.size() * sizeof(float), "a bias");
        upload(Tensor(buffer->data(), DType::f32, {std::int64_t(bias.size())}), bias.data());
        weight.bias = std::move(buffer);
    }
    return weight;
}

Vector KernelOps::make_vector(Tensor host) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < host.size(); ++i) values.push_back(element(host, i));
    auto buffer = std::make_shared<DeviceBuffer>(runtime_, values.size() * sizeof(float), "a vector");
    upload(Tensor(buffer->data(), DType::f32, {host.size()}), values.data());
    return {std::move(buffer), host.size()};
}

const void* values_of(const Weight& w) { return static_cast<const DeviceWeight&>(*w.packed).values->data(); }
const float* bias_of(const Weight& w) { return w.bias ? static_cast<const float*>(w.bias->data()) : nullptr; }
const float* values_of(const Vector& v) { return v ? static_cast<const float*>(v.buffer->data()) : nullptr; }

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
    runtime_->gemm(p);
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
        for (std::int64_t first = 0; first < n; first += kGemvTokens) {
            const std::int64_t rows = std::min(kGemvTokens, n - first);
            kernels::gemv(gemv_of(out.rows(first, rows), x.rows(first, rows), w), Dependent::yes, stream());
        }
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
    const std::int64_t most =
        std::max<std::int64_t>(1, std::int64_t(kMaxScratch / sizeof(float)) / gate_up.out);
    float* products =
        scratch(product_scratch_, std::size_t(std::min(n, most) * gate_up.out), "products of gate and up");
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
        kernels::attn_decode(p, scratch(attention_scratch_, values, "attention scratch"), longest,
                             Dependent::yes, stream());
    }
    runtime_->check("attention");
}

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
void KernelOps::choose(std::span<int> ids, Tensor logits, std::span<const TokenChoice> rows) {
    using kernels::Sampled, kernels::SampleRow;
    CHECK(ids.size() == rows.size());
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
        SampleRow row{};
        row.row = c.row;
        row.inverse_temperature = c.inverse_temperature;
        row.top_k = c.top_k;
        row.top_p = c.top_p;
        row.min_p = c.min_p;
        row.seed = c.seed;
        row.step = c.step;
        row.repetition = c.repetition;
        place(c.penalties, row.penalty_ids, row.penalties, row.n_penalties);
        place(c.biases, row.bias_ids, row.biases, row.n_bias);
        *to++ = row;
    }
    runtime_->copy_in({device, bytes}, {choice_staging_.data(), bytes}, bytes, 1);
    auto* chosen = reinterpret_cast<Sampled*>(device + rows.size() * sizeof(SampleRow));
    kernels::sample(chosen, logits.as<float>(), logits.stride[0], reinterpret_cast<SampleRow*>(device),
                    int(rows.size()), int(logits.dim(1)), stream());
    runtime_->check("choose");
    // Every other word: Sampled is {id, probability}.
    runtime_->copy_out({ids.data(), sizeof(int)}, {chosen, sizeof(Sampled)}, sizeof(int), ids.size());
}

}  // namespace

std::unique_ptr<Ops> make_kernel_ops(std::unique_ptr<Runtime> runtime, Compute compute) {
    return std::make_unique<KernelOps>(std::move(runtime), compute);
}

}  // namespace llmgen::cuda
