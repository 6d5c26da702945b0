// Embedding, gathering, SwiGLU, page copies and RMSNorm against plain loops in double.
#include <cstring>

#include "kernels.h"
#include "simt/testing.h"

namespace llmgen::simt {
namespace {

using kernels::Dependent;

template <typename T>
constexpr DType type_of() {
    return std::is_same_v<T, float> ? DType::f32 : std::is_same_v<T, bf16> ? DType::bf16 : DType::f16;
}

template <typename T>
void check_embed(int hidden) {
    const int vocab = 11;
    const auto table = Values(1).vector<T>(std::size_t(vocab * hidden));
    const std::vector<int> ids = {0, 10, 3, 3, -5, 99};  // the last two are clamped
    DeviceArray<T> device_table(table);
    DeviceArray<int> device_ids(ids);
    DeviceArray<float> x(ids.size() * std::size_t(hidden));
    kernels::embed(x, hidden, device_table, type_of<T>(), device_ids, int(ids.size()), hidden, vocab,
                   nullptr);
    for (std::size_t t = 0; t < ids.size(); ++t)
        for (int d = 0; d < hidden; ++d) {
            const int row = std::clamp(ids[t], 0, vocab - 1);
            ASSERT_EQ(x[t * std::size_t(hidden) + std::size_t(d)],
                      float(as_double(table[std::size_t(row * hidden + d)])));
        }
}
TEST(Rows, EmbedTakesRowsOfAnyType) {
    in_every_order([] {
        for (const int hidden : {1, 128, 300}) {
            check_embed<float>(hidden);
            check_embed<bf16>(hidden);
            check_embed<f16>(hidden);
        }
    });
}

TEST(Rows, GatherTakesStridedRows) {
    in_every_order([] {
        const int hidden = 130, stride = 137;
        const auto x = Values(2).vector<float>(std::size_t(5 * stride));
        DeviceArray<float> in(x), out(3 * (hidden + 2));
        DeviceArray<int> rows(std::vector<int>{4, 0, 4});
        kernels::gather_rows(out, hidden + 2, in, stride, rows, 3, hidden, nullptr);
        for (int i = 0; i < 3; ++i)
            for (int d = 0; d < hidden; ++d)
                ASSERT_EQ(out[std::size_t(i * (hidden + 2) + d)],
                          x[std::size_t((i == 1 ? 0 : 4) * stride + d)]);
    });
}

template <typename T>
void check_swiglu(int n, int intermediate) {
    const auto in = Values(3).vector<float>(std::size_t(2 * n * intermediate), 3);
    DeviceArray<float> gate_up(in);
    DeviceArray<T> out(n * intermediate);
    kernels::swiglu(out.get(), type_of<T>(), intermediate, gate_up, n, intermediate, nullptr);
    std::vector<double> want, bound;
    for (int row = 0; row < n; ++row)
        for (int d = 0; d < intermediate; ++d) {
            const double g = as_double(in[std::size_t(row * 2 * intermediate + d)]);
            const double u = as_double(in[std::size_t(row * 2 * intermediate + intermediate + d)]);
            want.push_back(g / (1 + std::exp(-g)) * u);
            bound.push_back(std::abs(want.back()) * (unit<T>() + 8 * 0x1p-24) + 1e-30);
        }
    expect_within(out.host(), want, bound, "swiglu");
}
TEST(Rows, SwigluOfHalves) {
    in_every_order([] {
        for (const auto& [n, intermediate] : {std::pair{1, 1}, {3, 129}, {2, 640}}) {
            check_swiglu<float>(n, intermediate);
            check_swiglu<bf16>(n, intermediate);
        }
    });
}
TEST(Rows, SwigluOfExtremeGates) {
    const std::vector<float> in = {-200, 200, 0, 1, 1, 1};  // gates, then ups
    DeviceArray<float> gate_up(in), out(3);
    kernels::swiglu(out.get(), DType::f32, 3, gate_up, 1, 3, nullptr);
    EXPECT_EQ(out[0], 0.0f);
    EXPECT_EQ(out[1], 200.0f);
    EXPECT_EQ(out[2], 0.0f);
}

TEST(Rows, ReadAllReadsEveryWord) {
    in_every_order([] {
        const std::size_t words = 2 * 8 * 512 * 4 + 516;  // of two blocks: a whole turn, and some
        for (const std::size_t at : {std::size_t(0), words / 2, words - 1}) {
            DeviceArray<int> from(std::vector<int>(words, 0)), out(std::vector<int>{0});
            from[at] = 5;
            kernels::read_all(out, from, words * sizeof(int), 2, nullptr);
            EXPECT_EQ(out[0], 5) << "word " << at;
        }
    });
}

TEST(Rows, CopiesPagesInEveryPool) {
    in_every_order([] {
        const std::size_t page_bytes = 16 * 24 * 2, n_pages = 5;
        DeviceArray<char> a(n_pages * page_bytes), b(n_pages * page_bytes);
        for (std::size_t i = 0; i < a.size(); ++i) {
            a[i] = char(i * 7);
            b[i] = char(i * 13);
        }
        const auto old_a = a.host(), old_b = b.host();
        DeviceArray<void*> pools(std::vector<void*>{a.get(), b.get()});
        DeviceArray<int> src(std::vector<int>{4, 1}), dst(std::vector<int>{0, 3});
        kernels::copy_pages(pools, 2, page_bytes, src, dst, 2, nullptr);
        for (std::size_t page = 0; page < n_pages; ++page) {
            const std::size_t from = page == 0 ? 4 : page == 3 ? 1 : page;
            EXPECT_EQ(std::memcmp(&a[page * page_bytes], &old_a[from * page_bytes], page_bytes), 0);
            EXPECT_EQ(std::memcmp(&b[page * page_bytes], &old_b[from * page_bytes], page_bytes), 0);
        }
    });
}

template <typename T>
void check_rmsnorm(int n_tokens, int hidden, bool with_delta, float scale) {
    const int stride = hidden + 3;
    const auto x = Values(5).vector<float>(std::size_t(n_tokens * stride), scale);
    const auto delta = Values(6).vector<float>(std::size_t(n_tokens * hidden), scale);
    const auto weight = Values(7).vector<float>(std::size_t(hidden));
    DeviceArray<float> device_x(x), device_delta(delta), device_weight(weight);
    DeviceArray<T> out(n_tokens * hidden);
    const float eps = 1e-5f;
    kernels::RmsNorm p{};
    p.out = out.get();
    p.out_type = type_of<T>();
    p.out_stride = hidden;
    p.x = device_x;
    p.x_stride = stride;
    p.delta = with_delta ? device_delta.get() : nullptr;
    p.weight = device_weight;
    p.n_tokens = n_tokens;
    p.hidden = hidden;
    p.eps = eps;
    kernels::rmsnorm(p, Dependent::no, nullptr);
    std::vector<double> want, bound;
    for (int t = 0; t < n_tokens; ++t) {
        std::vector<float> row;
        for (int d = 0; d < hidden; ++d)
            row.push_back(x[std::size_t(t * stride + d)] +
                          (with_delta ? delta[std::size_t(t * hidden + d)] : 0.0f));
        double sum = 0;
        for (const float value : row) sum += double(value) * value;
        const double factor = 1 / std::sqrt(sum / hidden + eps);
        for (int d = 0; d < hidden; ++d) {
            want.push_back(row[std::size_t(d)] * factor * weight[std::size_t(d)]);
            // two roundings to T, and the chain of hidden / 256 + 9 sums of squares halved by the root
            const double relative = 2.01 * unit<T>() + (hidden / 256 / 2 + 12) * 0x1p-24;
            bound.push_back(std::abs(want.back()) * relative + 1e-38);
            ASSERT_EQ(device_x[std::size_t(t * stride + d)], row[std::size_t(d)]);
        }
    }
    expect_within(out.host(), want, bound, "rmsnorm");
}
TEST(RmsNorm, MatchesTheFormula) {
    in_every_order([] {
        for (const auto& [n, hidden] : {std::pair{1, 1}, {1, 576}, {3, 577}, {2, 2048}})
            for (const bool delta : {false, true}) {
                check_rmsnorm<float>(n, hidden, delta, 1);
                check_rmsnorm<bf16>(n, hidden, delta, 1);
            }
        check_rmsnorm<float>(2, 300, false, 1e-4f);  // eps decides
        check_rmsnorm<bf16>(2, 300, false, 1e15f);
    });
}
TEST(RmsNorm, OfZerosIsZerosAndMayBeInPlace) {
    in_every_order([] {
        DeviceArray<float> x(std::vector<float>(300, 0.0f)), weight(std::vector<float>(300, 1.0f));
        kernels::RmsNorm p{};
        p.out = x.get();
        p.out_type = DType::f32;
        p.out_stride = p.x_stride = p.hidden = 300;
        p.x = x;
        p.weight = weight;
        p.n_tokens = 1;
        p.eps = 1e-6f;
        kernels::rmsnorm(p, Dependent::no, nullptr);
        for (const float value : x.host()) ASSERT_EQ(value, 0.0f);
        for (int i = 0; i < 300; ++i) x[std::size_t(i)] = 3;
        kernels::rmsnorm(p, Dependent::no, nullptr);
        for (const float value : x.host()) ASSERT_NEAR(value, 1.0f, 1e-6);
    });
}

}  // namespace
}  // namespace llmgen::simt
