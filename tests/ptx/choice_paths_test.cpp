// Choosing a token, where nvcc unrolled a loop over the row: whatever decides the choice lies once in each
// place that an instruction of its own treats. The witness compares with the source; a probability is a share
// of the whole mass, so an element that is left out, counted twice or weighed wrongly shows in it even where
// it isn't the one that is drawn.
#include <cmath>
#include <limits>

#include "choice.cuh"
#include "kernels.h"
#include "simt/testing.h"

namespace llmgen::simt {
namespace {

using kernels::Best;

constexpr int kThreads = 512;

/// Places a block of threads and a bit apart, so that the parts which warps take of a row are met elsewhere
/// each time; then the last of the row.
std::vector<int> places(int vocab) {
    std::vector<int> result;
    for (int at = 5; at < vocab; at += kThreads + 37) result.push_back(at);
    result.push_back(vocab - 1);
    return result;
}

void run_argmax(const std::vector<float>& logits, int n_rows, int vocab) {
    DeviceArray<float> rows(logits);
    DeviceArray<Best> best(std::vector<Best>(std::size_t(n_rows), 0));
    DeviceArray<int> ids(n_rows);
    kernels::argmax(best, rows, vocab, n_rows, vocab, nullptr);
    kernels::take_best(ids, best, n_rows, nullptr);
}
void run_logprobs(const std::vector<float>& logits, int n_rows, int vocab, int n_top) {
    DeviceArray<float> rows(logits), chosen_logprobs(n_rows), top_logprobs(n_rows * n_top);
    DeviceArray<int> chosen(std::vector<int>(std::size_t(n_rows), vocab / 2)), top_ids(n_rows * n_top);
    kernels::logprobs({rows, vocab, chosen, chosen_logprobs, top_ids, top_logprobs, n_rows, vocab, n_top},
                      nullptr);
}

// Where the largest and the next two lie: each in its turn in each place.
TEST(ChoicePaths, TheLargestAnywhere) {
    const int vocab = kThreads * 9 + 7;
    const auto where = places(vocab);
    std::vector<float> logits;
    for (std::size_t i = 0; i < where.size(); ++i) {
        auto row = Values(40 + i).vector<float>(std::size_t(vocab), 4);
        // far enough apart for exp's polynomial to have its largest arguments, near enough to weigh
        for (std::size_t n = 0; n < 3; ++n)
            row[std::size_t(where[(i + n) % where.size()])] = 14 - 0.34f * float(n);
        logits.insert(logits.end(), row.begin(), row.end());
    }
    run_argmax(logits, int(where.size()), vocab);
    run_logprobs(logits, int(where.size()), vocab, 4);
}

// Zero, minus zero, the smallest and the least: all of a row the same but one; and the values beside exp's
// end.
TEST(ChoicePaths, LogitsAtTheEdges) {
    const int vocab = kThreads * 9 + 7;
    constexpr float kTiny = std::numeric_limits<float>::denorm_min(),
                    kMost = std::numeric_limits<float>::max();
    std::vector<float> logits;
    int n_rows = 0;
    for (const float rest : {0.0f, -0.0f, kTiny, -kTiny, -kMost, -1.0f, -75.0f, -75.00001f, -74.99999f}) {
        std::vector<float> row(std::size_t(vocab), rest);
        row[std::size_t(vocab - 700 + n_rows)] = 12.0f;
        logits.insert(logits.end(), row.begin(), row.end());
        ++n_rows;
    }
    run_argmax(logits, n_rows, vocab);
    run_logprobs(logits, n_rows, vocab, 3);
}

// Minus zero is zero: of two the lower id, wherever they lie.
TEST(ChoicePaths, MinusZeroIsZero) {
    const int vocab = kThreads * 9 + 7;
    const auto where = places(vocab - 1);
    std::vector<float> logits;
    for (const int at : where) {
        std::vector<float> row(std::size_t(vocab), -1.0f);
        row[std::size_t(at)] = -0.0f;
        row[std::size_t(at + 1)] = 0.0f;
        logits.insert(logits.end(), row.begin(), row.end());
    }
    run_argmax(logits, int(where.size()), vocab);
    run_logprobs(logits, int(where.size()), vocab, 3);
}

struct Settings {
    int top_k;
    double top_p, min_p;
};

/// A row for each place and draw: three candidates, of weights for which exp needs all of its polynomial, the
/// rest far below but not nothing.
void run_sample(const Settings& s, bool with_bias, int n_draws = 1, int vocab = kThreads * 8 + 77) {
    const auto where = places(vocab);
    const auto n_rows = int(where.size()) * n_draws;
    std::vector<float> logits;
    std::vector<kernels::SampleRow> rows;
    std::vector<int> ids;
    for (int i = 0; i < vocab; i += 3) ids.push_back(i);
    DeviceArray<int> bias_ids(ids);
    DeviceArray<float> biases(Values(3).vector<float>(ids.size(), 0.01f));
    for (std::size_t i = 0; i < where.size() * std::size_t(n_draws); ++i) {
        auto row = Values(60 + i).vector<float>(std::size_t(vocab), 1);
        for (std::size_t n = 0; n < 3; ++n)
            row[std::size_t(where[(i + n * 4) % where.size()])] = 9 - 0.36f * float(n);
        logits.insert(logits.end(), row.begin(), row.end());
        kernels::SampleRow how{};
        how.inverse_temperature = 0.9f;
        how.top_k = s.top_k;
        how.top_p = s.top_p;
        how.min_p = s.min_p;
        how.repetition = 1;
        how.seed = 17;
        how.step = i;
        how.row = int(i);
        if (with_bias) {
            how.bias_ids = bias_ids;
            how.biases = biases;
            how.n_bias = int(ids.size());
        }
        rows.push_back(how);
    }
    DeviceArray<float> device(logits);
    DeviceArray<kernels::SampleRow> device_rows(rows);
    DeviceArray<kernels::Sampled> out(n_rows);
    kernels::sample(out, device, vocab, device_rows, n_rows, vocab, nullptr);
}

TEST(ChoicePaths, CandidatesAnywhere) {
    run_sample({3, 1, 0}, false, 4);
    run_sample({0, 1, 0}, true);
    run_sample({0, 0.7, 0.2}, false, 4);
    run_sample({3, 0.95, 0.01}, false, 6);
}

// The last row ends where the array does, at a thread of each of the eight strides of a turn.
TEST(ChoicePaths, EndsOfRows) {
    for (int turns = 1; turns <= 8; ++turns) {
        run_sample({3, 0.95, 0.01}, false, 1, kThreads * turns + 16);
        run_sample({0, 0.7, 0.2}, true, 1, kThreads * turns + 16);
    }
}

/// Philox4x32-10 of (step, seed), as sample.cu has it: the first 53 bits in [0, 1).
double uniform(std::uint64_t seed, std::uint64_t step) {
    std::uint32_t c[4] = {std::uint32_t(step), std::uint32_t(step >> 32), 0, 0};
    std::uint32_t k[2] = {std::uint32_t(seed), std::uint32_t(seed >> 32)};
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t a = std::uint64_t(0xD2511F53u) * c[0], b = std::uint64_t(0xCD9E8D57u) * c[2];
        c[0] = std::uint32_t(b >> 32) ^ c[1] ^ k[0];
        c[1] = std::uint32_t(b);
        c[2] = std::uint32_t(a >> 32) ^ c[3] ^ k[1];
        c[3] = std::uint32_t(a);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    return double(((std::uint64_t(c[0]) << 32) | c[1]) >> 11) * 0x1p-53;
}

/// The largest logit, at most 0, whose mass is at most `mass`.
float logit_for(double mass) {
    float low = -86, high = 0;
    for (int i = 0; i < 60; ++i) {
        const float middle = low + (high - low) / 2;
        (double(kernels::mass_of(kernels::exp_of_negative(middle))) <= mass ? low : high) = middle;
    }
    return low;
}

// Two rows for each random number, with a border between two ids just below and just above it, 2^-36 of all
// away: so its last bits decide, which nothing else would show.
TEST(ChoicePaths, LastBitsOfTheRandomNumber) {
    const double unit = 0x1p45;  // the mass of the largest
    std::vector<float> logits;
    std::vector<kernels::SampleRow> rows;
    for (std::uint64_t step = 0; rows.size() < 32; ++step) {
        const std::uint64_t seed = step * 0x123456789abcdefull + 99;
        const double u = uniform(seed, step << 33 | step);
        if (u < 0.1 || u > 0.45) continue;  // so that neither of the two is the largest
        const double border = u / (1 - u) * unit;
        for (const double aside : {-0x1p9, 0x1p9}) {
            const float first = logit_for(border - 0x1p20);
            const double taken = double(kernels::mass_of(kernels::exp_of_negative(first)));
            logits.insert(logits.end(), {first, logit_for(border + aside - taken), 0.0f});
            kernels::SampleRow how{};
            how.inverse_temperature = how.repetition = 1;
            how.top_p = 1;
            how.seed = seed;
            how.step = step << 33 | step;
            how.row = int(rows.size());
            rows.push_back(how);
        }
    }
    const auto n = int(rows.size());
    DeviceArray<float> device(logits);
    DeviceArray<kernels::SampleRow> device_rows(rows);
    DeviceArray<kernels::Sampled> out(n);
    kernels::sample(out, device, 3, device_rows, n, 3, nullptr);
    for (int i = 0; i < n; ++i) EXPECT_EQ(out[std::size_t(i)].id, i % 2 == 0 ? 2 : 1) << i;
}

}  // namespace
}  // namespace llmgen::simt
