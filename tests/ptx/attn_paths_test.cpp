// The edges of what a row of queries sees, in every instruction that nvcc unrolled for them: the newest key,
// the oldest of a window, the end of the context. A query points at one key, so that this key decides its
// whole answer: taken when it mustn't be, or left out, shows in every channel. Compared with the source by
// the witness; keys past the context are as fresh memory is, NaN.
#include <algorithm>

#include "kernels.h"
#include "simt/attention_args.h"
#include "simt/testing.h"

namespace llmgen::simt {
namespace {

using kernels::Dependent;

struct Seen {
    std::vector<int> contexts;  // of the sequences
    int n_new, group, window;
    int aim;  // the key that a query points at, from its own position
};

class EdgeBatch {
public:
    EdgeBatch(int head_dim, const Seen& s) : head_dim_(head_dim), s_(s) {
        int longest = 0, n_pages = 0;
        std::vector<int> first{0}, table;
        for (const int context : s.contexts) {
            longest = std::max(longest, context);
            first.push_back(first.back() + s.n_new);
        }
        page_stride_ = (longest + 15) / 16;
        for (const int context : s.contexts)
            for (int page = 0; page < page_stride_; ++page)
                table.push_back(page * 16 < context ? n_pages++ : 0);
        const auto size = std::size_t(n_pages * 16 * head_dim);
        k_ = std::make_unique<DeviceArray<bf16>>(size);
        v_ = std::make_unique<DeviceArray<bf16>>(size);
        std::vector<float> q;
        Values values(7);
        for (std::size_t seq = 0; seq < s.contexts.size(); ++seq) {
            const int context = s.contexts[seq];
            std::vector<std::vector<bf16>> keys;
            for (int key = 0; key < context; ++key) {
                const int page = table[seq * std::size_t(page_stride_) + std::size_t(key / 16)];
                const auto at = (page * 16 + key % 16) * head_dim;
                keys.push_back(values.vector<bf16>(std::size_t(head_dim), 2));
                std::copy(keys.back().begin(), keys.back().end(), k_->get() + at);
                const auto v = values.vector<bf16>(std::size_t(head_dim), 2);
                std::copy(v.begin(), v.end(), v_->get() + at);
            }
            for (int t = 0; t < s.n_new; ++t)
                for (int head = 0; head < s.group; ++head) {
                    const int aimed = std::clamp(context - s.n_new + t + s.aim, 0, context - 1);
                    for (const bf16 x : keys[std::size_t(aimed)]) q.push_back(to_f32(x));
                }
        }
        q_ = std::make_unique<DeviceArray<float>>(q);
        out_ = std::make_unique<DeviceArray<bf16>>(q.size());
        first_ = std::make_unique<DeviceArray<int>>(first);
        contexts_ = std::make_unique<DeviceArray<int>>(s.contexts);
        table_ = std::make_unique<DeviceArray<int>>(table);
        scratch_ = std::make_unique<DeviceArray<float>>(
            kernels::attn_decode_scratch(int(s.contexts.size()), s.group, 1, head_dim));
        arrivals_ = std::make_unique<DeviceArray<int>>(
            std::vector<int>(kernels::attn_decode_arrivals(int(s.contexts.size()), s.group, 1), 0));
        longest_ = longest;
    }

