// The fused kernels of decode against the single ones: the same bits.
#include <cstring>

#include "kernels.h"
#include "simt/testing.h"

namespace llmgen::simt {
namespace {

using kernels::Dependent;
using kernels::Gemv;

template <typename T>
constexpr DType type_of() {
    return std::is_same_v<T, float> ? DType::f32 : std::is_same_v<T, bf16> ? DType::bf16 : DType::f16;
}

template <typename T>
bool same_bits(const DeviceArray<T>& a, const DeviceArray<T>& b) {
    const auto ha = a.host(), hb = b.host();
    return ha.size() == hb.size() && std::memcmp(ha.data(), hb.data(), ha.size() * sizeof(T)) == 0;
}

struct QkvCase {
    int n_tokens, n_heads, n_kv_heads, head_dim, rotary_dim, in;
    bool norms = false, bias = false;
};

/// Norm, product, norms of heads, rotation and store, in one launch or in three.
template <typename W, typename Act>
class Qkv {
public:
    explicit Qkv(const QkvCase& c)
        : c_(c),
          width_((c.n_heads + 2 * c.n_kv_heads) * c.head_dim),
          weight_(Values(1).vector<W>(std::size_t(width_ * c.in), 0.2f)),
          x_(Values(2).vector<float>(std::size_t(c.n_tokens * c.in))),
          norm_(Values(3).vector<float>(std::size_t(c.in))),
          bias_(Values(4).vector<float>(std::size_t(width_))),
          angles_(Values(5).vector<float>(std::size_t(c.n_tokens * c.rotary_dim))),
          q_norm_(Values(6).vector<float>(std::size_t(c.head_dim))),
          k_norm_(Values(7).vector<float>(std::size_t(c.head_dim))),
          arrivals_(std::vector<int>(std::size_t(c.n_heads + c.n_kv_heads), 0)),
          slots_(c.n_tokens),
          h_(c.n_tokens * c.in),
          qkv(c.n_tokens * (width_ + 4)),
          k(kPages * c.n_kv_heads * 16 * c.head_dim),
          v(kPages * c.n_kv_heads * 16 * c.head_dim) {
        for (int t = 0; t < c.n_tokens; ++t) slots_[std::size_t(t)] = (t * 23 + 15) % (kPages * 16);
    }

    void fused(Dependent dependent = Dependent::no) {
        Gemv p = product();
        p.x = x_.get();
        p.x_stride = c_.in;
        p.norm_weight = norm_;
        p.eps = 1e-5f;
        p.rope = rope();
        p.arrivals = c_.norms ? arrivals_.get() : nullptr;
        kernels::gemv_qkv(p, dependent, nullptr);
    }
    void single() {
        kernels::RmsNorm norm{};
        norm.out = h_.get();
        norm.out_type = type_of<Act>();
        norm.out_stride = norm.x_stride = norm.hidden = c_.in;
        norm.x = x_;
        norm.weight = norm_;
        norm.n_tokens = c_.n_tokens;
        norm.eps = 1e-5f;
        kernels::rmsnorm(norm, Dependent::no, nullptr);
        Gemv p = product();
        p.x = h_.get();
        p.x_stride = c_.in;
        p.y = qkv.get();
        p.y_type = DType::f32;
        p.y_stride = width_ + 4;
        kernels::gemv(p, Dependent::no, nullptr);
        kernels::qk_norm_rope_store_kv(rope(), Dependent::no, nullptr);
    }
    bool counters_are_zero() const {
        return arrivals_.host() == std::vector<int>(std::size_t(c_.n_heads + c_.n_kv_heads), 0);
    }
    /// q alone: the rest of qkv is nobody's.
    std::vector<float> queries() const {
        const auto all = qkv.host();
        std::vector<float> q;
        for (int t = 0; t < c_.n_tokens; ++t)
            q.insert(q.end(), all.begin() + t * (width_ + 4),
                     all.begin() + t * (width_ + 4) + c_.n_heads * c_.head_dim);
        return q;
    }

private:
    static constexpr int kPages = 4;
    Gemv product() {
        Gemv p{};
        p.weight = weight_.get();
        p.weight_type = type_of<W>();
        p.act_type = type_of<Act>();
        p.bias = c_.bias ? bias_.get() : nullptr;
        p.n_tokens = c_.n_tokens;
        p.out = width_;
        p.in = c_.in;
        return p;
    }
    kernels::RopeStore rope() {
        kernels::RopeStore p{};
        p.qkv = qkv;
        p.qkv_stride = width_ + 4;
        p.k = k.get();
        p.v = v.get();
        p.kv_type = type_of<Act>();
        p.cos_sin = angles_;
        p.slots = slots_;
        p.q_norm = c_.norms ? q_norm_.get() : nullptr;
        p.k_norm = c_.norms ? k_norm_.get() : nullptr;
        p.eps = 1e-5f;
        p.n_tokens = c_.n_tokens;
        p.n_heads = c_.n_heads;
        p.n_kv_heads = c_.n_kv_heads;
        p.head_dim = c_.head_dim;
        p.rotary_dim = c_.rotary_dim;
        return p;
    }

