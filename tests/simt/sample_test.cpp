// The device's choice of tokens against the same rules in plain loops, sorted for real, in double.
//
// The engine's own Sampler belongs to another room; what is compared here is the contract of kernels.h, over
// logits with ties, infinities, flat and peaked shapes. A draw that falls closer to a border than the stated
// error is the only allowed difference; none of these does.
#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/random.h"
#include "engine/sampler.h"
#include "kernels.h"
#include "ops/cuda/sample_row.h"
#include "simt/testing.h"

namespace llmgen::simt {
namespace {

using kernels::Best;
using kernels::Dependent;
using kernels::Sampled;
using kernels::SampleRow;

constexpr float kInf = std::numeric_limits<float>::infinity();

SampleRow plain() {
    SampleRow row{};
    row.inverse_temperature = 1;
    row.top_p = 1;
    row.repetition = 1;
    return row;
}

/// A list of (id, value) on the device.
struct Lists {
    explicit Lists(std::span<const std::pair<int, float>> pairs) : ids(pairs.size()), values(pairs.size()) {
        for (std::size_t i = 0; i < pairs.size(); ++i) {
            ids[i] = pairs[i].first;
            values[i] = pairs[i].second;
        }
    }
    mutable DeviceArray<int> ids;
    mutable DeviceArray<float> values;
};

SampleRow row_of(const TokenChoice& c, const Lists& penalties, const Lists& biases) {
    SampleRow row = cuda::sample_row(c);
    row.penalty_ids = penalties.ids;
    row.penalties = penalties.values;
    row.n_penalties = int(penalties.ids.size());
    row.bias_ids = biases.ids;
    row.biases = biases.values;
    row.n_bias = int(biases.ids.size());
    return row;
}

struct Choice {
    int id;
    double probability;
};

/// Temperature, top-k, top-p, min-p and the draw, by sorting.
Choice choose(const std::vector<float>& logits, const SampleRow& row) {
    const auto n = logits.size();
    const float largest = *std::max_element(logits.begin(), logits.end());
    std::vector<int> order(n);
    std::iota(order.begin(), order.end(), 0);
    if (row.inverse_temperature == 0)
        return {int(std::find(logits.begin(), logits.end(), largest) - logits.begin()), 1};
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return logits[std::size_t(a)] > logits[std::size_t(b)]; });
    std::vector<double> weight(n);
    for (std::size_t i = 0; i < n; ++i)
        weight[i] =
            logits[i] == largest ? 1 : std::exp(double((logits[i] - largest) * row.inverse_temperature));
    std::vector<int> kept = order;
    if (row.top_k > 0 && row.top_k < int(n)) {
        const float kth = logits[std::size_t(order[std::size_t(row.top_k - 1)])];
        std::erase_if(kept, [&](int i) { return logits[std::size_t(i)] < kth; });
    }
    auto total = [&] {
        double sum = 0;
        for (const int i : kept) sum += weight[std::size_t(i)];
        return sum;
    };
    if (row.top_p < 1) {
        const double border = row.top_p * total();
        double before = 0;
        std::size_t count = 0;
        while (count < kept.size() && (count == 0 || before < border))
            before += weight[std::size_t(kept[count++])];
        kept.resize(count);
    } else {
        std::sort(kept.begin(), kept.end());
    }
    if (row.min_p > 0) std::erase_if(kept, [&](int i) { return weight[std::size_t(i)] < row.min_p; });
    const double sum = total();
    double left = sum * uniform(row.seed, row.step);
    for (const int i : kept)
        if ((left -= weight[std::size_t(i)]) < 0) return {i, weight[std::size_t(i)] / sum};
    return {-2, 0};
}

Sampled sample_one(const std::vector<float>& logits,
                   const SampleRow& row,
                   std::vector<float>* adjusted = nullptr) {
    DeviceArray<float> device(logits);
    DeviceArray<SampleRow> rows(std::vector<SampleRow>{row});
    DeviceArray<Sampled> out(1);
    const int vocab = int(logits.size());
    kernels::sample(out, device, vocab, rows, 1, vocab, nullptr);
    if (adjusted != nullptr) *adjusted = device.host();
    return out[0];
}

