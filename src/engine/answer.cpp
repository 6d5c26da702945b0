#include "engine/answer.h"

#include <algorithm>

#include "base/error.h"
#include "engine/sampling.h"

namespace llmgen {
namespace {

constexpr int kRunnersUp = 4;  // shown by --explain

TokenLogprob logprob_of(int id, std::span<const float> logits, double total) {
    const double logit = logits[std::size_t(id)];
    return {id, logit, logit - total};
}

}  // namespace

Answer::Answer(Terms given,
               std::vector<int> prompt_ids,
               const Tokenizer* tokenizer,
               std::shared_ptr<Stream::State> stream)
    : terms(std::move(given)),
      sampler_(terms.sampling),
      stops_(terms.stop_strings),
      stream_(std::move(stream)) {
    if (tokenizer) detokenizer_.emplace(*tokenizer, terms.skip_special);
    sequence.tokens = std::move(prompt_ids);
    sequence.n_prompt = int(sequence.tokens.size());
    sequence.owner = this;
    sequence.all_logits = terms.prompt_logprobs;
    result.prompt_ids = sequence.tokens;
    result.sampling = as_used(terms.sampling);
    result.max_new_tokens = terms.max_new_tokens;
    result.context_limit = terms.context_limit;
    if (terms.prompt_logprobs) {
        result.prompt_logprobs.resize(sequence.tokens.size());
        result.prompt_top_logprobs.resize(sequence.tokens.size());
    }
    const int most = terms.context_limit - sequence.n_prompt;
    const std::size_t n = std::size_t(std::max(0, std::min(most, terms.max_new_tokens.value_or(most))));
    sequence.tokens.reserve(sequence.tokens.size() + std::min<std::size_t>(n, 4096));
}

void Answer::begin_step(int n_computed, Clock::time_point now) {
    if (!started_) {
        started_ = true;
        result.timing.queued_s = since_arrival(now);
    }
    if (step_.computed_tokens == 0) step_begin_ = now;
    step_.computed_tokens += n_computed;  // chunks of a prompt are one step of the answer
}

void Answer::take_prompt_logits(int position, std::span<const float> logits) {
    if (position + 1 < sequence.n_prompt) {
        auto& slot = result.prompt_logprobs[std::size_t(position) + 1];
        if (slot) return;  // computed again after a preemption
        slot = logprob_of(sequence.tokens[std::size_t(position) + 1], logits, log_sum_exp(logits));
    }
    if (terms.logprobs > 0)
        result.prompt_top_logprobs[std::size_t(position)] = top_logprobs(logits, terms.logprobs);
}

bool Answer::wants_token(Clock::time_point now) {
    if (terms.max_new_tokens == 0)
        finish(FinishReason::max_new_tokens, now);
    else if (int(sequence.tokens.size()) >= terms.context_limit)
        finish(FinishReason::context_full, now);
    return !ended_;
}

void Answer::take_logits(std::span<float> logits, int largest, Clock::time_point now) {
    if (wants_token(now)) sample(logits, largest, now);
}

std::optional<TokenChoice> Answer::choice() {
    if (terms.logprobs >= 0 || terms.explain || terms.prompt_logprobs) return {};
    return sampler_.choice(sequence.tokens, sequence.n_prompt);
}

std::optional<TokenChoice> Answer::choice_ahead() {
    const int n_new = int(result.token_ids.size()) + 1;
    if (sampler_.params().penalizes() || (terms.max_new_tokens && n_new >= *terms.max_new_tokens) ||
        int(sequence.tokens.size()) + 1 >= terms.context_limit)
        return {};
    std::optional<TokenChoice> next = choice();
    if (next) ++next->step;
    return next;
}

void Answer::take_choice(int id, Clock::time_point now) {
    if (!wants_token(now)) return;
    if (id < 0) return fail_of_logits("non-finite logits", now);
    take_token(id, now);
    step_ = {};
    stop_or_go_on(id, now);
}

void Answer::sample(std::span<float> logits, int largest, Clock::time_point now) {
    const bool records = terms.logprobs >= 0 || terms.explain;
    if (records) raw_.assign(logits.begin(), logits.end());
    Sampler::Pick pick;
    try {
        pick = sampler_.pick(logits, sequence.tokens, sequence.n_prompt, largest);
    } catch (const Error& error) {
        return fail_of_logits(error.what(), now);
    }
    take_token(pick.id, now);
    if (records) record_choice(raw_, pick, now);
    step_ = {};
    stop_or_go_on(pick.id, now);
}

void Answer::take_token(int id, Clock::time_point now) {
    result.token_ids.push_back(id);
    sequence.tokens.push_back(id);
    chunk_.token_ids.push_back(id);
    result.timing.token_times_s.push_back(since_arrival(now));
}

void Answer::fail_of_logits(const char* what, Clock::time_point now) {
    fail(fmt::format("{} at step {}: the weights or the compute type are at fault", what,
                     result.token_ids.size()),
         now);
}

void Answer::stop_or_go_on(int id, Clock::time_point now) {
    if (std::ranges::find(terms.stop_ids, id) != terms.stop_ids.end()) {
        result.stop_token_id = id;
        return finish(FinishReason::eos, now);
    }
    if (detokenizer_) {
        chunk_.text = stops_.push(detokenizer_->push(id));
        result.text += chunk_.text;
    }
    if (stops_.found())
        finish(FinishReason::stop_string, now);
    else if (terms.max_new_tokens && int(result.token_ids.size()) >= *terms.max_new_tokens)
        finish(FinishReason::max_new_tokens, now);
    else if (int(sequence.tokens.size()) >= terms.context_limit)
        finish(FinishReason::context_full, now);
    else
        stream_->push(std::exchange(chunk_, {}));
}

void Answer::record_choice(std::span<const float> raw, const Sampler::Pick& pick, Clock::time_point now) {
    const int n_top = std::max(terms.logprobs, terms.explain ? kRunnersUp + 1 : 0);
    std::vector<TokenLogprob> top = top_logprobs(raw, std::max(n_top, 1));
    const double total = top.front().logit - top.front().logprob;
    const TokenLogprob chosen = logprob_of(pick.id, raw, total);
    if (terms.explain) {
        step_.index = int(result.token_ids.size()) - 1;
        step_.cached_tokens = int(sequence.tokens.size()) - 1 - step_.computed_tokens;
        step_.chosen = chosen;
        step_.probability = pick.probability;
        for (const TokenLogprob& t : top)
            if (t.id != pick.id && int(step_.runners_up.size()) < kRunnersUp) step_.runners_up.push_back(t);
        step_.milliseconds = std::chrono::duration<double, std::milli>(now - step_begin_).count();
        result.steps.push_back(step_);
    }
    if (terms.logprobs < 0) return;
    top.resize(std::min(top.size(), std::size_t(terms.logprobs)));
    chunk_.logprobs.push_back(chosen);
    result.logprobs.push_back(chosen);
    result.top_logprobs.push_back(std::move(top));
}

void Answer::finish(FinishReason reason, Clock::time_point now) {
    CHECK(!ended_);
    ended_ = true;
    if (detokenizer_) {
        // Half a character at the end becomes U+FFFD; then what was held back was no stop string.
        std::string tail = stops_.push(detokenizer_->flush());
        tail += stops_.flush();
        chunk_.text += tail;
        result.text += tail;
    }
    if (stops_.found()) {
        result.stop_string = *stops_.found();
        if (reason == FinishReason::max_new_tokens || reason == FinishReason::context_full)
            reason = FinishReason::stop_string;  // the tail completed it
    }
    result.finish_reason = reason;
    result.complete = reason == FinishReason::eos || reason == FinishReason::stop_string;
    result.cached_tokens = std::max(sequence.n_cached, 0);

    Timing& timing = result.timing;
    timing.completion_s = since_arrival(now);
    if (!started_) timing.queued_s = timing.completion_s;
    if (timing.token_times_s.empty()) return;
    timing.ttft_s = timing.token_times_s.front();
    const double span = timing.token_times_s.back() - timing.ttft_s;
    const double steps = double(timing.token_times_s.size()) - 1;
    if (steps > 0) timing.tpot_s = span / steps;
    if (span > 0) timing.tokens_per_s = steps / span;
}

void Answer::fail(const std::string& message, Clock::time_point now) {
    result.error = message;
    finish(FinishReason::error, now);
}

void Answer::deliver() {
    if (!chunk_.text.empty() || !chunk_.token_ids.empty()) stream_->push(std::exchange(chunk_, {}));
    stream_->finish(std::move(result));
}

}  // namespace llmgen
