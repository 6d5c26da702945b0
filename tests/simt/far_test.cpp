// Rows and pages that lie further apart than 32 bits count: pools of keys and logits of an 80 or 141 GB card.
// What a kernel makes of them is what it makes of the same values side by side.
//
// The memory is reserved, not there: only the pages that a kernel touches come to be.
#include <sys/mman.h>

#include "kernels.h"
#include "simt/attention_args.h"
#include "simt/testing.h"

namespace llmgen::simt {
namespace {

using kernels::Dependent;

void* reserve(std::size_t bytes) {
    constexpr int kHow = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kHow, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
}
void give_back(void* memory, std::size_t bytes) { munmap(memory, bytes); }

/// So many elements lie between two rows; a whole number of pages.
enum class Apart : std::int64_t { near = 0, far = std::int64_t(1) << 32 };

/// `n` rows of `width` elements, the first as far from the beginning as the next from it.
template <typename T>
class Rows {
public:
    Rows(Apart apart, int n, int width, std::uint64_t seed = 0)
        : stride(width + std::int64_t(apart)), n_(n), width_(width) {
        bytes_ = (std::size_t(n) * std::size_t(stride) + std::size_t(width)) * sizeof(T);
        memory_ = static_cast<T*>(reserve(bytes_));
        if (memory_ == nullptr) throw std::bad_alloc();
        const std::vector<T> values = Values(seed).vector<T>(std::size_t(n * width));
        for (int row = 0; row < n; ++row) {
            std::memcpy(at(row), &values[std::size_t(row * width)], std::size_t(width) * sizeof(T));
            DeviceMemory::get().add(at(row), std::size_t(width) * sizeof(T), false, kType);
        }
    }
    ~Rows() {
        device_wait();
        for (int row = 0; row < n_; ++row) DeviceMemory::get().remove(at(row));
        give_back(memory_, bytes_);
    }
    Rows(const Rows&) = delete;
    /// The rows themselves begin one stride in.
    T* data() { return memory_ + stride; }
    T* base() { return memory_; }
    std::vector<T> values() {
        device_wait();
        std::vector<T> all;
        for (int row = 0; row < n_; ++row) all.insert(all.end(), at(row), at(row) + width_);
        return all;
    }
    std::int64_t stride;

private:
    static constexpr char kType = sizeof(T) == 4 ? 'f' : 'b';
    T* at(int row) { return memory_ + (row + 1) * stride; }
    int n_, width_;
    std::size_t bytes_ = 0;
    T* memory_ = nullptr;
};

/// What `run` returns is the same near and far.
template <typename Run>
void expect_same(Run run) {
    try {
        const auto near = run(Apart::near), far = run(Apart::far);
        EXPECT_EQ(near, far);
    } catch (const std::bad_alloc&) {
        GTEST_SKIP() << "this system reserves no address space that it hasn't got memory for";
    }
}

template <typename T>
void add_bits(std::vector<float>& all, const std::vector<T>& values) {
    for (const T value : values) all.push_back(float(as_double(value)));
}

constexpr int kWide = 64;

TEST(Far, RowsOfTheTableAndOfX) {
    expect_same([](Apart apart) {
        Rows<bf16> table(apart, 1, kWide, 1);
        Rows<float> x(apart, 3, kWide, 2), gathered(apart, 2, kWide, 3);
        const int id = int(table.stride / kWide);
        DeviceArray<int> ids(std::vector<int>{id, id}), rows(std::vector<int>{2, 0});
        kernels::embed(x.data(), x.stride, table.base(), DType::bf16, ids, 2, kWide, id + 1, nullptr);
        kernels::gather_rows(gathered.data(), gathered.stride, x.data(), x.stride, rows, 2, kWide, nullptr);
        return gathered.values();
    });
}

TEST(Far, RowsOfNormsAndProducts) {
    expect_same([](Apart apart) {
        constexpr int kOut = 6;
        Rows<float> x(apart, 2, kWide, 1), y(apart, 2, kOut, 2), logits(apart, 2, kOut, 3);
        Rows<bf16> h(apart, 2, kWide, 4), mlp(apart, 2, kOut / 2, 5), act(apart, 2, kOut / 2, 6);
        DeviceArray<float> norm_weight(Values(7).vector<float>(kWide)),
            pairs(Values(8).vector<float>(2 * kOut));
        DeviceArray<bf16> weight(Values(9).vector<bf16>(kOut * kWide));
        DeviceArray<kernels::Best> best(std::vector<kernels::Best>(2, 0));
        kernels::RmsNorm norm{h.data(), DType::bf16, h.stride, x.data(), x.stride,
                              nullptr,  norm_weight, 2,        kWide,    1e-5f};
        kernels::rmsnorm(norm, Dependent::no, nullptr);
        kernels::Gemv p{};
        p.weight = weight.get();
        p.weight_type = p.act_type = DType::bf16;
        p.x = h.data();
        p.x_stride = h.stride;
        p.n_tokens = 2;
        p.out = kOut;
        p.in = kWide;
        p.y = y.data();
        p.y_type = DType::f32;
        p.y_stride = y.stride;
        kernels::gemv_add(p, Dependent::no, nullptr);
        p.y = mlp.data();
        p.y_type = DType::bf16;
        p.y_stride = mlp.stride;
        kernels::gemv_swiglu(p, Dependent::no, nullptr);
        kernels::swiglu(act.data(), DType::bf16, act.stride, pairs, 2, kOut / 2, nullptr);
        p.x = x.data();
        p.x_stride = x.stride;
        p.norm_weight = norm_weight;
        p.eps = 1e-5f;
        p.best = best;
        p.y = logits.data();
        p.y_type = DType::f32;
        p.y_stride = logits.stride;
        kernels::gemv_argmax(p, Dependent::no, nullptr);
        std::vector<float> all = y.values();
        add_bits(all, logits.values());
        add_bits(all, h.values());
        add_bits(all, mlp.values());
        add_bits(all, act.values());
        return all;
    });
}

TEST(Far, RowsOfLogits) {
    expect_same([](Apart apart) {
        constexpr int kVocab = 100;
        Rows<float> logits(apart, 2, kVocab, 1);
        DeviceArray<kernels::Best> best(std::vector<kernels::Best>(2, 0));
        DeviceArray<int> ids(2), chosen(std::vector<int>{7, 99}), top(6);
        DeviceArray<float> chosen_logprobs(2), top_logprobs(6);
        kernels::argmax(best, logits.data(), logits.stride, 2, kVocab, nullptr);
        kernels::take_best(ids, best, 2, nullptr);
        kernels::logprobs(
            {logits.data(), logits.stride, chosen, chosen_logprobs, top, top_logprobs, 2, kVocab, 3},
            nullptr);
        std::vector<kernels::SampleRow> rows(2);
        for (int i = 0; i < 2; ++i) {
            kernels::SampleRow& row = rows[std::size_t(i)];
            row.row = i + 1;  // of base(), whose first row isn't there
            row.inverse_temperature = 1.5f;
            row.top_k = 40;
            row.top_p = 0.9;
            row.seed = 3;
            row.step = std::uint64_t(i);
            row.repetition = 1;
        }
        DeviceArray<kernels::SampleRow> how(rows);
        DeviceArray<kernels::Sampled> sampled(2);
        kernels::sample(sampled, logits.base(), logits.stride, how, 2, kVocab, nullptr);
        std::vector<float> all = chosen_logprobs.host();
        add_bits(all, top_logprobs.host());
        for (const int id : ids.host()) all.push_back(float(id));
        for (const int id : top.host()) all.push_back(float(id));
        for (const kernels::Sampled& s : sampled.host()) all.insert(all.end(), {float(s.id), s.probability});
        return all;
    });
}

/// One sequence of `context` tokens, the last `n_new` of which are stored, rotated and asked for.
template <typename T>
std::vector<float> attend(Apart apart, int context, int n_new) {
    constexpr int kHeads = 4, kKvHeads = 2, kDim = 64, kPage = kKvHeads * 16 * kDim;
    constexpr int kQkv = (kHeads + 2 * kKvHeads) * kDim;
    const int n_pages = (context + 15) / 16;
    Rows<T> k(apart, n_pages, kPage, 1), v(apart, n_pages, kPage, 2), out(apart, n_new, kHeads * kDim, 3);
    Rows<float> qkv(apart, n_new, kQkv, 4);
    DeviceArray<float> angles(Values(5).vector<float>(std::size_t(n_new * kDim)));
    std::vector<int> table, slots;
    for (int page = 0; page < n_pages; ++page) table.push_back(int((page + 1) * (k.stride / kPage)));
    for (int i = context - n_new; i < context; ++i) slots.push_back(table[std::size_t(i / 16)] * 16 + i % 16);
    DeviceArray<int> pages(table), places(slots), first(std::vector<int>{0, n_new}),
        length(std::vector<int>{context});
    kernels::RopeStore store{};
    store.qkv = qkv.data();
    store.qkv_stride = qkv.stride;
    store.k = k.base();
    store.v = v.base();
    store.kv_type = sizeof(T) == 4 ? DType::f32 : DType::bf16;
    store.cos_sin = angles;
    store.slots = places;
    store.n_tokens = n_new;
    store.n_heads = kHeads;
    store.n_kv_heads = kKvHeads;
    store.head_dim = store.rotary_dim = kDim;
    kernels::qk_norm_rope_store_kv(store, Dependent::no, nullptr);
    kernels::Attention p = attention_of<T>({kHeads, kKvHeads, kDim}, {first, length, pages, n_pages, 1},
                                           out.data(), qkv.data(), k.base(), v.base(), 0.125f);
    p.out_stride = out.stride;
    p.q_stride = qkv.stride;
    DeviceArray<float> scratch(kernels::attn_decode_scratch(1, kHeads, kKvHeads, kDim));
    DeviceArray<int> arrivals(std::vector<int>(kernels::attn_decode_arrivals(1, kHeads, kKvHeads), 0));
    p.arrivals = arrivals;
    if (sizeof(T) == 4)
        kernels::attn_generic(p, n_new, Dependent::no, nullptr);
    else if (const int tiles = kernels::attn_prefill_tiles(n_new, kHeads, kKvHeads); tiles > 0)
        kernels::attn_prefill(p, tiles, Dependent::no, nullptr);
    else
        kernels::attn_decode(p, scratch, context, Dependent::no, nullptr);
    std::vector<float> all;
    add_bits(all, out.values());
    add_bits(all, k.values());
    add_bits(all, v.values());
    return all;
}
TEST(Far, PagesOfOneNewToken) {
    expect_same([](Apart apart) { return attend<bf16>(apart, 70, 1); });
}
TEST(Far, PagesOfManyNewTokens) {
    expect_same([](Apart apart) { return attend<bf16>(apart, 40, 35); });
}
TEST(Far, PagesOfFloats) {
    expect_same([](Apart apart) { return attend<float>(apart, 20, 2); });
}

}  // namespace
}  // namespace llmgen::simt
