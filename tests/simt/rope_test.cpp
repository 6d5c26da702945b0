// Rotary positions, head norms and the paged store against plain loops in double.
#include "kernels.h"
#include "simt/testing.h"

namespace llmgen::simt {
namespace {

using kernels::Dependent;

TEST(Rope, AnglesAreRoundedToF32First) {
    in_every_order([] {
        const std::vector<int> positions = {0, 1, 77, 131071};
        const std::vector<float> inv_freq = {1.0f, 0.31622776f, 1e-4f};
        DeviceArray<int> dp(positions);
        DeviceArray<float> df(inv_freq), out(std::size_t(positions.size() * 6));
        kernels::rope_angles(out, dp, df, 1.25f, int(positions.size()), 3, nullptr);
        for (std::size_t t = 0; t < positions.size(); ++t)
            for (std::size_t d = 0; d < 3; ++d) {
                const double angle = float(positions[t]) * inv_freq[d];
                ASSERT_NEAR(out[t * 6 + d], std::cos(angle) * 1.25, 3e-7);
                ASSERT_NEAR(out[t * 6 + 3 + d], std::sin(angle) * 1.25, 3e-7);
            }
    });
}

struct Case {
    int n_tokens, n_heads, n_kv_heads, head_dim, rotary_dim;
    bool norm;
};

template <typename T>
void check_store(const Case& c) {
    SCOPED_TRACE(testing::Message() << c.n_heads << "/" << c.n_kv_heads << " heads of " << c.head_dim
                                    << ", rotary " << c.rotary_dim << (c.norm ? ", norm" : ""));
    const int heads = c.n_heads + 2 * c.n_kv_heads, width = heads * c.head_dim, stride = width + 5;
    const int n_pages = 4, half = c.rotary_dim / 2;
    const std::size_t kv_size = std::size_t(n_pages * c.n_kv_heads * 16 * c.head_dim);
    const auto qkv = Values(21).vector<float>(std::size_t(c.n_tokens * stride));
    const auto angles = Values(22).vector<float>(std::size_t(c.n_tokens * c.rotary_dim));
    const auto q_norm = Values(23).vector<float>(std::size_t(c.head_dim));
    const auto k_norm = Values(24).vector<float>(std::size_t(c.head_dim));
    std::vector<int> slots;
    for (int t = 0; t < c.n_tokens; ++t) slots.push_back((t * 23 + 15) % (n_pages * 16));
    DeviceArray<float> dqkv(qkv), dangles(angles), dq(q_norm), dk(k_norm);
    DeviceArray<int> dslots(slots);
    DeviceArray<T> k(kv_size), v(kv_size);
    kernels::RopeStore p{};
    p.qkv = dqkv;
    p.qkv_stride = stride;
    p.k = k.get();
    p.v = v.get();
    p.kv_type = sizeof(T) == 4 ? DType::f32 : DType::bf16;
    p.cos_sin = dangles;
    p.slots = dslots;
    p.q_norm = c.norm ? dq.get() : nullptr;
    p.k_norm = c.norm ? dk.get() : nullptr;
    p.eps = 1e-6f;
    p.n_tokens = c.n_tokens;
    p.n_heads = c.n_heads;
    p.n_kv_heads = c.n_kv_heads;
    p.head_dim = c.head_dim;
    p.rotary_dim = c.rotary_dim;
    kernels::qk_norm_rope_store_kv(p, Dependent::no, nullptr);

    const std::vector<T> got_k = k.host(), got_v = v.host();
    const std::vector<float> got_qkv = dqkv.host();
    std::vector<char> written_k(kv_size), written_v(kv_size);
    for (int t = 0; t < c.n_tokens; ++t)
        for (int h = 0; h < heads; ++h) {
            const bool is_q = h < c.n_heads, is_v = h >= c.n_heads + c.n_kv_heads;
            std::vector<double> head;
            for (int d = 0; d < c.head_dim; ++d)
                head.push_back(qkv[std::size_t(t * stride + h * c.head_dim + d)]);
            double largest = 0;
            if (c.norm && !is_v) {
                double sum = 0;
                for (const double x : head) sum += x * x;
                const double scale = 1 / std::sqrt(sum / c.head_dim + p.eps);
                for (int d = 0; d < c.head_dim; ++d)
                    head[std::size_t(d)] *= scale * (is_q ? q_norm : k_norm)[std::size_t(d)];
            }
            std::vector<double> want = head;
            if (!is_v)
                for (int d = 0; d < half; ++d) {
                    const double a = head[std::size_t(d)], b = head[std::size_t(d + half)];
                    const double cosine = angles[std::size_t(t * c.rotary_dim + d)];
                    const double sine = angles[std::size_t(t * c.rotary_dim + half + d)];
                    want[std::size_t(d)] = a * cosine - b * sine;
                    want[std::size_t(d + half)] = b * cosine + a * sine;
                }
            for (const double x : head) largest = std::max(largest, std::abs(x));
            const std::size_t row = std::size_t(
                ((slots[std::size_t(t)] / 16) * c.n_kv_heads + (h - c.n_heads) % c.n_kv_heads) * 16 +
                slots[std::size_t(t)] % 16);
            for (int d = 0; d < c.head_dim; ++d) {
                const double exact = 4 * largest * 40 * 0x1p-24;
                if (is_q) {
                    ASSERT_NEAR(got_qkv[std::size_t(t * stride + h * c.head_dim + d)], want[std::size_t(d)],
                                exact);
                    continue;
                }
                const std::size_t at = row * std::size_t(c.head_dim) + std::size_t(d);
                ASSERT_NEAR(as_double(is_v ? got_v[at] : got_k[at]), want[std::size_t(d)],
                            exact + unit<T>() * 1.01 * std::abs(want[std::size_t(d)]));
                (is_v ? written_v : written_k)[at] = 1;
            }
        }
    for (std::size_t i = 0; i < kv_size; ++i) {  // nothing else was touched
        ASSERT_EQ(std::isnan(as_double(got_k[i])), !written_k[i]);
        ASSERT_EQ(std::isnan(as_double(got_v[i])), !written_v[i]);
    }
}

TEST(Rope, RotatesNormsAndStores) {
    in_every_order([] {
        for (const Case& c : {Case{1, 1, 1, 64, 64, false},
                              {3, 6, 2, 80, 80, true},
                              {2, 4, 4, 96, 48, false},  // half of the channels pass through
                              {2, 3, 1, 64, 48, true},
                              {2, 3, 1, 64, 32, false},
                              {5, 3, 1, 128, 128, true},
                              {2, 2, 1, 256, 64, true},
                              {1, 9, 3, 8, 0, false}}) {  // no rotation at all
            check_store<float>(c);
            check_store<bf16>(c);
        }
    });
}

}  // namespace
}  // namespace llmgen::simt
