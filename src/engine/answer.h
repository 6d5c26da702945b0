// A request under way: what the scheduler counts (Sequence), how tokens are chosen and when they stop, and
// the record that grows with it. Touched by the worker alone, until finish() hands the record over.
//
// After each sampled token, in this order: an end-of-sequence id ends the answer; else its text may complete
// a stop string; else max_new_tokens, then the context, may be used up.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/stop.h"
#include "engine/stream.h"

namespace llmgen {

using Clock = std::chrono::steady_clock;

struct Answer {
    /// What of a request is known once it was checked.
    struct Terms {
        SamplingParams sampling;
        std::optional<int> max_new_tokens;
        int context_limit = 0;
        std::vector<int> stop_ids;  // the checkpoint's and the request's
        std::vector<std::string> stop_strings;
        int logprobs = -1;
        bool prompt_logprobs = false;
        bool explain = false;
        bool skip_special = true;
    };

    /// `tokenizer` null: the answer has ids only.
    Answer(Terms terms,
           std::vector<int> prompt_ids,
           const Tokenizer* tokenizer,
           std::shared_ptr<Stream::State>);

    Sequence sequence;
    Terms terms;
    Result result;
    Clock::time_point arrival;

    /// A step begins that computes `n_computed` of its tokens.
    void begin_step(int n_computed, Clock::time_point now);
    /// The logits after prompt token `position`.
    void take_prompt_logits(int position, std::span<const float> logits);
    /// The logits after the last token: samples, where a token is wanted at all. `largest`: where the largest
    /// stands first, or -1 where nobody knows yet.
    void take_logits(std::span<float> logits, int largest, Clock::time_point now);

    /// How its next token is to be chosen, where that needs no logits here.
    std::optional<TokenChoice> choice();
    /// The same of the token after the next, while the next is still unknown; nothing where it depends on
    /// that one, or where that one will be the last in any case.
    std::optional<TokenChoice> choice_ahead();
    /// The token that the backend chose by that; -1: the logits aren't finite.
    void take_choice(int id, Clock::time_point now);

    /// Ends the answer. The record is complete then, but the consumer learns of it by deliver(), so that the
    /// pages are free before it does.
    void finish(FinishReason reason, Clock::time_point now);
    void fail(const std::string& message, Clock::time_point now);
    bool ended() const { return ended_; }
    bool cancelled() const { return stream_->cancelled(); }
    /// Once it has ended: the last chunk and the result go out.
    void deliver();

private:
    bool wants_token(Clock::time_point now);  // else it ends here
    void sample(std::span<float> logits, int largest, Clock::time_point now);
    void take_token(int id, Clock::time_point now);
    void fail_of_logits(const char* what, Clock::time_point now);
    void stop_or_go_on(int id, Clock::time_point now);
    void record_choice(std::span<const float> raw, const Sampler::Pick& pick, Clock::time_point now);
    double since_arrival(Clock::time_point now) const {
        return std::chrono::duration<double>(now - arrival).count();
    }

    Sampler sampler_;
    std::optional<Detokenizer> detokenizer_;
    StopStrings stops_;
    std::shared_ptr<Stream::State> stream_;
    Chunk chunk_;
    Step step_;
    bool started_ = false;
    bool ended_ = false;
    Clock::time_point step_begin_;
    std::vector<float> raw_;
};

}  // namespace llmgen
