// Every instantiation of every kernel on shapes long enough for the loops that nvcc unrolled, against its own
// source: what a launch leaves is compared by the witness itself (witness.cpp), so nothing is computed here.
// One order; the tests of tests/simt take the others.
#include <algorithm>

#include "kernels.h"
#include "ptx/paths.h"
#include "simt/attention_args.h"

namespace llmgen::simt {
namespace {

using kernels::Dependent;

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
        const AttentionBatch batch{first, contexts, table, n_pages, 1};
        kernels::Attention p =
            attention_of({2, 1, head_dim}, batch, out.get(), q.get(), k.get(), v.get(), 0.1f);
        kernels::Attention p16 =
            attention_of({2, 1, head_dim}, batch, out16.get(), q.get(), k16.get(), v16.get(), 0.1f);
        for (const int window : {0, 100}) {
            p.window = p16.window = window;
            kernels::attn_generic(p, 1, Dependent::yes, nullptr);
            kernels::attn_generic(p16, 1, Dependent::yes, nullptr);
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
        kernels::Attention p = attention_of({n_heads, 1, head_dim}, {first, contexts, table, long_pages, 2},
                                            out.get(), q.get(), k.get(), v.get(), 0);
        p.arrivals = arrivals;
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
