// From logits to the next token, on the host. Order, as in transformers:
//
//   logit bias → repetition penalty → presence and frequency penalty → temperature → top-k → top-p → min-p →
//   draw
//
//   bias        l += b
//   repetition  over prompt and answer, each id once:  l > 0 ? l / r : l · r
//   presence    over the answer:  l -= presence + frequency · count
//   top-k       keeps what is at least the k-th largest (ties stay)
//   top-p       from the most likely down, until the sum before a token reaches p; the first always stays
//   min-p       keeps p ≥ min_p · max p
//   temperature 0: the largest logit after bias and penalties, the lowest id on ties; the rest is ignored
//
// Nothing sorts the vocabulary: top-k selects, and top-p first drops what can't be in the nucleus (a token of
// weight ≤ (1 - p) · total / n: all that is no heavier weighs at most (1 - p) together).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "llmgen/llmgen.h"
#include "ops/ops.h"

namespace llmgen {

/// Sampling with every field decided.
struct SamplingParams {
    double temperature = 1;
    int top_k = 0;  // 0 = off
    double top_p = 1;
    double min_p = 0;
    double repetition_penalty = 1;
    double presence_penalty = 0;
    double frequency_penalty = 0;
    std::uint64_t seed = 0;
    std::vector<std::pair<int, double>> logit_bias;

    bool greedy() const { return temperature == 0; }
    bool penalizes() const {
        return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
    }
};

/// The largest first, the lowest id first where equal; logprob of the softmax of the raw logits.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int n);
/// Natural logarithm of the sum of exp(logits).
double log_sum_exp(std::span<const float> logits);

class Sampler {
public:
    explicit Sampler(SamplingParams params) : params_(std::move(params)) {}

    const SamplingParams& params() const { return params_; }

    struct Pick {
        int id = 0;
        double probability = 1;  // after all transforms; 1 where greedy
    };
    /// Chooses the token that follows `tokens` (the prompt's n_prompt, then the answer's). `logits` [vocab]
    /// is overwritten. Throws Error where they aren't finite. `largest`: where the largest stands first, by
    /// whoever has seen that all are sound; -1: not known.
    Pick pick(std::span<float> logits, std::span<const int> tokens, int n_prompt, int largest = -1);

    /// What pick() would do, for a backend that chooses tokens itself (Ops::choose); nothing where only
    /// pick() can. Points into the sampler; valid until its next call.
    std::optional<TokenChoice> choice(std::span<const int> tokens, int n_prompt);

    /// The tokens that can be drawn with their probabilities, most likely first. Overwrites `logits`.
    std::vector<std::pair<int, double>> distribution(std::span<float> logits,
                                                     std::span<const int> tokens,
                                                     int n_prompt);

private:
    struct Candidate {
        int id;
        float weight;  // exp((logit - max) / temperature)
    };
    void count(std::span<const int> tokens, int n_prompt);
    /// What presence and frequency take off a token that the answer has `count` times.
    float penalty(int count) const {
        return count > 0 ? float(params_.presence_penalty + params_.frequency_penalty * count) : 0.0f;
    }
    void penalize(std::span<float> logits, std::span<const int> tokens, int n_prompt);
    /// Fills weights_ [vocab], and candidates_ where a filter is on; the sum of what can be drawn.
    double transform(std::span<const float> logits, float largest);
    double keep_top_k(std::span<const float> logits);
    double keep_top_p(double total);
    double keep_min_p();
    float inverse_temperature() const { return float(1 / std::max(params_.temperature, 1e-30)); }
    bool filters() const { return params_.top_k > 0 || params_.top_p < 1 || params_.min_p > 0; }

    SamplingParams params_;
    std::size_t n_seen_ = 0;               // tokens already counted in the two below
    std::unordered_map<int, int> counts_;  // of answer ids; prompt ids with 0
    std::vector<float> weights_;
    std::vector<Candidate> candidates_;
    std::vector<float> scratch_;
    std::vector<std::pair<int, float>> biases_, penalties_;  // of choice()
};

}  // namespace llmgen
