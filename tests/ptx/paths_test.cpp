// Every instantiation of every kernel on shapes long enough for the loops that nvcc unrolled, against its own
// source: what a launch leaves is compared by the witness itself (witness.cpp), so nothing is computed here.
// One order; the tests of tests/simt take the others.
#include <algorithm>

#include "kernels.h"
#include "ptx/witness.h"
#include "simt/testing.h"

namespace llmgen::simt {
namespace {

using kernels::Dependent;
using kernels::Gemv;

template <typename T>
constexpr DType type_of() {
    return std::is_same_v<T, float> ? DType::f32 : std::is_same_v<T, bf16> ? DType::bf16 : DType::f16;
}

enum class End { store, store_activations, add, swiglu, argmax, argmax_only };

struct GemvPath {
    int n_tokens, out, in;
    bool norm = false, bias = true;
    int x_pad = 0;
    bool zero = false;  // every output but the last
    bool open_gates =
        false;  // so large that silu(a) is a, whoever computes the exponential: equal bit for bit
};

template <typename T>
T made(double value) {
    if constexpr (std::is_same_v<T, bf16>)
        return to_bf16(float(value));
    else if constexpr (std::is_same_v<T, f16>)
        return to_f16(float(value));
    else
        return float(value);
}

template <typename W, typename Act>
void run_gemv(End end, const GemvPath& s) {
    const int x_stride = s.in + s.x_pad;
    auto weights = Values(1).vector<W>(std::size_t(s.out * s.in), 0.2f);
    if (s.open_gates)
        for (W& value : weights) value = made<W>(std::abs(as_double(value)) + 0.05);
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

template <typename T>
void run_rows(int hidden) {
    DeviceArray<T> table(Values(1).vector<T>(std::size_t(3 * hidden)));
    DeviceArray<int> ids(std::vector<int>{2, 0});
    DeviceArray<float> x(2 * hidden), gathered(2 * hidden);
    kernels::embed(x, hidden, table, type_of<T>(), ids, 2, hidden, 3, nullptr);
    DeviceArray<int> rows(std::vector<int>{1, 0});
    kernels::gather_rows(gathered, hidden, x, hidden, rows, 2, hidden, nullptr);
}
TEST(Paths, Rows) {
    for (const int hidden : {500, 512, 1100}) {  // exactly the four turns that nvcc unrolls, and more
        run_rows<float>(hidden);
        run_rows<bf16>(hidden);
        run_rows<f16>(hidden);
    }
}

template <typename T>
void run_swiglu(int n, int intermediate) {
    DeviceArray<float> in(Values(1).vector<float>(std::size_t(2 * n * intermediate), 3));
    DeviceArray<T> out(n * intermediate);
    kernels::swiglu(out.get(), type_of<T>(), intermediate, in, n, intermediate, nullptr);
}
// More rows than a grid has: a block takes several.
TEST(Paths, SwigluOfManyRows) {
    run_swiglu<float>(32768 * 5 + 3, 1);
    run_swiglu<bf16>(32768 * 5 + 3, 1);
    run_swiglu<float>(32768 * 4, 1);  // exactly the four turns that nvcc unrolls
    run_swiglu<bf16>(32768 * 4, 1);
}

TEST(Paths, CopiesOfLargePages) {
    const std::size_t page_bytes = 128 * 16 * 6 + 16;
    DeviceArray<char> pool(std::vector<char>(3 * page_bytes, 'x'));
    DeviceArray<void*> pools(std::vector<void*>{pool.get()});
    DeviceArray<int> src(std::vector<int>{2}), dst(std::vector<int>{0});
    kernels::copy_pages(pools, 1, page_bytes, src, dst, 1, nullptr);
}

// Words that all differ, so that one read twice, left out or taken from elsewhere changes the answer.
TEST(Paths, Reads) {
    for (const int n_blocks : {1, 3})
        // no whole turn; exactly one; one and a thread's more; two and a block's more; one vector short of a
        // turn
        for (const int vectors :
             {512 * n_blocks - 1, 8 * 512 * n_blocks, 8 * 512 * n_blocks + 1, 16 * 512 * n_blocks + 512,
              7 * 512 * n_blocks, 7 * 512 * n_blocks + 1, 15 * 512 * n_blocks, 15 * 512 * n_blocks + 1}) {
            std::vector<std::uint32_t> words(std::size_t(vectors) * 4);
            for (std::size_t i = 0; i < words.size(); ++i) words[i] = std::uint32_t(i * i) * 2654435761u;
            DeviceArray<std::uint32_t> from(words);
            DeviceArray<int> out(std::vector<int>{0});
            kernels::read_all(out, from, words.size() * 4, n_blocks, nullptr);
        }
}

template <typename T>
void run_norm(int hidden, bool with_delta) {
    DeviceArray<float> x(Values(1).vector<float>(std::size_t(2 * hidden))),
        weight(Values(2).vector<float>(std::size_t(hidden)));
    DeviceArray<float> delta(Values(3).vector<float>(std::size_t(2 * hidden)));
    DeviceArray<T> out(2 * hidden);
    kernels::RmsNorm p{};
    p.out = out.get();
    p.out_type = type_of<T>();
    p.out_stride = p.x_stride = p.hidden = hidden;
    p.x = x;
    p.delta = with_delta ? delta.get() : nullptr;
    p.weight = weight;
    p.n_tokens = 2;
    p.eps = 1e-5f;
    kernels::rmsnorm(p, Dependent::yes, nullptr);
}
TEST(Paths, Norms) {
    for (const int hidden : {1000, 1024, 2300})
        for (const bool delta : {false, true}) {
            run_norm<float>(hidden, delta);
            run_norm<bf16>(hidden, delta);
        }
}

// Many sums: another order of the same summands is another sum only now and then.
template <typename T>
void run_many_norms() {
    const int hidden = 300, n = 1024;
    DeviceArray<float> x(Values(1).vector<float>(std::size_t(n * hidden))),
        weight(Values(2).vector<float>(std::size_t(hidden)));
    DeviceArray<T> out(n * hidden);
    kernels::RmsNorm p{};
    p.out = out.get();
    p.out_type = type_of<T>();
    p.out_stride = p.x_stride = p.hidden = hidden;
    p.x = x;
    p.weight = weight;
    p.n_tokens = n;
    p.eps = 1e-5f;
    kernels::rmsnorm(p, Dependent::yes, nullptr);
}
TEST(Paths, ManyNorms) {
    run_many_norms<float>();
    run_many_norms<bf16>();
}

// All quadrants, and positions for which nvcc's cosf and sinf take their long way.
TEST(Paths, AnglesOfFarPositions) {
    const int half = 8, n = 512;
    std::vector<int> positions;
    for (int i = 0; i < n; ++i) positions.push_back(i < 256 ? i : i * i * 4);
    DeviceArray<int> device_positions(positions);
    DeviceArray<float> angles(n * 2 * half),
        frequencies(std::vector<float>{1, 0.75f, 0.5f, 0.3f, 0.1f, 0.01f, 0, -1});
    kernels::rope_angles(angles, device_positions, frequencies, 1.0f, n, half, nullptr);
}

template <typename T>
void run_rope(int head_dim, bool norm) {
    const int width = 4 * head_dim;
    DeviceArray<float> qkv(Values(1).vector<float>(std::size_t(width))),
        angles(Values(2).vector<float>(std::size_t(head_dim)));
    DeviceArray<float> norms(Values(3).vector<float>(std::size_t(head_dim)));
    DeviceArray<T> k(16 * head_dim), v(16 * head_dim);
    DeviceArray<int> slots(std::vector<int>{5});
    kernels::RopeStore p{};
    p.qkv = qkv;
    p.qkv_stride = width;
    p.k = k.get();
    p.v = v.get();
    p.kv_type = type_of<T>();
    p.cos_sin = angles;
    p.slots = slots;
    p.q_norm = p.k_norm = norm ? norms.get() : nullptr;
    p.eps = 1e-5f;
    p.n_tokens = p.n_kv_heads = 1;
    p.n_heads = 2;
    p.head_dim = p.rotary_dim = head_dim;
    kernels::qk_norm_rope_store_kv(p, Dependent::yes, nullptr);
}
TEST(Paths, Ropes) {
    for (const int head_dim : {16, 128, 256})
        for (const bool norm : {false, true}) {
            run_rope<float>(head_dim, norm);
            run_rope<bf16>(head_dim, norm);
        }
}

TEST(Paths, LongRowsOfLogits) {
    const int vocab = 512 * 5 + 7;
    DeviceArray<float> logits(Values(8).vector<float>(std::size_t(vocab), 4));
    auto run = [&](std::vector<int> chosen, int n,
                   int n_top) {  // outputs of its own: one left alone would show
        DeviceArray<float> chosen_logprobs(1), top_logprobs(n_top);
        DeviceArray<int> device_chosen(chosen), top_ids(n_top);
        kernels::logprobs({logits, vocab, chosen.empty() ? nullptr : device_chosen.get(), chosen_logprobs,
                           top_ids, top_logprobs, 1, n, n_top},
                          nullptr);
    };
    run({vocab - 1}, vocab, 3);
    run({-1}, vocab, 3);
    run({vocab}, vocab, 1);
    run({}, vocab, 0);
    run({}, 2, 3);  // more asked than there are
    DeviceArray<int> ids(1);
    const int long_vocab = 64 * 512 * 5 + 3;  // 64 blocks, several elements a thread
    DeviceArray<float> row(Values(9).vector<float>(std::size_t(long_vocab), 4));
    DeviceArray<kernels::Best> best(std::vector<kernels::Best>{0});
    kernels::argmax(best, row, long_vocab, 1, long_vocab, nullptr);
    kernels::take_best(ids, best, 1, nullptr);
}

TEST(Paths, LongRowsOfAttention) {
    // Counts of keys and channels that leave three over a multiple of four.
    // And exactly four of each.
    // And counts of channels that end in each of the eight runs of 32, with every page full.
    for (const auto& [head_dim, context] : {std::pair{67, 303},
                                            {255, 303},
                                            {4, 4},
                                            {4, 36},
                                            {4, 320},
                                            {36, 320},
                                            {66, 320},
                                            {100, 320},
                                            {132, 320},
                                            {164, 320},
                                            {196, 320},
                                            {228, 320}}) {
        const int n_pages = 20;
        const std::size_t size = std::size_t(n_pages * 16 * head_dim);
        DeviceArray<float> k(Values(1).vector<float>(size)), v(Values(2).vector<float>(size));
        DeviceArray<bf16> k16(Values(1).vector<bf16>(size)), v16(Values(2).vector<bf16>(size));
        DeviceArray<float> q(Values(3).vector<float>(std::size_t(2 * head_dim))), out(2 * head_dim);
        DeviceArray<bf16> out16(2 * head_dim);
        DeviceArray<int> first(std::vector<int>{0, 1}), contexts(std::vector<int>{context});
        std::vector<int> pages;
        for (int i = 0; i < n_pages; ++i) pages.push_back(n_pages - 1 - i);
        DeviceArray<int> table(pages);
        kernels::Attention p{};
        p.out_stride = p.q_stride = 2 * head_dim;
        p.q = q;
        p.first_token = first;
        p.context_len = contexts;
        p.page_table = table;
        p.page_stride = n_pages;
        p.n_seqs = p.n_kv_heads = 1;
        p.n_heads = 2;
        p.head_dim = head_dim;
        p.scale = 0.1f;
        for (const int window : {0, 100}) {
            p.window = window;
            p.out = out.get();
            p.k = k.get();
            p.v = v.get();
            p.kv_type = DType::f32;
            kernels::attn_generic(p, 1, Dependent::yes, nullptr);
            p.out = out16.get();
            p.k = k16.get();
            p.v = v16.get();
            p.kv_type = DType::bf16;
            kernels::attn_generic(p, 1, Dependent::yes, nullptr);
        }
    }
}

// Every head_dim: several pages a warp in decode and many splits, several tiles in prefill, with and without
// a window.
TEST(Paths, TiledAttention) {
    for (const int head_dim : {64, 80, 96, 128, 256}) {
        const int long_context = 32 * 64 * 3 + 21, context = 200, n_new = 24, n_heads = 16;
        const int long_pages = (long_context + 15) / 16, n_pages = long_pages + (context + 15) / 16;
        const auto size = std::size_t(n_pages * 16 * head_dim);
        DeviceArray<bf16> k(Values(1).vector<bf16>(size)), v(Values(2).vector<bf16>(size));
        const int n_tokens = 1 + n_new;
        const auto rows = std::size_t(n_tokens * n_heads * head_dim);
        DeviceArray<float> q(Values(3).vector<float>(rows));
        DeviceArray<bf16> out(rows);
        DeviceArray<int> first(std::vector<int>{0, 1, n_tokens}),
            contexts(std::vector<int>{long_context, context});
        std::vector<int> pages;
        for (int seq = 0; seq < 2; ++seq)
            for (int i = 0; i < long_pages; ++i)
                pages.push_back(seq == 0 ? i : std::min(long_pages + i, n_pages - 1));
        DeviceArray<int> table(pages);
        DeviceArray<float> scratch(kernels::attn_decode_scratch(2, n_heads, 1, head_dim));
        DeviceArray<int> arrivals(std::vector<int>(kernels::attn_decode_arrivals(2, n_heads, 1), 0));
        kernels::Attention p{};
        p.arrivals = arrivals;
        p.out = out.get();
        p.q = q;
        p.out_stride = p.q_stride = n_heads * head_dim;
        p.k = k.get();
        p.v = v.get();
        p.kv_type = DType::bf16;
        p.first_token = first;
        p.context_len = contexts;
        p.page_table = table;
        p.page_stride = long_pages;
        p.n_seqs = 2;
        p.n_heads = n_heads;
        p.n_kv_heads = 1;
        p.head_dim = head_dim;
        // The last with scores that overflow where the largest isn't taken off.
        for (const auto& [window, scale] : {std::pair{0, 0.1f}, {70, 0.1f}, {0, 40.0f}}) {
            p.window = window;
            p.scale = scale;
            kernels::attn_prefill(p, kernels::attn_prefill_tiles(n_new, n_heads, 1), Dependent::yes, nullptr);
            kernels::attn_decode(p, scratch, long_context, Dependent::yes, nullptr);
        }
    }
}

TEST(Paths, ManyBiasesAndPenalties) {
    const int vocab = 512 * 5 + 7, n = 512 * 3;
    std::vector<int> ids;
    for (int i = 0; i < n; ++i) ids.push_back(i);
    DeviceArray<int> device_ids(ids);
    DeviceArray<float> values(Values(1).vector<float>(std::size_t(n))),
        logits(Values(2).vector<float>(std::size_t(vocab), 4));
    kernels::SampleRow row{};
    row.inverse_temperature = 0.8f;
    row.top_p = 0.9;
    row.min_p = 0.001;
    row.repetition = 1.1f;
    row.bias_ids = row.penalty_ids = device_ids;
    row.biases = row.penalties = values;
    row.n_bias = row.n_penalties = n;
    DeviceArray<kernels::SampleRow> rows(std::vector<kernels::SampleRow>{row});
    DeviceArray<kernels::Sampled> out(1);
    kernels::sample(out, logits, vocab, rows, 1, vocab, nullptr);
}

}  // namespace
}  // namespace llmgen::simt
