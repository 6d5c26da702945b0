// The matrix products against f64 sums. Bound: one rounding a term, eps_acc = 2^-24 (in + 2), times sum
// |w||x|, plus the rounding of the output.
#include "backends.h"

namespace llmgen::test {
namespace {

struct Shape {
    int rows, out, in;
};
// One of each; sizes beside the panel of 32, the pair of 2 and the row tiles; long sums; rows for every tile.
const Shape kShapes[] = {{1, 1, 1},     {1, 32, 2},    {1, 33, 3},    {2, 31, 5},    {3, 64, 64},
                         {1, 576, 576}, {4, 96, 33},   {5, 40, 16},   {7, 100, 48},  {8, 65, 70},
                         {11, 32, 32},  {12, 48, 31},  {13, 130, 96}, {16, 64, 128}, {25, 72, 64},
                         {33, 160, 96}, {1, 16, 4096}, {67, 192, 64}};

struct Exact {
    std::vector<double> value, magnitude;
};

Exact products(const Shape& s,
               const std::vector<float>& x,
               const std::vector<float>& w,
               const std::vector<float>& bias) {
    Exact exact;
    for (int t = 0; t < s.rows; ++t)
        for (int o = 0; o < s.out; ++o) {
            double sum = bias.empty() ? 0 : bias[std::size_t(o)], size = std::abs(sum);
            for (int i = 0; i < s.in; ++i) {
                const double term = double(x[std::size_t(t * s.in + i)]) * w[std::size_t(o * s.in + i)];
                sum += term;
                size += std::abs(term);
            }
            exact.value.push_back(sum);
            exact.magnitude.push_back(size);
        }
    return exact;
}

double accumulation(const Shape& s) { return 0x1p-24 * (s.in + 2); }

TEST_P(EveryBackend, LinearMatchesF64Sums) {
    for (const Shape& s : kShapes)
        for (const DType stored : {DType::f32, DType::bf16, DType::f16})
            for (const DType out_type : {DType::f32, act()}) {
                Random random(std::uint64_t(s.rows * 7 + s.out * 3 + s.in));
                const auto x = rounded(act(), random.values(s.rows * s.in));
                auto w = rounded(stored, random.values(s.out * s.in));
                const Weight weight = make_weight(ops(), stored, s.out, s.in, w);
                if (GetParam().compute == Compute::bf16) w = rounded(DType::bf16, w);
                const Matrix in(ops(), act(), s.rows, s.in, x, 3), out(ops(), out_type, s.rows, s.out, 5);
                ops().linear(out.view(), in.view(), weight);
                const Exact exact = products(s, x, w, {});
                std::vector<double> bound;
                for (std::size_t i = 0; i < exact.value.size(); ++i)
                    bound.push_back(accumulation(s) * exact.magnitude[i] +
                                    eps(out_type) * std::abs(exact.value[i]));
                SCOPED_TRACE(testing::Message() << s.rows << " rows, " << s.out << " x " << s.in << " "
                                                << name_of(stored) << " to " << name_of(out_type));
                expect_within(out.values(), exact.value, bound);
                EXPECT_TRUE(out.padding_untouched());
            }
}

class Parts : public EveryBackend {
protected:
    void check(int rows, int in);
};

void Parts::check(int rows, int in) {
    Random random(5);
    const auto a = random.values(40 * in), b = random.values(9 * in), c = random.values(17 * in);
    const auto bias = random.values(40);
    const auto bytes_a = encode(DType::f32, a), bytes_b = encode(DType::bf16, b),
               bytes_c = encode(DType::f16, c);
    const auto bytes_bias = encode(DType::bf16, bias);
    const Tensor parts[] = {host_view(bytes_a, DType::f32, {40, in}),
                            host_view(bytes_b, DType::bf16, {9, in}),
                            host_view(bytes_c, DType::f16, {17, in})};
    const Tensor biases[] = {host_view(bytes_bias, DType::bf16, {40}), Tensor(), Tensor()};
    const Weight weight = ops().make_weight(parts, biases);
    ASSERT_EQ(weight.out, 66);
    ASSERT_EQ(weight.in, in);

    std::vector<float> all = a, all_bias = rounded(DType::bf16, bias);
    for (const float v : rounded(DType::bf16, b)) all.push_back(v);
    for (const float v : rounded(DType::f16, c)) all.push_back(v);
    if (GetParam().compute == Compute::bf16) all = rounded(DType::bf16, all);
    all_bias.resize(66);
    const Shape s{rows, 66, in};
    const auto x = rounded(act(), random.values(rows * in));
    const Matrix h(ops(), act(), rows, in, x), out(ops(), DType::f32, rows, 66);
    ops().linear(out.view(), h.view(), weight);
    const Exact exact = products(s, x, all, all_bias);
    std::vector<double> bound;
    for (const double m : exact.magnitude) bound.push_back(accumulation(s) * m + 0x1p-24 * m);
    expect_within(out.values(), exact.value, bound);

    const auto start = random.values(rows * 66);
    const Matrix sum(ops(), DType::f32, rows, 66, start, 2);
    ops().linear_add(sum.view(), h.view(), weight);
    std::vector<double> want = exact.value;
    for (std::size_t i = 0; i < want.size(); ++i) {
        want[i] += start[i];
        bound[i] += 0x1p-23 * (std::abs(want[i]) + exact.magnitude[i]);
    }
    expect_within(sum.values(), want, bound);
    EXPECT_TRUE(sum.padding_untouched());
}

TEST_P(Parts, StackWithTheirBiases) {
    check(3, 24);
    check(20, 32);
    check(1, 7);
}

TEST_P(EveryBackend, SwigluHalvesTheOutputs) {
    // 64 and 96: whole panels each half; 40 and 7: the up projection begins inside a panel; big values
    // saturate.
    for (const int half : {64, 96, 40, 7, 1})
        for (const int rows : {1, 2, 9, 14, 30})
            for (const float scale : {1.0f, 30.0f}) {
                Random random(std::uint64_t(half * rows));
                const Shape s{rows, 2 * half, rows >= 14 ? 64 : 50};
                const auto x = rounded(act(), random.values(rows * s.in));
                const auto w = rounded(DType::bf16, random.values(s.out * s.in, scale));
                const Weight weight = make_weight(ops(), DType::bf16, s.out, s.in, w);
                const Matrix h(ops(), act(), rows, s.in, x), out(ops(), act(), rows, half, 1);
                ops().linear_swiglu(out.view(), h.view(), weight);
                const Exact exact = products(s, x, w, {});
                std::vector<double> want, bound;
                for (int t = 0; t < rows; ++t)
                    for (int o = 0; o < half; ++o) {
                        const std::size_t gi = std::size_t(t * s.out + o), ui = gi + std::size_t(half);
                        const double g = exact.value[gi], u = exact.value[ui], silu = g / (1 + std::exp(-g));
                        const double g_error = accumulation(s) * exact.magnitude[gi];
                        const double u_error = accumulation(s) * exact.magnitude[ui];
                        want.push_back(silu * u);
                        // |silu'| <= 1.1; exp within 4 ulp; roundings of the quotient and the product.
                        bound.push_back(1.1 * g_error * (std::abs(u) + u_error) + std::abs(silu) * u_error +
                                        (8 * 0x1p-24 + eps(act())) * std::abs(silu * u) + 1e-37);
                    }
                SCOPED_TRACE(testing::Message() << rows << " rows, half " << half << ", scale " << scale);
                expect_within(out.values(), want, bound);
                EXPECT_TRUE(out.padding_untouched());
            }
}

TEST_P(EveryBackend, RowsAreTheSameAloneAndInABatch) {
    if (!GetParam().exact_rows) GTEST_SKIP() << "bounded, not bit-equal, on this backend";
    // Numbers of rows that threads and blocks cut in different places; 210 is rows of its own for each of
    // three threads. One panel of outputs, and several.
    const int in = 200;
    for (const DType stored : {DType::f32, DType::bf16})
        for (const int out : {40, 128})
            for (const int rows : {13, 14, 16, 26, 28, 40, 45, 210}) {
                Random random(11);
                const Weight w = make_weight(ops(), stored, out, in, random.values(out * in));
                const Matrix h(ops(), act(), rows, in, random.values(rows * in)),
                    whole(ops(), DType::f32, rows, out), single(ops(), DType::f32, rows, out);
                const Matrix gated(ops(), act(), rows, out / 2), gated_single(ops(), act(), rows, out / 2);
                ops().linear(whole.view(), h.view(), w);
                ops().linear_swiglu(gated.view(), h.view(), w);
                for (int t = 0; t < rows; ++t) {
                    ops().linear(single.view().rows(t, 1), h.view().rows(t, 1), w);
                    ops().linear_swiglu(gated_single.view().rows(t, 1), h.view().rows(t, 1), w);
                }
                EXPECT_TRUE(bit_equal(whole.values(), single.values())) << rows << " rows to " << out;
                EXPECT_TRUE(bit_equal(gated.values(), gated_single.values())) << rows << " rows to " << out;
            }
}

INSTANTIATE_TEST_SUITE_P(Linear, EveryBackend, testing::ValuesIn(every_backend()), case_name);
INSTANTIATE_TEST_SUITE_P(Linear, Parts, testing::ValuesIn(every_backend()), case_name);

}  // namespace
}  // namespace llmgen::test