    QkvCase c_;
    int width_;
    DeviceArray<W> weight_;
    DeviceArray<float> x_, norm_, bias_, angles_, q_norm_, k_norm_;
    DeviceArray<int> arrivals_, slots_;
    DeviceArray<Act> h_;

public:
    DeviceArray<float> qkv;
    DeviceArray<Act> k, v;
};

template <typename W, typename Act>
void check_qkv(const QkvCase& c) {
    SCOPED_TRACE(testing::Message() << c.n_tokens << " tokens, " << c.n_heads << "/" << c.n_kv_heads
                                    << " heads of " << c.head_dim << ", rotary " << c.rotary_dim
                                    << (c.norms ? ", norms" : ""));
    ASSERT_TRUE(kernels::gemv_takes_qkv(c.head_dim, c.rotary_dim, c.norms));
    Qkv<W, Act> one(c), three(c);
    one.fused();
    {
        Setting forward(in_order(Order::forward));
        three.single();
    }
    EXPECT_EQ(one.queries(), three.queries());
    EXPECT_TRUE(same_bits(one.k, three.k));  // what neither wrote is the same poison
    EXPECT_TRUE(same_bits(one.v, three.v));
    EXPECT_TRUE(one.counters_are_zero());
}

TEST(Fused, QkvIsTheThreeStepsBitForBit) {
    in_every_order([] {
        check_qkv<bf16, bf16>({1, 4, 2, 64, 64, 72});
        check_qkv<bf16, bf16>({2, 2, 1, 80, 80, 264, false, true});
        check_qkv<bf16, bf16>({3, 2, 2, 64, 64, 72, true});
        check_qkv<bf16, bf16>({8, 3, 1, 96, 48, 40, true, true});  // half of the channels pass through
        check_qkv<float, float>({1, 2, 1, 128, 128, 36, true});
        check_qkv<f16, float>({2, 3, 3, 6, 2, 24});
        check_qkv<bf16, float>({5, 1, 1, 256, 64, 24, true});
        check_qkv<bf16, bf16>({1, 9, 3, 8, 0, 16, false, true});  // no rotation at all
    });
}

/// The normalised rows and the kernel's own arrays together pass 48 KiB, the rows alone don't.
TEST(Fused, QkvOfAWideModelAsksForItsMemory) {
    check_qkv<bf16, bf16>({5, 1, 1, 16, 16, 4096});
    check_qkv<bf16, bf16>({8, 1, 1, 16, 16, 5632, true});  // the most: 88 KiB
}

TEST(Fused, QkvTakesWhatItSays) {
    EXPECT_FALSE(kernels::gemv_takes_qkv(7, 0, false));
    EXPECT_FALSE(kernels::gemv_takes_qkv(24, 24, true));  // blocks would span two heads
    EXPECT_TRUE(kernels::gemv_takes_qkv(24, 24, false));
    EXPECT_FALSE(kernels::gemv_takes_qkv(512, 64, false));
}

// Launches that overlap share the counters of arrivals.
TEST(Fused, QkvOverlapsItsPredecessor) {
    const QkvCase c{2, 2, 1, 64, 64, 72, true};
    Qkv<bf16, bf16> want(c);
    want.single();
    in_every_order([&] {
        Qkv<bf16, bf16> got(c);
        Machine::get().config.overlap = true;
        for (int i = 0; i < 3; ++i) got.fused(Dependent::yes);
        Machine::get().synchronize();
        EXPECT_EQ(got.queries(), want.queries());
        EXPECT_TRUE(same_bits(got.k, want.k));
        EXPECT_TRUE(got.counters_are_zero());
    });
}

/// A product whose rows are normalised on the way, against rmsnorm() and the same product.
template <typename W, typename Act>
void check_norm(int n_tokens, int out, int in) {
    SCOPED_TRACE(testing::Message() << n_tokens << " x " << out << " x " << in);
    DeviceArray<W> weight(Values(1).vector<W>(std::size_t(out * in)));
    DeviceArray<float> x(Values(2).vector<float>(std::size_t(n_tokens * in)));
    DeviceArray<float> norm_weight(Values(3).vector<float>(std::size_t(in)));
    DeviceArray<Act> h(n_tokens * in), fused_mlp(n_tokens * (out / 2)), mlp(n_tokens * (out / 2));
    DeviceArray<float> fused_y(n_tokens * out), y(n_tokens * out);
    DeviceArray<kernels::Best> best(std::vector<kernels::Best>(std::size_t(n_tokens), 0));
    DeviceArray<int> fused_ids(n_tokens), ids(n_tokens);
    Gemv p{};
    p.weight = weight.get();
    p.weight_type = type_of<W>();
    p.act_type = type_of<Act>();
    p.x = x.get();
    p.x_stride = p.in = in;
    p.norm_weight = norm_weight;
    p.eps = 1e-5f;
    p.n_tokens = n_tokens;
    p.out = out;
    p.y = fused_y.get();
    p.y_type = DType::f32;
    p.y_stride = out;
    p.best = best;
    kernels::gemv_argmax(p, Dependent::no, nullptr);
    kernels::take_best(fused_ids, best, n_tokens, nullptr);
    p.y = fused_mlp.get();
    p.y_type = type_of<Act>();
    p.y_stride = out / 2;
    kernels::gemv_swiglu(p, Dependent::no, nullptr);

    Setting forward(in_order(Order::forward));
    kernels::RmsNorm norm{};
    norm.out = h.get();
    norm.out_type = type_of<Act>();
    norm.out_stride = norm.x_stride = norm.hidden = in;
    norm.x = x;
    norm.weight = norm_weight;
    norm.n_tokens = n_tokens;
    norm.eps = 1e-5f;
    kernels::rmsnorm(norm, Dependent::no, nullptr);
    p.norm_weight = nullptr;
    p.x = h.get();
    p.y = mlp.get();
    kernels::gemv_swiglu(p, Dependent::no, nullptr);
    p.y = y.get();
    p.y_type = DType::f32;
    p.y_stride = out;
    kernels::gemv(p, Dependent::no, nullptr);
    kernels::argmax(best, y, out, n_tokens, out, nullptr);
    kernels::take_best(ids, best, n_tokens, nullptr);
    EXPECT_TRUE(same_bits(fused_y, y));
    EXPECT_TRUE(same_bits(fused_mlp, mlp));
    EXPECT_EQ(fused_ids.host(), ids.host());
}

TEST(Fused, NormsAreRmsnormBitForBit) {
    in_every_order([] {
        check_norm<bf16, bf16>(1, 38, 520);
        check_norm<bf16, bf16>(3, 18, 264);
        check_norm<bf16, bf16>(8, 6, 576);
        check_norm<float, float>(2, 18, 132);
        check_norm<f16, float>(5, 10, 264);
    });
}

TEST(Fused, NormsOfWideModelsAskForTheirMemory) {
    check_norm<bf16, bf16>(6, 6, 4096);  // 48 KiB of rows beside the kernel's own arrays
    check_norm<bf16, bf16>(8, 6, 5632);  // the most: 88 KiB
}

}  // namespace
}  // namespace llmgen::simt
