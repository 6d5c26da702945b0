#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "engine/random.h"

namespace llmgen {
namespace {

// exp for x ≤ 0, relative error under 2^-22, plain enough for the compiler to make vectors of it:
// x = n ln 2 + r, |r| ≤ ln 2 / 2; 2^n from the exponent's bits, e^r from a polynomial. Below -87 it is 0.
inline float exp_of_negative(float x) {
    const float clamped = x < -87.0f ? -87.0f : x;
    const float n = float(int(clamped * 1.44269504f - 0.5f));
    const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
    float e = 1.9875691500e-4f;
    e = e * r + 1.3981999507e-3f;
    e = e * r + 8.3334519073e-3f;
    e = e * r + 4.1665795894e-2f;
    e = e * r + 1.6666665459e-1f;
    e = e * r + 5.0000001201e-1f;
    e = e * r * r + r + 1.0f;
    const float scale = std::bit_cast<float>((int(n) + 127) << 23);
    return x < -87.0f ? 0.0f : e * scale;
}

/// Eight sums side by side, so that the loop needs no order and rounding stays small.
double sum_of(std::span<const float> values) {
    double lanes[8] = {};
    std::size_t i = 0;
    for (; i + 8 <= values.size(); i += 8)
        for (std::size_t lane = 0; lane < 8; ++lane) lanes[lane] += double(values[i + lane]);
    for (; i < values.size(); ++i) lanes[0] += double(values[i]);
    return std::accumulate(std::begin(lanes), std::end(lanes), 0.0);
}

struct Largest {
    float value = -std::numeric_limits<float>::infinity();
    std::size_t at = 0;  // where it stands first
};

/// Throws where one is NaN or +infinity, or all are -infinity. Maxima side by side, which the compiler makes
/// vectors of; a second look only at the block that has the largest.
Largest find_largest(std::span<const float> logits) {
    constexpr std::size_t kLanes = 16, kBlock = 1024;
    constexpr float kMost = std::numeric_limits<float>::max();
    Largest found;
    std::size_t block = 0;
    int unsound[kLanes] = {};
    for (std::size_t begin = 0; begin < logits.size(); begin += kBlock) {
        const std::size_t end = std::min(begin + kBlock, logits.size());
        float most[kLanes];
        std::ranges::fill(most, -std::numeric_limits<float>::infinity());
        std::size_t i = begin;
        for (; i + kLanes <= end; i += kLanes)
            for (std::size_t lane = 0; lane < kLanes; ++lane) {
                const float l = logits[i + lane];
                unsound[lane] |= l <= kMost ? 0 : 1;  // NaN too
                most[lane] = l > most[lane] ? l : most[lane];
            }
        for (; i < end; ++i) {
            unsound[0] |= logits[i] <= kMost ? 0 : 1;
            most[0] = std::max(most[0], logits[i]);
        }
        if (const float largest = std::ranges::max(most); largest > found.value) {
            found.value = largest;
            block = begin;
        }
    }
    if (std::ranges::find(unsound, 1) != std::end(unsound) || !std::isfinite(found.value))
        fail("non-finite logits");
    found.at = block;
    while (logits[found.at] != found.value) ++found.at;
    return found;
}

float largest_of(std::span<const float> logits) { return find_largest(logits).value; }

}  // namespace

double log_sum_exp(std::span<const float> logits) {
    const float largest = largest_of(logits);
    double sum = 0;
    for (const float l : logits) sum += double(exp_of_negative(l - largest));
    return double(largest) + std::log(sum);
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int n) {
    const double total = log_sum_exp(logits);
    std::vector<int> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    const auto better = [&](int a, int b) {
        const float la = logits[std::size_t(a)], lb = logits[std::size_t(b)];
        return la != lb ? la > lb : a < b;
    };
    const auto end = ids.begin() + std::min<std::ptrdiff_t>(n, std::ssize(ids));
    std::partial_sort(ids.begin(), end, ids.end(), better);
    std::vector<TokenLogprob> top;
    for (auto id = ids.begin(); id != end; ++id) {
        const double logit = logits[std::size_t(*id)];
        top.push_back({*id, logit, logit - total});
    }
    return top;
}

void Sampler::count(std::span<const int> tokens, int n_prompt) {
    for (; n_seen_ < tokens.size(); ++n_seen_) counts_[tokens[n_seen_]] += int(n_seen_) >= n_prompt ? 1 : 0;
}

void Sampler::penalize(std::span<float> logits, std::span<const int> tokens, int n_prompt) {
    for (const auto& [id, bias] : params_.logit_bias) logits[std::size_t(id)] += float(bias);
    if (!params_.penalizes()) return;
    count(tokens, n_prompt);
    const float repetition = float(params_.repetition_penalty);
    for (const auto& [id, count] : counts_) {
        float& l = logits[std::size_t(id)];
        l = l > 0 ? l / repetition : l * repetition;
        l -= penalty(count);
    }
}

std::optional<TokenChoice> Sampler::choice(std::span<const int> tokens, int n_prompt) {
    biases_.clear();
    for (const auto& [id, bias] : params_.logit_bias) biases_.emplace_back(id, float(bias));
    std::ranges::sort(biases_);
    const auto same_id = [](const auto& a, const auto& b) { return a.first == b.first; };
    if (std::ranges::adjacent_find(biases_, same_id) != biases_.end()) return {};  // sums depend on the order
    penalties_.clear();
    if (params_.penalizes()) {
        count(tokens, n_prompt);
        for (const auto& [id, count] : counts_) penalties_.emplace_back(id, penalty(count));
    }
    TokenChoice choice;
    if (!params_.greedy()) choice.inverse_temperature = inverse_temperature();
    choice.top_k = params_.top_k;
    choice.top_p = params_.top_p;
    choice.min_p = params_.min_p;
    choice.seed = params_.seed;
    choice.step = tokens.size() - std::size_t(n_prompt);
    choice.biases = biases_;
    choice.penalties = penalties_;
    choice.repetition = float(params_.repetition_penalty);
    return choice;
}

Sampler::Pick Sampler::pick(std::span<float> logits, std::span<const int> tokens, int n_prompt, int known) {
    Largest largest;  // before penalties: a fault of the model, not of the settings
    if (known >= 0)
        largest = {logits[std::size_t(known)], std::size_t(known)};
    else
        largest = find_largest(logits);
    if (params_.penalizes() || !params_.logit_bias.empty()) {
        penalize(logits, tokens, n_prompt);
        largest = find_largest(logits);
    }
    if (params_.greedy()) return {int(largest.at), 1.0};

    const double sum = transform(logits, largest.value);
    double left = sum * uniform(params_.seed, tokens.size() - std::size_t(n_prompt));
    int id = -1;
    float weight = 0;
    const auto draw = [&](int candidate,
                          float w) {  // the last of weight > 0 where rounding runs past the end
        if (w <= 0) return false;
        id = candidate;
        weight = w;
        left -= double(w);
        return left < 0;
    };
    if (filters()) {
        for (const Candidate& c : candidates_)
            if (draw(c.id, c.weight)) break;
    } else {
        for (std::size_t i = 0; i < weights_.size(); ++i)
            if (draw(int(i), weights_[i])) break;
    }
    return {id, double(weight) / sum};
}

std::vector<std::pair<int, double>> Sampler::distribution(std::span<float> logits,
                                                          std::span<const int> tokens,
                                                          int n_prompt) {
    penalize(logits, tokens, n_prompt);
    std::vector<std::pair<int, double>> kept;
    if (params_.greedy()) return {{int(find_largest(logits).at), 1.0}};
    const double sum = transform(logits, largest_of(logits));
    if (filters()) {
        for (const Candidate& c : candidates_) kept.emplace_back(c.id, double(c.weight) / sum);
    } else {
        for (std::size_t i = 0; i < weights_.size(); ++i)
            if (weights_[i] > 0) kept.emplace_back(int(i), double(weights_[i]) / sum);
    }
    std::ranges::stable_sort(kept, [](const auto& a, const auto& b) { return a.second > b.second; });
    return kept;
}

double Sampler::transform(std::span<const float> logits, float largest) {
    const float inverse = inverse_temperature();
    weights_.resize(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i)
        weights_[i] = exp_of_negative(logits[i] == largest ? 0.0f : (logits[i] - largest) * inverse);
    if (!filters()) return sum_of(weights_);

    candidates_.clear();
    double total = 0;
    if (params_.top_k > 0 && params_.top_k < int(logits.size()))
        total = keep_top_k(logits);
    else
        total = sum_of(weights_);
    if (params_.top_p < 1 || candidates_.empty()) total = keep_top_p(total);
    if (params_.min_p > 0) total = keep_min_p();
    return total;
}

double Sampler::keep_top_k(std::span<const float> logits) {
    scratch_.assign(logits.begin(), logits.end());
    const auto kth = scratch_.begin() + (params_.top_k - 1);
    std::nth_element(scratch_.begin(), kth, scratch_.end(), std::greater<>());
    double total = 0;
    for (std::size_t i = 0; i < logits.size(); ++i)
        if (logits[i] >= *kth) {
            candidates_.push_back({int(i), weights_[i]});
            total += double(weights_[i]);
        }
    return total;
}

double Sampler::keep_top_p(double total) {
    // Without a top-k before it, the candidates are still to be chosen.
    if (candidates_.empty()) {
        const double least =
            params_.top_p < 1 ? (1 - params_.top_p) * total / double(weights_.size()) : params_.min_p;
        const float bound =
            float(least * 0.999999);  // a little lower: rounding must not lose one that counts
        for (std::size_t i = 0; i < weights_.size(); ++i)
            if (weights_[i] > bound) candidates_.push_back({int(i), weights_[i]});
    }
    if (params_.top_p >= 1) return total;
    std::ranges::sort(candidates_, [](const Candidate& a, const Candidate& b) {
        return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
    });
    double before = 0;
    std::size_t n = 0;
    while (n < candidates_.size() && (n == 0 || before < params_.top_p * total))
        before += double(candidates_[n++].weight);
    candidates_.resize(n);
    return before;
}

double Sampler::keep_min_p() {
    float heaviest = 0;
    for (const Candidate& c : candidates_) heaviest = std::max(heaviest, c.weight);
    const double least = params_.min_p * double(heaviest);
    std::erase_if(candidates_, [&](const Candidate& c) { return double(c.weight) < least; });
    double total = 0;
    for (const Candidate& c : candidates_) total += double(c.weight);
    return total;
}

}  // namespace llmgen
