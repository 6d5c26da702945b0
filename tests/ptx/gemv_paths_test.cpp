// The products of few rows, every instantiation, on widths long enough for the loops that nvcc unrolled and
// ending in each of them; compared with the source by the witness.
#include <algorithm>

#include "kernels.h"
#include "ptx/paths.h"
#include "ptx/witness.h"

namespace llmgen::simt {
namespace {

using kernels::Dependent;
using kernels::Gemv;

enum class End { store, store_activations, add, swiglu, argmax, argmax_only };

struct GemvPath {
    int n_tokens, out, in;
    bool norm = false, bias = true;
    int x_pad = 0;
    bool zero = false;  // every output but the last
    /// Each row has weights in one vector of 16 bytes only and x one channel of it that outweighs the others:
    /// there the last bit of a product is not lost in a sum. The number says which channel.
    int focus = -1;
    bool open_gates =
        false;  // so large that silu(a) is a, whoever computes the exponential: equal bit for bit
};

/// Row r keeps the weights of one lane's vector, of the slot that it has in the kernel's ring of four: rows
/// of the same `pair` (r / 2, or r % half) of the same slot. Large, so that gates stay open.
template <typename W>
void keep_one_vector(std::vector<W>& weights, int half, int in) {
    constexpr int kVec = 16 / int(sizeof(W)), kStep = 32 * kVec;
    for (int r = 0; r < int(weights.size()) / in; ++r) {
        const int pair = half == 2 ? r / 2 : r % half, first = pair % 4 * kStep + (pair * 5 + 3) % 32 * kVec;
        for (int k = 0; k < in; ++k) {
            W& value = weights[std::size_t(r * in + k)];
            value = k < first || k >= first + kVec ? W{} : made<W>(100 + 300 * std::abs(as_double(value)));
        }
    }
}

template <typename W, typename Act>
void run_gemv(End end, const GemvPath& s) {
    const int x_stride = s.in + s.x_pad;
    auto weights = Values(1).vector<W>(std::size_t(s.out * s.in), 0.2f);
    if (s.open_gates)
        for (W& value : weights) value = made<W>(std::abs(as_double(value)) + 0.05);
    if (s.focus >= 0) keep_one_vector<W>(weights, end == End::swiglu ? s.out / 2 : 2, s.in);
    if (s.zero) std::fill_n(weights.begin(), (s.out - 1) * s.in, W{});
    DeviceArray<W> w(weights);
    DeviceArray<float> bias(Values(2).vector<float>(std::size_t(s.out)));
    auto norm_weights = Values(3).vector<float>(std::size_t(s.in));
    if (s.open_gates)
        for (float& value : norm_weights) value = std::abs(value) + 0.2f;
    DeviceArray<float> norm(norm_weights);
    auto inputs = Values(4).vector<Act>(std::size_t(s.n_tokens * x_stride));
    auto stream_inputs = Values(5).vector<float>(std::size_t(s.n_tokens * s.in));
    if (s.open_gates) {
        for (Act& value : inputs) value = made<Act>(std::abs(as_double(value)) + 0.2);
        for (float& value : stream_inputs) value = std::abs(value) + 0.2f;
    }
    if (s.focus >= 0)
        for (int t = 0; t < s.n_tokens; ++t)
            for (int d = 0; d < s.in; ++d) {
                constexpr int kVec = 16 / int(sizeof(W));
                const double scale = d % kVec == (t + s.focus) % kVec ? 1 : 0x1p-8;
                Act& value = inputs[std::size_t(t * x_stride + d)];
                value = made<Act>(as_double(value) * scale);
                stream_inputs[std::size_t(t * s.in + d)] *= float(scale);
            }
    DeviceArray<Act> x(inputs);
    DeviceArray<float> stream(stream_inputs);
    DeviceArray<float> y(Values(6).vector<float>(std::size_t(s.n_tokens * s.out)));
    DeviceArray<Act> act(s.n_tokens * s.out);
    DeviceArray<kernels::Best> best(std::vector<kernels::Best>(std::size_t(s.n_tokens), 0));
    Gemv p{};
    p.weight = w.get();
    p.weight_type = type_of<W>();
    p.bias = s.bias ? bias.get() : nullptr;
    p.x = s.norm ? static_cast<const void*>(stream.get()) : x.get();
    p.x_stride = s.norm ? s.in : x_stride;
    p.act_type = type_of<Act>();
    p.norm_weight = s.norm ? norm.get() : nullptr;
    p.eps = 1e-5f;
    p.n_tokens = s.n_tokens;
    p.out = s.out;
    p.in = s.in;
    const bool wide = end == End::store || end == End::add || end == End::argmax;
    p.y = end == End::argmax_only ? nullptr : wide ? static_cast<void*>(y.get()) : act.get();
    p.y_type = wide ? DType::f32 : type_of<Act>();
    p.y_stride = end == End::swiglu ? s.out / 2 : s.out;
    p.best = best;
    switch (end) {
        case End::store:
        case End::store_activations:
            return kernels::gemv(p, Dependent::yes, nullptr);
        case End::add:
            return kernels::gemv_add(p, Dependent::yes, nullptr);
        case End::swiglu:
            return kernels::gemv_swiglu(p, Dependent::yes, nullptr);
        case End::argmax:
        case End::argmax_only:
            return kernels::gemv_argmax(p, Dependent::yes, nullptr);
    }
}

template <typename W, typename Act>
void run_gemvs() {
    // Past one round of the unrolled loop (4 x 32 x 8 of 16 bits), and to a norm that takes four channels a
    // thread.
    const int in = 2312;
    for (const End end :
         {End::store, End::store_activations, End::add, End::swiglu, End::argmax, End::argmax_only}) {
        for (const int n : {1, 2, 4, 8})
            for (const bool norm : {false, true}) {
                // where this width doesn't fit, a smaller one
                const bool fits = !norm || kernels::gemv_fuses_norm(n, in, type_of<Act>(), type_of<W>());
                run_gemv<W, Act>(end, {n, end == End::swiglu || norm ? 34 : 33, fits ? in : 1032, norm});
                // 768 < in <= 1024: threads with exactly four turns of the norm's loop, unrolled by four
                run_gemv<W, Act>(end, {n, norm && end != End::swiglu ? 17 : 18, 1000, norm});
            }
        // Rows that end where a step of a warp ends, or in its first: the end of the last is that of memory.
        const int step = 32 * 16 / int(sizeof(W));
        for (const int n : {1, 2, 4, 8})
            for (const bool norm : {false, true})
                for (const int in : {16, step, 2 * step, 3 * step, 4 * step, 5 * step, 6 * step, 7 * step})
                    run_gemv<W, Act>(end, {n, 2, in, norm});
        if (end == End::argmax_only)  // logits of zero, whose key is next to the one that NaN has
            for (const int n : {1, 2, 4, 8})
                for (const bool norm : {false, true})
                    for (const int out : {3, 4, 6}) run_gemv<W, Act>(end, {n, out, 24, norm, false, 0, true});
        run_gemv<W, Act>(end, {3, 18, 264, true, false});
        run_gemv<W, Act>(end, {3, 18, 264, false, false});
        run_gemv<W, Act>(end, {5, 18, 16, true});
        // 16-byte loads can't: four channels a lane at least
        run_gemv<W, Act>(end, {2, end == End::swiglu ? 34 : 33, 301});
        run_gemv<W, Act>(end, {2, 18, 301, false, false});
        run_gemv<W, Act>(end, {2, 2, 13});
    }
}
template <typename W, typename Act>
void run_open_gates() {
    const int in = 2312;
    for (const int n : {1, 2, 4, 8})
        for (const bool norm : {false, true}) {
            const bool fits = !norm || kernels::gemv_fuses_norm(n, in, type_of<Act>(), type_of<W>());
            GemvPath path{n, 2, fits ? in : 1032, norm, false};
            path.open_gates = true;
            run_gemv<W, Act>(End::swiglu, path);
        }
    GemvPath odd{2, 2, 2311, false, false};
    odd.open_gates = true;
    run_gemv<W, Act>(End::swiglu, odd);
}
template <typename W, typename Act>
void run_focused() {
    constexpr int kVec = 16 / int(sizeof(W)), kIn = 4 * 32 * kVec;
    for (const End end : {End::store, End::store_activations, End::add, End::swiglu, End::argmax})
        for (const int n : {1, 2, 4, 8})
            for (const bool norm : {false, true})
                for (int focus = 0; focus < kVec; focus += n) {
                    GemvPath path{n, 8, kIn, norm, false};
                    path.open_gates = true;
                    path.focus = focus;
                    run_gemv<W, Act>(end, path);
                }
}
TEST(Paths, LastBitsOfProducts) {
    ptx::Exact exact;
    run_focused<bf16, bf16>();
    run_focused<bf16, float>();
    run_focused<f16, float>();
    run_focused<float, float>();
}
TEST(Paths, OpenGates) {
    ptx::Exact exact;
    run_open_gates<bf16, bf16>();
    run_open_gates<bf16, float>();
    run_open_gates<f16, float>();
    run_open_gates<float, float>();
}

TEST(Paths, GemvBf16Bf16) { run_gemvs<bf16, bf16>(); }
TEST(Paths, GemvBf16F32) { run_gemvs<bf16, float>(); }
TEST(Paths, GemvF16F32) { run_gemvs<f16, float>(); }
TEST(Paths, GemvF32F32) { run_gemvs<float, float>(); }

struct QkvPath {
    int n_tokens, n_heads, n_kv_heads, head_dim, rotary_dim, in;
    bool norms, bias;
};
template <typename W, typename Act>
void run_qkv(const QkvPath& s) {
    const int width = (s.n_heads + 2 * s.n_kv_heads) * s.head_dim;
    DeviceArray<W> w(Values(1).vector<W>(std::size_t(width * s.in), 0.2f));
    DeviceArray<float> x(Values(2).vector<float>(std::size_t(s.n_tokens * s.in)));
    DeviceArray<float> norm(Values(3).vector<float>(std::size_t(s.in)));
    DeviceArray<float> bias(Values(4).vector<float>(std::size_t(width)));
    DeviceArray<float> angles(Values(5).vector<float>(std::size_t(s.n_tokens * s.rotary_dim + 1)));
    DeviceArray<float> q_norm(Values(6).vector<float>(std::size_t(s.head_dim)));
    DeviceArray<float> k_norm(Values(7).vector<float>(std::size_t(s.head_dim)));
    DeviceArray<int> arrivals(std::vector<int>(std::size_t(s.n_heads + s.n_kv_heads), 0));
    std::vector<int> slots;
    for (int t = 0; t < s.n_tokens; ++t) slots.push_back((t * 23 + 15) % 64);
    DeviceArray<int> device_slots(slots);
    DeviceArray<float> qkv(s.n_tokens * width);
    DeviceArray<Act> k(4 * s.n_kv_heads * 16 * s.head_dim), v(4 * s.n_kv_heads * 16 * s.head_dim);
    Gemv p{};
    p.weight = w.get();
    p.weight_type = type_of<W>();
    p.act_type = type_of<Act>();
    p.bias = s.bias ? bias.get() : nullptr;
    p.x = x.get();
    p.x_stride = s.in;
    p.norm_weight = norm;
    p.eps = 1e-5f;
    p.n_tokens = s.n_tokens;
    p.out = width;
    p.in = s.in;
    p.arrivals = s.norms ? arrivals.get() : nullptr;
    p.rope.qkv = qkv;
    p.rope.qkv_stride = width;
    p.rope.k = k.get();
    p.rope.v = v.get();
    p.rope.kv_type = type_of<Act>();
    p.rope.cos_sin = angles;
    p.rope.slots = device_slots;
    p.rope.q_norm = s.norms ? q_norm.get() : nullptr;
    p.rope.k_norm = s.norms ? k_norm.get() : nullptr;
    p.rope.eps = 1e-5f;
    p.rope.n_tokens = s.n_tokens;
    p.rope.n_heads = s.n_heads;
    p.rope.n_kv_heads = s.n_kv_heads;
    p.rope.head_dim = s.head_dim;
    p.rope.rotary_dim = s.rotary_dim;
    kernels::gemv_qkv(p, Dependent::yes, nullptr);
}
template <typename W, typename Act>
void run_qkvs() {
    for (const int n : {1, 2, 4, 8})
        for (const bool norms : {false, true}) {
            const int in = kernels::gemv_fuses_norm(n, 2312, type_of<Act>(), type_of<W>()) ? 2312 : 1032;
            run_qkv<W, Act>({n, 3, 2, 16, 16, in, norms, true});
            run_qkv<W, Act>({n, 1, 1, 16, 16, 1032, norms, true});  // a row ends where a turn would begin
            run_qkv<W, Act>({n, 1, 1, 128, 96, 264, norms, true});
            run_qkv<W, Act>({n, 1, 1, 256, 64, 40, norms, false});
        }
}
TEST(Paths, Qkv) {
    run_qkvs<bf16, bf16>();
    run_qkvs<bf16, float>();
    run_qkvs<f16, float>();
    run_qkvs<float, float>();
}

}  // namespace
}  // namespace llmgen::simt