void check_choice(const std::vector<float>& logits, const SampleRow& row) {
    const Sampled got = sample_one(logits, row);
    const Choice want = choose(logits, row);
    ASSERT_EQ(got.id, want.id) << "top_k " << row.top_k << " top_p " << row.top_p << " min_p " << row.min_p
                               << " step " << row.step;
    ASSERT_NEAR(got.probability, want.probability, 1e-5);
}

std::vector<std::vector<float>> shapes() {
    std::vector<std::vector<float>> all;
    all.push_back(Values(1).vector<float>(1000, 3));
    all.push_back(Values(2).vector<float>(517, 12));  // peaked
    all.push_back(std::vector<float>(333, 0.5f));     // flat: all ties
    all.push_back({1, 2, 2, 2, 0, 2, -kInf, -kInf});  // ties at the top, excluded ids
    all.push_back({-1e30f, 5, -1e30f});
    all.push_back({0});
    auto coarse = Values(3).vector<float>(700, 2);
    for (float& x : coarse) x = std::round(x * 4) / 4;  // ties at every border
    all.push_back(coarse);
    return all;
}

TEST(Sample, ChoosesAsTheSortedListDoes) {
    in_every_order([] {
        for (const auto& logits : shapes())
            for (const auto& [top_k, top_p, min_p] :
                 std::vector<std::tuple<int, double, double>>{{0, 1, 0},
                                                              {5, 1, 0},
                                                              {0, 0.9, 0},
                                                              {0, 1, 0.1},
                                                              {40, 0.8, 0.02},
                                                              {0, 0, 0},
                                                              {1, 1, 0},
                                                              {0, 0.5, 0.3}}) {
                SampleRow row = plain();
                row.top_k = top_k;
                row.top_p = top_p;
                row.min_p = min_p;
                row.seed = 42;
                row.step = std::uint64_t(top_k * 10) + logits.size();
                check_choice(logits, row);
            }
    });
}

TEST(Sample, ManySteps) {
    const auto logits = shapes()[0], ties = shapes().back();
    for (std::uint64_t step = 0; step < 60; ++step) {
        SampleRow row = plain();
        row.seed = 0x123456789abcdefull;
        row.step = step;
        row.inverse_temperature = step % 3 == 0 ? 2.0f : 0.7f;
        check_choice(logits, row);
        row.top_p = 0.95;
        check_choice(ties, row);
        row.top_k = 20;
        check_choice(ties, row);
    }
}

// The engine's Sampler, penalties included, over a growing answer: the same ids step by step.
TEST(Sample, ChoosesAsTheEngineDoes) {
    const int vocab = 1200;
    std::vector<SamplingParams> settings(6);
    settings[0].top_k = 50;
    settings[1].top_p = 0.9;
    settings[2].min_p = 0.05;
    settings[3].temperature = 0;
    settings[4].temperature = 0.6;
    settings[4].top_k = 20;
    settings[4].top_p = 0.95;
    settings[4].min_p = 0.01;
    for (SamplingParams& params : settings) {
        params.seed = 77;
        params.repetition_penalty = 1.1;
        params.presence_penalty = 0.3;
        params.frequency_penalty = 0.2;
        params.logit_bias = {{7, 1.5}, {900, -2.0}};
        Sampler sampler(params);
        std::vector<int> tokens = {1, 5, 5, 900};
        for (int step = 0; step < 25; ++step) {
            auto logits = Values(std::uint64_t(step % 3)).vector<float>(std::size_t(vocab), 4);
            const std::optional<TokenChoice> choice = sampler.choice(tokens, 4);
            ASSERT_TRUE(choice);
            ASSERT_EQ(choice->step, std::uint64_t(step));
            const Lists penalties(choice->penalties), biases(choice->biases);
            const Sampled got = sample_one(logits, row_of(*choice, penalties, biases));
            const Sampler::Pick want = sampler.pick(logits, tokens, 4);
            ASSERT_EQ(got.id, want.id) << "step " << step;
            ASSERT_NEAR(got.probability, want.probability, 1e-6);
            tokens.push_back(want.id);
        }
    }
}

