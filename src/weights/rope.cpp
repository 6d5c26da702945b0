#include "weights/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace llmgen {
namespace {

/// base^(2d / n_rotary). The exponent is rounded to f32 first, as there; the power is exact before its own
/// rounding.
std::vector<float> powers(double base, int n_rotary) {
    std::vector<float> powers(std::size_t(n_rotary / 2));
    for (std::size_t d = 0; d < powers.size(); ++d) {
        const float exponent = float(2 * d) / float(n_rotary);
        powers[d] = float(std::pow(double(float(base)), double(exponent)));
    }
    return powers;
}

std::vector<float> inverse_of(std::vector<float> powers) {
    for (float& value : powers) value = 1.0f / value;
    return powers;
}

// The base grows with the length, so that the lowest frequency covers it.
double dynamic_base(const ModelConfig& config, int n_positions) {
    const double n = config.n_rotary();
    const double limit = config.max_position_embeddings;
    const double length = std::max(double(n_positions), limit);
    const double factor = config.rope.factor;
    if (n <= 2) return config.rope.theta;
    return config.rope.theta * std::pow(factor * length / limit - (factor - 1), n / (n - 2));
}

void scale_llama3(std::vector<float>& inverse, const RopeConfig& rope) {
    const auto factor = float(rope.factor), low = float(rope.low_freq_factor),
               high = float(rope.high_freq_factor);
    const auto original = float(rope.original_max_position);
    const float long_wave = original / low, short_wave = original / high;
    for (float& value : inverse) {
        const float wave = float(2 * std::numbers::pi) / value;
        if (wave > long_wave) {
            value /= factor;
        } else if (wave >= short_wave) {
            const float kept = (original / wave - low) / (high - low);
            value = (1 - kept) * value / factor + kept * value;
        }
    }
}

/// The channel pair that turns `n_turns` times within the original length.
double yarn_pair(double n_turns, const ModelConfig& config) {
    const RopeConfig& rope = config.rope;
    return config.n_rotary() * std::log(rope.original_max_position / (n_turns * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
}

void scale_yarn(std::vector<float>& inverse, const std::vector<float>& power, const ModelConfig& config) {
    const RopeConfig& rope = config.rope;
    double low = yarn_pair(rope.beta_fast, config), high = yarn_pair(rope.beta_slow, config);
    if (rope.truncate) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, double(config.n_rotary() - 1));
    if (low == high) high += 0.001;
    for (std::size_t d = 0; d < inverse.size(); ++d) {
        const float ramp = std::clamp((float(d) - float(low)) / float(high - low), 0.0f, 1.0f);
        const float kept = 1 - ramp;
        const float interpolated = 1.0f / (float(rope.factor) * power[d]);
        inverse[d] = interpolated * (1 - kept) + inverse[d] * kept;
    }
}

double yarn_attention(const RopeConfig& rope) {
    if (rope.attention_factor) return *rope.attention_factor;
    const auto scale = [&](double m) { return rope.factor <= 1 ? 1.0 : 0.1 * m * std::log(rope.factor) + 1; };
    const double m = rope.mscale.value_or(0), m_all = rope.mscale_all_dim.value_or(0);
    return m != 0 && m_all != 0 ? scale(m) / scale(m_all) : scale(1);
}

double longrope_attention(const RopeConfig& rope) {
    if (rope.attention_factor) return *rope.attention_factor;
    if (rope.factor <= 1) return 1;
    return std::sqrt(1 + std::log(rope.factor) / std::log(double(rope.original_max_position)));
}

}  // namespace

RopeFrequencies rope_frequencies(const ModelConfig& config, int n_positions) {
    const RopeConfig& rope = config.rope;
    const double base = rope.type == RopeType::dynamic ? dynamic_base(config, n_positions) : rope.theta;
    const std::vector<float> power = powers(base, config.n_rotary());
    RopeFrequencies frequencies{inverse_of(power), 1};
    std::vector<float>& inverse = frequencies.inverse;
    switch (rope.type) {
        case RopeType::standard:
        case RopeType::dynamic:
            break;
        case RopeType::linear:
            for (float& value : inverse) value /= float(rope.factor);
            break;
        case RopeType::llama3:
            scale_llama3(inverse, rope);
            break;
        case RopeType::yarn:
            scale_yarn(inverse, power, config);
            frequencies.attention_factor = float(yarn_attention(rope));
            break;
        case RopeType::longrope: {
            const auto& factors =
                n_positions > rope.original_max_position ? rope.long_factor : rope.short_factor;
            CHECK(factors.size() == inverse.size());
            for (std::size_t d = 0; d < inverse.size(); ++d)
                inverse[d] = 1.0f / (float(factors[d]) * power[d]);
            frequencies.attention_factor = float(longrope_attention(rope));
            break;
        }
    }
    return frequencies;
}

}  // namespace llmgen
