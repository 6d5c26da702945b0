// Angles, rotation, the norms of q and k, and the way into the cache.
#include "attention_case.h"

namespace llmgen::test {
namespace {

class RopeBackend : public EveryBackend {};

TEST_P(RopeBackend, AnglesAreRoundedToF32First) {
    const std::vector<int> positions = {0, 1, 7, 1000, 131071};
    std::vector<float> inv_freq;
    for (int d = 0; d < 33; ++d) inv_freq.push_back(float(std::pow(10000.0, -d / 33.0)));
    const Integers device_positions(ops(), positions);
    const auto buffer = ops().allocate(positions.size() * 2 * inv_freq.size() * 4, "test");
    const Tensor out(buffer->data(), DType::f32,
                     {std::int64_t(positions.size()), 2, std::int64_t(inv_freq.size())});
    ops().rope_angles(out, device_positions.view(), make_vector(ops(), inv_freq), 1.25f);
    std::vector<float> got(std::size_t(out.size()));
    ops().download(got.data(), out);
    std::size_t i = 0;
    for (const int position : positions)
        for (const bool sine : {false, true})
            for (const float f : inv_freq) {
                const double angle = float(position) * f;
                EXPECT_NEAR(got[i++], (sine ? std::sin(angle) : std::cos(angle)) * 1.25, 3e-7) << position;
            }
}

/// One token's q, k or v head as the contract has it, in f64.
std::vector<double> transformed(std::vector<double> head,
                                const std::vector<float>& norm,
                                double eps,
                                int rotary_dim,
                                int position,
                                const std::vector<float>& inv_freq) {
    if (!norm.empty()) {
        double sum = 0;
        for (const double v : head) sum += v * v;
        for (std::size_t d = 0; d < head.size(); ++d)
            head[d] *= norm[d] / std::sqrt(sum / double(head.size()) + eps);
    }
    for (int d = 0; d < rotary_dim / 2; ++d) {
        const double angle = float(position) * inv_freq[std::size_t(d)];
        double &a = head[std::size_t(d)], &b = head[std::size_t(d + rotary_dim / 2)];
        const double rotated = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = rotated;
    }
    return head;
}

struct RopeShape {
    int n_heads, n_kv_heads, head_dim, rotary_dim;
    bool norm;
};

TEST_P(RopeBackend, RotatesQueriesInPlaceAndStoresKeysAndValues) {
    for (const RopeShape s : {RopeShape{9, 3, 64, 64, false},
                              {4, 2, 32, 16, false},
                              {2, 1, 128, 128, true},
                              {3, 3, 10, 4, true},
                              {1, 1, 80, 80, false}}) {
        const HeadShape heads{s.n_heads, s.n_kv_heads, s.head_dim, 0};
        const AttentionShape shape = heads.attention(s.rotary_dim);
        Random random(static_cast<std::uint64_t>(s.head_dim));
        const int n = 5, width = shape.qkv_width(), hd = s.head_dim;
        const auto values = random.values(n * width);
        std::vector<float> inv_freq, q_norm, k_norm;
        for (int d = 0; d < s.rotary_dim / 2; ++d)
            inv_freq.push_back(float(std::pow(100.0, -2.0 * d / s.rotary_dim)));
        if (s.norm) q_norm = random.values(hd), k_norm = random.values(hd);

        // Each token is a sequence of its own with one key: attention then returns its value, and nothing
        // else.
        PagedCache pages(ops(), act(), heads, n + 2, 3);
        std::vector<std::vector<int>> tables;
        for (int t = 0; t < n; ++t) tables.push_back({pages.take()});
        HostBatch host = step_of(tables, std::vector<int>(n, 0), std::vector<int>(n, 1));
        for (int t = 0; t < n; ++t) host.positions[std::size_t(t)] = 3 * t + 1;  // as rope sees them
        const std::vector<int> positions = host.positions;
        const DeviceBatch batch(ops(), std::move(host));
        const Matrix qkv(ops(), DType::f32, n, width, values), out(ops(), act(), n, shape.q_width());
        const auto buffer = ops().allocate(std::size_t(n * s.rotary_dim * 4 + 4), "test");
        const Tensor angles(buffer->data(), DType::f32, {n, 2, s.rotary_dim / 2});
        ops().reserve(shape, n, n, 16);
        ops().rope_angles(angles, batch.get().positions, make_vector(ops(), inv_freq), 1);
        const Vector qn = s.norm ? make_vector(ops(), q_norm) : Vector(),
                     kn = s.norm ? make_vector(ops(), k_norm) : Vector();
        ops().qk_norm_rope_store_kv(qkv.view(), pages.cache, angles, qn, kn, 1e-6f, batch.get(), shape);
        ops().attention(out.view(), qkv.view().columns(0, shape.q_width()), pages.cache, batch.get(), shape);

        const auto q = qkv.values(), v = out.values();
        for (int t = 0; t < n; ++t)
            for (int h = 0; h < s.n_heads; ++h) {
                const auto head = values.begin() + t * width + h * hd;
                const auto want = transformed({head, head + hd}, q_norm, 1e-6, s.rotary_dim,
                                              positions[std::size_t(t)], inv_freq);
                for (int d = 0; d < hd; ++d)
                    ASSERT_NEAR(q[std::size_t(t * width + h * hd + d)], want[std::size_t(d)], 3e-6)
                        << "head_dim " << hd;
                const int from = t * width + (s.n_heads + s.n_kv_heads + h / (s.n_heads / s.n_kv_heads)) * hd;
                for (int d = 0; d < hd; ++d)
                    ASSERT_EQ(v[std::size_t(t * shape.q_width() + h * hd + d)],
                              rounded(act(), values[std::size_t(from + d)]));
            }
    }
}

TEST_P(RopeBackend, KeysAreRotatedLikeQueries) {
    // A score depends on the distance alone: the same q and k at positions 3 apart weigh the same anywhere.
    const HeadShape heads{1, 1, 32, 0};
    const AttentionShape shape = heads.attention(32);
    Random random(17);
    const auto q = random.values(32), k0 = random.values(32), k1 = random.values(32);
    std::vector<float> inv_freq;
    for (int d = 0; d < 16; ++d) inv_freq.push_back(float(std::pow(1000.0, -d / 16.0)));
    const auto weight_of_first = [&](int shift) {
        PagedCache pages(ops(), act(), heads, 4, 5);
        HostBatch host = step_of({{pages.take()}}, {0}, {4});
        for (int& p : host.positions) p += shift;
        std::vector<float> rows;
        for (int t = 0; t < 4; ++t) {
            rows.insert(rows.end(), q.begin(), q.end());
            rows.insert(rows.end(), t == 0 ? k0.begin() : k1.begin(), t == 0 ? k0.end() : k1.end());
            rows.insert(rows.end(), 32, t == 0 ? 1.0f : 0.0f);  // the output is the weight of key 0
        }
        const DeviceBatch batch(ops(), std::move(host));
        const Matrix qkv(ops(), DType::f32, 4, 96, rows), out(ops(), act(), 4, 32);
        const auto buffer = ops().allocate(4 * 32 * 4, "test");
        const Tensor angles(buffer->data(), DType::f32, {4, 2, 16});
        ops().reserve(shape, 4, 1, 16);
        ops().rope_angles(angles, batch.get().positions, make_vector(ops(), inv_freq), 1);
        ops().qk_norm_rope_store_kv(qkv.view(), pages.cache, angles, {}, {}, 0, batch.get(), shape);
        ops().attention(out.view(), qkv.view().columns(0, 32), pages.cache, batch.get(), shape);
        return out.values()[3 * 32];
    };
    const float here = weight_of_first(0);
    EXPECT_GT(here, 0);
    EXPECT_LT(here, 1);
    EXPECT_NEAR(weight_of_first(500), here, act() == DType::f32 ? 1e-4 : 2e-2);
}

INSTANTIATE_TEST_SUITE_P(Rope, RopeBackend, testing::ValuesIn(every_backend()), case_name);

}  // namespace
}  // namespace llmgen::test
