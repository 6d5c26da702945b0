#include "engine/sampling.h"

#include <cmath>
#include <random>

#include "base/error.h"

namespace llmgen {
namespace {

std::uint64_t random_seed() {
    std::random_device device;
    return (std::uint64_t(device()) << 32) | device();
}

void check(const SamplingParams& p, int vocab_size) {
    if (!(p.temperature >= 0) || !std::isfinite(p.temperature))
        fail_usage("temperature {}: must be finite and at least 0", p.temperature);
    if (!(p.top_p >= 0 && p.top_p <= 1)) fail_usage("top_p {}: must lie between 0 and 1", p.top_p);
    if (!(p.min_p >= 0 && p.min_p <= 1)) fail_usage("min_p {}: must lie between 0 and 1", p.min_p);
    if (p.top_k < -1) fail_usage("top_k {}: must be at least -1 (0 and -1 are off)", p.top_k);
    constexpr double kMost = Sampling::kLargestPenalty;
    if (!(p.repetition_penalty >= 1 / kMost && p.repetition_penalty <= kMost))
        fail_usage("repetition_penalty {}: must lie between {:g} and {:g}", p.repetition_penalty, 1 / kMost,
                   kMost);
    if (!(std::abs(p.presence_penalty) <= kMost))
        fail_usage("presence_penalty {}: must lie between {:g} and {:g}", p.presence_penalty, -kMost, kMost);
    if (!(std::abs(p.frequency_penalty) <= kMost))
        fail_usage("frequency_penalty {}: must lie between {:g} and {:g}", p.frequency_penalty, -kMost,
                   kMost);
    for (const auto& [id, bias] : p.logit_bias) {
        if (id < 0 || id >= vocab_size)
            fail_usage("logit_bias: id {} is outside the vocabulary of {}", id, vocab_size);
        if (!(std::abs(bias) <= kMost))
            fail_usage("logit_bias of id {}: {} must lie between {:g} and {:g}", id, bias, -kMost, kMost);
    }
}

}  // namespace

Sampling defaults_of(const GenerationDefaults& file) {
    Sampling s;
    if (file.do_sample.value_or(false)) {
        s.temperature = file.temperature.value_or(1.0);
        s.top_k = file.top_k;
        s.top_p = file.top_p;
        s.min_p = file.min_p;
    }
    s.repetition_penalty = file.repetition_penalty;
    return s;
}

SamplingParams resolve(const Sampling& request, const Sampling& defaults, int vocab_size) {
    const bool asks_to_sample = request.temperature || request.top_k || request.top_p || request.min_p;
    const double neutral_temperature = asks_to_sample ? 1.0 : 0.0;
    SamplingParams p;
    p.temperature = request.temperature.value_or(defaults.temperature.value_or(neutral_temperature));
    p.top_k = request.top_k.value_or(defaults.top_k.value_or(0));
    p.top_p = request.top_p.value_or(defaults.top_p.value_or(1.0));
    p.min_p = request.min_p.value_or(defaults.min_p.value_or(0.0));
    p.repetition_penalty = request.repetition_penalty.value_or(defaults.repetition_penalty.value_or(1.0));
    p.presence_penalty = request.presence_penalty.value_or(defaults.presence_penalty.value_or(0.0));
    p.frequency_penalty = request.frequency_penalty.value_or(defaults.frequency_penalty.value_or(0.0));
    p.logit_bias = request.logit_bias;
    check(p, vocab_size);
    if (p.top_k < 0) p.top_k = 0;
    p.seed = request.seed ? *request.seed : random_seed();
    return p;
}

Sampling as_used(const SamplingParams& p) {
    Sampling s;
    s.temperature = p.temperature;
    s.top_k = p.top_k;
    s.top_p = p.top_p;
    s.min_p = p.min_p;
    s.repetition_penalty = p.repetition_penalty;
    s.presence_penalty = p.presence_penalty;
    s.frequency_penalty = p.frequency_penalty;
    s.seed = p.seed;
    s.logit_bias = p.logit_bias;
    return s;
}

}  // namespace llmgen