// Wide enough for several rounds of narrowing, and odd.
TEST(Sample, LargeVocabularies) {
    const auto logits = Values(8).vector<float>(20011, 3);
    for (const auto& [top_k, top_p, min_p] :
         std::vector<std::tuple<int, double, double>>{{0, 1, 0}, {2000, 0.97, 0.001}}) {
        SampleRow row = plain();
        row.top_k = top_k;
        row.top_p = top_p;
        row.min_p = min_p;
        row.seed = 5;
        for (std::uint64_t step = 0; step < 3; ++step) {
            row.step = step;
            check_choice(logits, row);
        }
    }
}

TEST(Sample, GreedyTakesTheLowestIdOfTheLargest) {
    in_every_order([] {
        SampleRow row = plain();
        row.inverse_temperature = 0;
        EXPECT_EQ(sample_one({-0.0f, 0.0f, -1}, row).id, 0);
        EXPECT_EQ(sample_one({1, 3, 3, 2}, row).id, 1);
        EXPECT_EQ(sample_one({-5, -3, -7}, row).id, 1);
        for (const auto& logits : shapes()) check_choice(logits, row);
    });
}

TEST(Sample, SaysWhenLogitsAreNotFinite) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const auto& logits :
         std::vector<std::vector<float>>{{1, nan, 2}, {1, kInf}, {-kInf, -kInf}, {nan}, {1, -nan}})
        EXPECT_EQ(sample_one(logits, plain()).id, -1);
}

TEST(Sample, BiasAndPenaltiesInOrder) {
    in_every_order([] {
        const std::vector<float> logits = {2, -2, 4, 1, 3, 0};
        // ids 0 and 1 in the prompt, 2 twice and 4 once in the answer: presence 0.5, frequency 0.25
        DeviceArray<int> seen(std::vector<int>{4, 2, 0, 1}), bias_ids(std::vector<int>{1, 5});
        DeviceArray<float> penalties(std::vector<float>{0.75f, 1, 0, 0}), biases(std::vector<float>{-1, 10});
        SampleRow row = plain();
        row.inverse_temperature = 0;
        row.repetition = 2;
        row.penalty_ids = seen;
        row.penalties = penalties;
        row.n_penalties = 4;
        row.bias_ids = bias_ids;
        row.biases = biases;
        row.n_bias = 2;
        std::vector<float> adjusted;
        const Sampled got = sample_one(logits, row, &adjusted);
        EXPECT_EQ(adjusted, (std::vector<float>{1, -6, 2 - 1.0f, 1, 1.5f - 0.75f, 10}));
        EXPECT_EQ(got.id, 5);
    });
}

TEST(Sample, RowsKeepApart) {
    const int vocab = 300;
    DeviceArray<float> logits(Values(9).vector<float>(std::size_t(3 * vocab), 3));
    const auto host = logits.host();
    std::vector<SampleRow> rows;
    for (int t = 0; t < 3; ++t) {
        rows.push_back(plain());
        rows.back().row = 2 - t;  // not in the order of the logits
        rows.back().seed = std::uint64_t(t);
        rows.back().top_p = 0.9;
    }
    DeviceArray<SampleRow> device_rows(rows);
    DeviceArray<Sampled> out(3);
    kernels::sample(out, logits, vocab, device_rows, 3, vocab, nullptr);
    for (int t = 0; t < 3; ++t) {
        const std::vector<float> own(host.begin() + (2 - t) * vocab, host.begin() + (3 - t) * vocab);
        EXPECT_EQ(out[std::size_t(t)].id, choose(own, rows[std::size_t(t)]).id);
    }
}

