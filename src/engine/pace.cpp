#include "engine/pace.h"

#include <algorithm>

namespace llmgen {
namespace {

// A moving average that one step which the machine held up can't throw off.
void follow(double& average, double value) {
    constexpr double kWeight = 0.25, kMost = 2;
    average = average == 0 ? value : average + kWeight * (std::min(value, kMost * average) - average);
}

}  // namespace

void Pace::add(int n_decoding, int n_prompt_tokens, double seconds) {
    if (seconds <= 0) return;
    if (n_prompt_tokens == 0) {
        if (n_decoding > 0) follow(plain_s_, seconds);
    } else if (n_decoding == 0) {
        if (token_s_ == 0) token_s_ = seconds / n_prompt_tokens;  // better than nothing
    } else if (plain_s_ > 0) {
        follow(token_s_, std::max(seconds - plain_s_, 0.05 * plain_s_) / n_prompt_tokens);
    }
}

int Pace::chunk() const {
    const int smallest = std::min(kSmallest, largest_);
    if (max_slowdown_ == 0) return largest_;
    if (plain_s_ == 0 || token_s_ == 0) return std::max(smallest, largest_ / 16);
    const double fits = (max_slowdown_ - 1) * plain_s_ / token_s_;
    if (fits >= largest_) return largest_;
    return std::max(smallest, int(fits) / kSmallest * kSmallest);
}

}  // namespace llmgen
