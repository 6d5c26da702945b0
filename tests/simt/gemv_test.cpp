// GEMV against plain loops in double: every pair of types, every end, with and without the norm, odd shapes.
#include "kernels.h"
#include "simt/testing.h"

namespace llmgen::simt {
namespace {

using kernels::Dependent;
using kernels::Gemv;

enum class End { store, add, swiglu };

template <typename T>
constexpr DType type_of() {
    return std::is_same_v<T, float> ? DType::f32 : std::is_same_v<T, bf16> ? DType::bf16 : DType::f16;
}

struct GemvShape {
    int n_tokens, out, in;
    bool bias = true, norm = false;
    int x_pad = 0;  // extra elements between rows of x
};

/// The rows that the matrix meets: x itself, or what the norm makes of it, rounded as the contract says.
template <typename Act>
std::vector<Act> normalised(const std::vector<float>& x,
                            const std::vector<float>& weight,
                            const GemvShape& s,
                            float eps) {
    std::vector<Act> rows(std::size_t(s.n_tokens * s.in));
    auto round = [](float value) {
        if constexpr (std::is_same_v<Act, bf16>)
            return to_bf16(value);
        else
            return value;
    };
    for (int t = 0; t < s.n_tokens; ++t) {
        double sum = 0;
        for (int k = 0; k < s.in; ++k) sum += std::pow(double(x[std::size_t(t * s.in + k)]), 2);
        const double scale = 1 / std::sqrt(sum / s.in + eps);
        for (int k = 0; k < s.in; ++k) {
            const auto i = std::size_t(t * s.in + k);
            rows[i] = round(float(as_double(round(float(x[i] * scale)))) * weight[std::size_t(k)]);
        }
    }
    return rows;
}

template <End kEnd, typename W, typename Act>
void check_gemv(const GemvShape& s) {
    SCOPED_TRACE(testing::Message() << s.n_tokens << " x " << s.out << " x " << s.in
                                    << (s.norm ? " with norm" : ""));
    const int n_out = kEnd == End::swiglu ? s.out / 2 : s.out, x_stride = s.in + s.x_pad;
    const auto w = Values(11).vector<W>(std::size_t(s.out * s.in));
    const auto bias = Values(12).vector<float>(std::size_t(s.out));
    const auto norm_weight = Values(13).vector<float>(std::size_t(s.in));
    const auto act = Values(14).vector<Act>(std::size_t(s.n_tokens * x_stride));
    const auto stream = Values(15).vector<float>(std::size_t(s.n_tokens * s.in), 2);
    const auto residual = Values(16).vector<float>(std::size_t(s.n_tokens * n_out));
    DeviceArray<W> dw(w);
    DeviceArray<float> dbias(bias), dnorm(norm_weight), dstream(stream), dresidual(residual),
        dlogits(s.n_tokens * n_out);
    DeviceArray<Act> dact(act), dout(s.n_tokens * n_out);

    Gemv p{};
    p.weight = dw.get();
    p.weight_type = type_of<W>();
    p.bias = s.bias ? dbias.get() : nullptr;
    p.x = s.norm ? static_cast<const void*>(dstream.get()) : dact.get();
    p.x_stride = s.norm ? s.in : x_stride;
    p.act_type = type_of<Act>();
    p.norm_weight = s.norm ? dnorm.get() : nullptr;
    p.eps = 1e-5f;
    p.n_tokens = s.n_tokens;
    p.out = s.out;
    p.in = s.in;
    p.y_stride = n_out;
    ASSERT_TRUE(!s.norm || kernels::gemv_fuses_norm(s.n_tokens, s.in, p.act_type, p.weight_type));
    if (kEnd == End::store) {
        p.y = dlogits.get();
        p.y_type = DType::f32;
        kernels::gemv(p, Dependent::no, nullptr);
        p.y = dout.get();
        p.y_type = type_of<Act>();
        kernels::gemv(p, Dependent::no, nullptr);
    } else if (kEnd == End::add) {
        p.y = dresidual.get();
        p.y_type = DType::f32;
        kernels::gemv_add(p, Dependent::no, nullptr);
    } else {
        p.y = dout.get();
        p.y_type = type_of<Act>();
        kernels::gemv_swiglu(p, Dependent::no, nullptr);
    }

    const auto rows = s.norm ? normalised<Act>(stream, norm_weight, s, p.eps) : act;
    const int row_stride = s.norm ? s.in : x_stride;
    // The norm's f32 arithmetic may round an element to its neighbour: one unit of Act for each of x's two
    // roundings.
    const double slack = s.norm ? 2 * unit<Act>() + 40 * 0x1p-24 : 0;
    const double chain = (s.in / 32 + 8) * 0x1p-24 + slack;
    std::vector<double> want, bound;
    for (int t = 0; t < s.n_tokens; ++t) {
        auto product = [&](int o, double& error) {
            double sum = s.bias ? bias[std::size_t(o)] : 0, magnitude = std::abs(sum);
            for (int k = 0; k < s.in; ++k) {
                const double term = as_double(w[std::size_t(o * s.in + k)]) *
                                    as_double(rows[std::size_t(t * row_stride + k)]);
                sum += term;
                magnitude += std::abs(term);
            }
            error = magnitude * chain;
            return sum;
        };
        for (int o = 0; o < n_out; ++o) {
            double error = 0, error_up = 0;
            const double a = product(o, error);
            if (kEnd == End::swiglu) {
                const double u = product(n_out + o, error_up), gate = a / (1 + std::exp(-a));
                want.push_back(gate * u);
                error = 1.1 * error * std::abs(u) + std::abs(gate) * error_up +
                        std::abs(want.back()) * 8 * 0x1p-24;
            } else if (kEnd == End::add) {
                want.push_back(a + residual[std::size_t(t * n_out + o)]);
            } else {
                want.push_back(a);
            }
            bound.push_back(error + 1e-30);
        }
    }
    if (kEnd != End::swiglu) {
        std::vector<double> exact = bound;
        for (std::size_t i = 0; i < exact.size(); ++i) exact[i] += std::abs(want[i]) * 0x1p-23;
        expect_within(kEnd == End::add ? dresidual.host() : dlogits.host(), want, exact, "f32 output");
    }
    if (kEnd != End::add) {
        for (std::size_t i = 0; i < bound.size(); ++i) bound[i] += std::abs(want[i]) * 1.01 * unit<Act>();
        expect_within(dout.host(), want, bound, "activations");
    }
}

template <End kEnd, typename W, typename Act>
void check_shapes() {
    // around one step of a warp (32 x 8 or 32 x 4), one round of the unrolled loop, one block (16 outputs)
    for (const int in : {8, 264, 1024, 1096}) check_gemv<kEnd, W, Act>({1, 34, in});
    check_gemv<kEnd, W, Act>({3, 2, 520});
    check_gemv<kEnd, W, Act>({8, 18, 256, false});
    check_gemv<kEnd, W, Act>({2, 34, 512, true, true});
    check_gemv<kEnd, W, Act>({5, 18, 264, true, true});
    check_gemv<kEnd, W, Act>({2, 18, 24, true, false, 8});
    check_gemv<kEnd, W, Act>({2, 18, 37});                 // no vectors: an odd width
    check_gemv<kEnd, W, Act>({2, 6, 24, true, false, 3});  // no vectors: rows of x lie askew
}

#define GEMV_TEST(name, W, Act)                  \
    TEST(Gemv, name) {                           \
        in_every_order([] {                      \
            check_shapes<End::store, W, Act>();  \
            check_shapes<End::add, W, Act>();    \
            check_shapes<End::swiglu, W, Act>(); \
        });                                      \
    }
GEMV_TEST(Bf16WeightsBf16Activations, bf16, bf16)
GEMV_TEST(Bf16WeightsF32Activations, bf16, float)
GEMV_TEST(F16WeightsF32Activations, f16, float)
GEMV_TEST(F32WeightsF32Activations, float, float)

TEST(Gemv, OddNumbersOfOutputs) {
    in_every_order([] {
        for (const int out : {1, 17, 33}) {
            check_gemv<End::store, bf16, bf16>({2, out, 64});
            check_gemv<End::add, bf16, bf16>({2, out, 64});
            check_gemv<End::store, float, float>({1, out, 7});
        }
    });
}

// A row's bits don't depend on its neighbours.
TEST(Gemv, RowsAreIndependent) {
    const int in = 1032, out = 20;
    DeviceArray<bf16> w(Values(1).vector<bf16>(std::size_t(out * in))), x(Values(2).vector<bf16>(8 * in));
    std::vector<std::vector<float>> results;
    for (const int n : {1, 2, 3, 5, 8}) {
        DeviceArray<float> y(n * out);
        Gemv p{};
        p.weight = w.get();
        p.weight_type = p.act_type = DType::bf16;
        p.x = x.get();
        p.x_stride = p.in = in;
        p.n_tokens = n;
        p.out = out;
        p.y = y.get();
        p.y_type = DType::f32;
        p.y_stride = out;
        kernels::gemv(p, Dependent::no, nullptr);
        auto row = y.host();
        row.resize(std::size_t(out));
        results.push_back(row);
    }
    for (const auto& row : results) EXPECT_EQ(row, results[0]);
}

// Each weight is read once, in full sectors.
TEST(Gemv, ReadsTheWeightsOnce) {
    const int in = 2048, out = 64;
    DeviceArray<bf16> w(Values(1).vector<bf16>(std::size_t(out * in))), x(Values(2).vector<bf16>(in));
    DeviceArray<float> y(out);
    Gemv p{};
    p.weight = w.get();
    p.weight_type = p.act_type = DType::bf16;
    p.x = x.get();
    p.x_stride = p.in = in;
    p.n_tokens = 1;
    p.out = out;
    p.y = y.get();
    p.y_type = DType::f32;
    p.y_stride = out;
    Setting setting;
    kernels::gemv(p, Dependent::no, nullptr);
    std::uint64_t bytes = 0, sectors = 0;
    for (const auto& [site, access] : Machine::get().counters.global)
        if (site.first.find("gemv.cuh") != std::string::npos) {
            bytes += access.bytes;
            sectors += access.sectors;
        }
    EXPECT_EQ(bytes, std::uint64_t(in * out * 2));
    EXPECT_EQ(sectors * 32, bytes);
}

// norm + gate/up + SwiGLU, then down + residual, as two dependent launches that overlap.
TEST(Gemv, ChainsAsDependentLaunches) {
    const int hidden = 264, inner = 40;
    const auto x0 = Values(1).vector<float>(hidden);
    auto run = [&](bool overlap) {
        DeviceArray<bf16> gate_up(Values(2).vector<bf16>(std::size_t(2 * inner * hidden), 0.1f));
        DeviceArray<bf16> down(Values(3).vector<bf16>(std::size_t(inner * hidden), 0.1f)), mlp(inner);
        DeviceArray<float> x(x0), weight(Values(4).vector<float>(hidden));
        Machine::get().config.overlap = overlap;
        for (int layer = 0; layer < 3; ++layer) {
            Gemv p{};
            p.weight = gate_up.get();
            p.weight_type = p.act_type = DType::bf16;
            p.x = x.get();
            p.x_stride = p.in = hidden;
            p.norm_weight = weight;
            p.eps = 1e-5f;
            p.n_tokens = 1;
            p.out = 2 * inner;
            p.y = mlp.get();
            p.y_type = DType::bf16;
            p.y_stride = inner;
            kernels::gemv_swiglu(p, Dependent::yes, nullptr);
            p = Gemv{};
            p.weight = down.get();
            p.weight_type = p.act_type = DType::bf16;
            p.x = mlp.get();
            p.x_stride = p.in = inner;
            p.n_tokens = 1;
            p.out = hidden;
            p.y = x.get();
            p.y_type = DType::f32;
            p.y_stride = hidden;
            kernels::gemv_add(p, Dependent::yes, nullptr);
        }
        Machine::get().synchronize();
        return x.host();
    };
    const auto want = run(false);
    in_every_order([&] { EXPECT_EQ(run(true), want); });
}

}  // namespace
}  // namespace llmgen::simt