TEST(Argmax, FindsTheBestOfEachRow) {
    in_every_order([] {
        for (const int vocab : {1, 3, 513, 5000}) {
            auto host = Values(4).vector<float>(std::size_t(3 * vocab));
            host[std::size_t(2 * vocab)] = std::numeric_limits<float>::quiet_NaN();
            DeviceArray<float> logits(host);
            DeviceArray<Best> best(std::vector<Best>(3, 0));
            DeviceArray<int> ids(3);
            kernels::argmax(best, logits, vocab, 3, vocab, nullptr);
            kernels::take_best(ids, best, 3, nullptr);
            for (int t = 0; t < 2; ++t) {
                const auto row = host.begin() + t * vocab;
                EXPECT_EQ(ids[std::size_t(t)], int(std::max_element(row, row + vocab) - row));
            }
            EXPECT_EQ(ids[2], -1);
            EXPECT_EQ(best.host(), std::vector<Best>(3, 0));
        }
    });
}

TEST(Argmax, RidesOnTheOutputProjection) {
    in_every_order([] {
        const int vocab = 77, in = 64;
        const auto w = Values(5).vector<bf16>(std::size_t(vocab * in)), x = Values(6).vector<bf16>(2 * in);
        DeviceArray<bf16> dw(w), dx(x);
        DeviceArray<float> logits(2 * vocab);
        DeviceArray<Best> best(std::vector<Best>(2, 0));
        DeviceArray<int> ids(2);
        for (const bool with_logits : {true, false}) {
            kernels::Gemv p{};
            p.weight = dw.get();
            p.weight_type = p.act_type = DType::bf16;
            p.x = dx.get();
            p.x_stride = p.in = in;
            p.n_tokens = 2;
            p.out = vocab;
            p.y = with_logits ? logits.get() : nullptr;
            p.y_type = DType::f32;
            p.y_stride = vocab;
            p.best = best;
            kernels::gemv_argmax(p, Dependent::no, nullptr);
            kernels::take_best(ids, best, 2, nullptr);
            for (int t = 0; t < 2; ++t) {
                const float* row = &logits[std::size_t(t * vocab)];
                EXPECT_EQ(ids[std::size_t(t)], int(std::max_element(row, row + vocab) - row));
            }
        }
    });
}

TEST(LogProbs, OfTheChosenAndTheTop) {
    in_every_order([] {
        const int vocab = 600, n_top = 4;
        auto host = Values(7).vector<float>(std::size_t(2 * vocab), 4);
        host[10] = host[20] = 30;  // a tie at the top
        DeviceArray<float> logits(host), chosen_logprobs(2), top_logprobs(2 * n_top);
        DeviceArray<int> chosen(std::vector<int>{3, 599}), top_ids(2 * n_top);
        kernels::logprobs({logits, vocab, chosen, chosen_logprobs, top_ids, top_logprobs, 2, vocab, n_top},
                          nullptr);
        for (int t = 0; t < 2; ++t) {
            const std::vector<float> row(host.begin() + t * vocab, host.begin() + (t + 1) * vocab);
            double sum = 0;
            for (const float l : row) sum += std::exp(double(l));
            const double total = std::log(sum);
            EXPECT_NEAR(chosen_logprobs[std::size_t(t)], row[std::size_t(chosen[std::size_t(t)])] - total,
                        2e-6);
            std::vector<int> order(row.size());
            std::iota(order.begin(), order.end(), 0);
            std::stable_sort(order.begin(), order.end(),
                             [&](int a, int b) { return row[std::size_t(a)] > row[std::size_t(b)]; });
            for (int n = 0; n < n_top; ++n) {
                EXPECT_EQ(top_ids[std::size_t(t * n_top + n)], order[std::size_t(n)]);
                EXPECT_NEAR(top_logprobs[std::size_t(t * n_top + n)],
                            row[std::size_t(order[std::size_t(n)])] - total, 2e-6);
            }
        }
    });
}

}  // namespace
}  // namespace llmgen::simt
