#include "simt/fake/launch_check.h"

#include <fmt/format.h>

#include <cstring>

#include "kernels.h"

namespace llmgen::simt {
namespace {

using namespace llmgen::kernels;

class Arguments {
public:
    Arguments(const Launch& launch, const IsLive& is_live) : launch_(launch), is_live_(is_live) {}

    template <typename T>
    T get(std::size_t i) const {
        T value;
        if (i >= launch_.parameters.size() || launch_.parameters[i].size() != sizeof value)
            throw Fault(
                fmt::format("{}: argument {} is not what launch_check.cpp takes it for", launch_.name, i));
        std::memcpy(static_cast<void*>(&value), launch_.parameters[i].data(), sizeof value);
        return value;
    }
    /// An array of so many bytes; `alignment` of its first.
    void array(const char* what, const void* p, std::size_t bytes, std::size_t alignment = 4) const {
        if (bytes == 0) return;
        if (!is_live_(p, bytes))
            throw Fault(
                fmt::format("{}: {} of {} bytes is not in live device memory", launch_.name, what, bytes));
        if (reinterpret_cast<std::uintptr_t>(p) % alignment != 0)
            throw Fault(
                fmt::format("{}: {} does not begin at a multiple of {}", launch_.name, what, alignment));
    }
    void optional(const char* what, const void* p, std::size_t bytes) const {
        if (p != nullptr) array(what, p, bytes);
    }
    /// Rows `stride` elements apart, of which `width` are used.
    void rows(const char* what,
              const void* p,
              std::int64_t n,
              std::int64_t stride,
              std::int64_t width,
              std::size_t element,
              std::size_t alignment = 4) const {
        if (n > 0) array(what, p, std::size_t((n - 1) * stride + width) * element, alignment);
    }
    std::int64_t grid_x() const { return launch_.grid.x; }

private:
    const Launch& launch_;
    const IsLive& is_live_;
};

void check_rope(const Arguments& a, const RopeStore& p) {
    const int width = (p.n_heads + 2 * p.n_kv_heads) * p.head_dim;
    a.rows("qkv", p.qkv, p.n_tokens, p.qkv_stride, width, 4);
    a.array("angles", p.cos_sin, std::size_t(p.n_tokens) * std::size_t(p.rotary_dim) * 4);
    a.array("slots", p.slots, std::size_t(p.n_tokens) * 4);
    a.optional("norm of q", p.q_norm, std::size_t(p.head_dim) * 4);
    a.optional("norm of k", p.k_norm, std::size_t(p.head_dim) * 4);
    const std::size_t page = std::size_t(p.n_kv_heads * kPageTokens * p.head_dim) * size_of(p.kv_type);
    a.array("keys", p.k, page, 16);
    a.array("values", p.v, page, 16);
}

void check_gemv(const Arguments& a, const Gemv& p, const std::string& name) {
    const bool swiglu = name == "gemv_swiglu", qkv = name == "gemv_qkv";
    const std::size_t value = size_of(p.weight_type), act = size_of(p.act_type);
    a.array("weight", p.weight, std::size_t(p.out) * std::size_t(p.in) * value,
            std::size_t(p.in) * value % 16 == 0 ? 16 : value);
    a.optional("bias", p.bias, std::size_t(p.out) * 4);
    a.optional("norm", p.norm_weight, std::size_t(p.in) * 4);
    a.rows("x", p.x, p.n_tokens, p.x_stride, p.in, p.norm_weight != nullptr ? 4 : act,
           p.norm_weight != nullptr ? 4 : act);
    if (qkv) return check_rope(a, p.rope);
    if (name == "gemv_argmax") a.array("best", p.best, std::size_t(p.n_tokens) * sizeof(Best), 8);
    if (p.y != nullptr)
        a.rows("y", p.y, p.n_tokens, p.y_stride, swiglu ? p.out / 2 : p.out, size_of(p.y_type),
               size_of(p.y_type));
}

void check_attention(const Arguments& a, const Attention& p, const std::string& name) {
    a.array("first tokens", p.first_token, std::size_t(p.n_seqs + 1) * 4);
    a.array("contexts", p.context_len, std::size_t(p.n_seqs) * 4);
    a.rows("page table", p.page_table, p.n_seqs, p.page_stride, 1, 4);
    a.rows("q", p.q, p.n_seqs, p.q_stride, p.n_heads * p.head_dim, 4);
    a.rows("out", p.out, p.n_seqs, p.out_stride, p.n_heads * p.head_dim, size_of(p.kv_type),
           size_of(p.kv_type));
    const std::size_t page = std::size_t(p.n_kv_heads * kPageTokens * p.head_dim) * size_of(p.kv_type);
    a.array("keys", p.k, page, 16);
    a.array("values", p.v, page, 16);
    if (name != "attn_decode") return;
    a.array("scratch", a.get<float*>(1),
            4 * attn_decode_scratch(p.n_seqs, p.n_heads, p.n_kv_heads, p.head_dim));
    a.array("counters", p.arrivals, 4 * attn_decode_arrivals(p.n_seqs, p.n_heads, p.n_kv_heads));
}

/// Kernels whose arguments are no struct, in the order of their declarations.
void check_plain(const Arguments& a, const std::string& name) {
    const std::int64_t n = a.grid_x();
    if (name == "embed") {
        const int hidden = a.get<int>(4);
        a.rows("x", a.get<float*>(0), n, a.get<std::int64_t>(1), hidden, 4);
        a.array("table", a.get<void*>(2), std::size_t(a.get<int>(5)) * std::size_t(hidden) * 2, 2);
        a.array("ids", a.get<int*>(3), std::size_t(n) * 4);
    } else if (name == "gather_rows") {
        a.rows("out", a.get<float*>(0), n, a.get<std::int64_t>(1), a.get<int>(5), 4);
        a.array("rows", a.get<int*>(4), std::size_t(n) * 4);
    } else if (name == "swiglu") {
        const std::size_t rows = std::size_t(a.get<int>(3)), width = std::size_t(a.get<int>(4));
        a.rows("out", a.get<void*>(0), std::int64_t(rows), a.get<std::int64_t>(1), std::int64_t(width), 2, 2);
        a.array("products", a.get<float*>(2), rows * 2 * width * 4);
    } else if (name == "rope_angles") {
        const std::size_t tokens = std::size_t(a.get<int>(4)), half = std::size_t(a.get<int>(5));
        a.array("angles", a.get<float*>(0), tokens * 2 * half * 4);
        a.array("positions", a.get<int*>(1), tokens * 4);
        a.array("frequencies", a.get<float*>(2), half * 4);
    } else if (name == "take_best") {
        a.array("ids", a.get<int*>(0), std::size_t(a.get<int>(2)) * 4);
        a.array("best", a.get<Best*>(1), std::size_t(a.get<int>(2)) * sizeof(Best), 8);
    }
}

}  // namespace

void check_memory(const Launch& launch, const IsLive& is_live) {
    const Arguments a(launch, is_live);
    const std::string& name = launch.name;
    if (name.starts_with("gemv")) return check_gemv(a, a.get<Gemv>(0), name);
    if (name.starts_with("attn_")) return check_attention(a, a.get<Attention>(0), name);
    if (name == "qk_norm_rope_store_kv") return check_rope(a, a.get<RopeStore>(0));
    if (name == "rmsnorm") {
        const auto p = a.get<RmsNorm>(0);
        a.rows("out", p.out, p.n_tokens, p.out_stride, p.hidden, size_of(p.out_type), size_of(p.out_type));
        a.rows("x", p.x, p.n_tokens, p.x_stride, p.hidden, 4);
        return a.array("weight", p.weight, std::size_t(p.hidden) * 4);
    }
    if (name == "argmax") {
        const auto stride = a.get<std::int64_t>(2);
        a.array("best", a.get<Best*>(0), launch.grid.y * sizeof(Best), 8);
        return a.rows("logits", a.get<float*>(1), launch.grid.y, stride, a.get<int>(3), 4);
    }
    check_plain(a, name);
}

}  // namespace llmgen::simt
