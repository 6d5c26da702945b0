// Memory and weights of the CUDA backend.
#include "ops/cuda/kernel_ops.h"

#include <cstring>
#include <functional>

#include "ops/cuda/kernel_ops_impl.h"

namespace llmgen::cuda {
namespace {

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

}  // namespace

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

std::size_t KernelOps::scratch_bytes(const AttentionShape& shape, int max_tokens, int max_seqs, int) const {
    const std::size_t counters = std::size_t(shape.n_heads + shape.n_kv_heads) * sizeof(int) +
                                 std::size_t(max_tokens) * sizeof(kernels::Best);
    const std::size_t products = max_tokens > kGemvTokens ? kMaxProducts : 0;
    if (!tiled(shape)) return counters + products;
    return counters + products +
           kernels::attn_decode_arrivals(max_seqs, shape.n_heads, shape.n_kv_heads) * sizeof(int) +
           kernels::attn_decode_scratch(max_seqs, shape.n_heads, shape.n_kv_heads, shape.head_dim) *
               sizeof(float);
}

void KernelOps::reserve(const AttentionShape& shape, int max_tokens, int max_seqs, int) {
    runtime_->finish_writes();
    runtime_->forget_steps();
    reserved_tokens_ = max_tokens;
    zeros(arrivals_, std::size_t(shape.n_heads + shape.n_kv_heads) * sizeof(int), "counters");
    zeros(best_, std::size_t(max_tokens) * sizeof(kernels::Best), "counters");
    if (!tiled(shape)) return;
    zeros(attention_arrivals_,
          kernels::attn_decode_arrivals(max_seqs, shape.n_heads, shape.n_kv_heads) * sizeof(int), "counters");
    scratch(attention_scratch_,
            kernels::attn_decode_scratch(max_seqs, shape.n_heads, shape.n_kv_heads, shape.head_dim),
            "attention scratch");
}

namespace {

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

}  // namespace

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

std::unique_ptr<Ops> make_kernel_ops(std::unique_ptr<Runtime> runtime, Compute compute) {
    return std::make_unique<KernelOps>(std::move(runtime), compute);
}

}  // namespace llmgen::cuda