    void run() {
        kernels::Attention p = attention_of(
            {s_.group, 1, head_dim_}, {*first_, *contexts_, *table_, page_stride_, int(s_.contexts.size())},
            out_->get(), q_->get(), k_->get(), v_->get(), 0.5f);
        p.window = s_.window;
        p.arrivals = *arrivals_;
        const int tiles = kernels::attn_prefill_tiles(s_.n_new, s_.group, 1);
        if (tiles > 0)
            kernels::attn_prefill(p, tiles * p.n_seqs, Dependent::no, nullptr);
        else
            kernels::attn_decode(p, *scratch_, longest_, Dependent::no, nullptr);
    }

private:
    int head_dim_, page_stride_ = 0, longest_ = 0;
    Seen s_;
    std::unique_ptr<DeviceArray<bf16>> k_, v_, out_;
    std::unique_ptr<DeviceArray<float>> q_, scratch_;
    std::unique_ptr<DeviceArray<int>> first_, contexts_, table_, arrivals_;
};

std::vector<int> numbers(int from, int to, int step = 1) {
    std::vector<int> values;
    for (int n = from; n <= to; n += step) values.push_back(n);
    return values;
}

/// Own key, the one after it, the window's oldest and the one before that.
std::vector<std::pair<int, int>> aims(int window) {
    std::vector<std::pair<int, int>> result{{0, 0}, {0, 1}};
    for (const int aim : {0, 1, 1 - window, -window}) result.emplace_back(window, aim);
    return result;
}

// A sequence for each place in a page where the context can end, a page's 16 rows filled by the heads of a
// token; with a window, for each place where that can begin.
TEST(AttentionPaths, EdgesOfDecode) {
    for (const int head_dim : {64, 80, 96, 128, 256})
        for (const auto& [window, aim] : aims(20))
            EdgeBatch(head_dim, {numbers(window == 0 ? 1 : 33, window == 0 ? 16 : 48), 1, 16, window, aim})
                .run();
}

// More heads a key than a tile has rows: two tiles.
TEST(AttentionPaths, TwoTilesOfHeads) {
    for (const int head_dim : {64, 80, 96, 128, 256})
        for (const int window : {0, 20}) EdgeBatch(head_dim, {{33, 200}, 1, 20, window, 0}).run();
}

// A context may end in each of the copies that a warp has under way: in a split's second and third turn,
// which only contexts of more than 2048 and 4096 keys have, and there in the rows of each instruction.
TEST(AttentionPaths, EndsOfLongContexts) {
    for (const int head_dim : {64, 80, 96, 128}) {
        std::vector<int> contexts;
        for (const int before : head_dim == 128 ? std::vector{2112} : std::vector{2112, 4160})
            for (int copy = 0; copy < 16 * head_dim / 8 / 32; ++copy)
                contexts.push_back(before + (2 * copy + 1) * 128 / head_dim);
        EdgeBatch(head_dim, {contexts, 1, 1, 0, 0}).run();
        EdgeBatch(head_dim, {{17 * 128}, 1, 1, 0, 0}).run();  // a split of two turns ends with the page table
    }
}

// Windows of one and two tokens far into a context: one split, and nothing to combine.
TEST(AttentionPaths, NarrowWindows) {
    for (const int head_dim : {64, 80, 96, 128, 256})
        for (const int window : {1, 2}) {
            EdgeBatch(head_dim, {{161, 162}, 1, 3, window, 0}).run();
            EdgeBatch(head_dim, {{161, 162}, 20, 1, window, 0}).run();
        }
}

// Tiles of 64 rows on the diagonal: from position 0 and 8, so that every pair of eight rows and eight keys
// meets it. One and two heads a key.
TEST(AttentionPaths, EdgesOfPrefill) {
    for (const int head_dim : {64, 80, 96, 128, 256})
        for (const auto& [window, aim] : aims(17)) {
            EdgeBatch(head_dim, {{64, 72}, 64, 1, window, aim}).run();
            EdgeBatch(head_dim, {{39}, 33, 2, window, aim}).run();
        }
}

// Contexts that end at every fourth row of a tile: each copy of a tile meets the end.
TEST(AttentionPaths, EndsOfContexts) {
    for (const int head_dim : {64, 80, 96, 128, 256}) {
        EdgeBatch(head_dim, {numbers(3, 130, 4), 3, 8, 0, 0}).run();
        for (const int context : {16, 32, 48, 64, 80, 112})  // and there the page table ends, too
            EdgeBatch(head_dim, {{context}, 3, 8, 0, 0}).run();
    }
}

}  // namespace
}  // namespace llmgen::simt
