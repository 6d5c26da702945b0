// A result as the record of --json, --trace and batch: one JSON object on one line.
//
// Every string may hold what a model or a user wrote; bytes that are no UTF-8 become U+FFFD, never an
// exception.
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "llmgen/llmgen.h"

namespace llmgen {
namespace {

using Json = nlohmann::ordered_json;

Json tokens_of(const std::vector<int>& ids, const Tokenizer& tokenizer) {
    Json tokens = Json::array();
    for (const int id : ids) tokens.push_back(tokenizer.token(id));
    return tokens;
}

Json to_json(const TokenLogprob& t, const Tokenizer& tokenizer) {
    return {{"id", t.id}, {"token", tokenizer.token(t.id)}, {"logit", t.logit}, {"logprob", t.logprob}};
}

Json to_json(const std::vector<TokenLogprob>& list, const Tokenizer& tokenizer) {
    Json all = Json::array();
    for (const TokenLogprob& t : list) all.push_back(to_json(t, tokenizer));
    return all;
}

Json to_json(const Sampling& s) {
    Json json = Json::object();
    const auto add = [&](const char* name, const auto& value) {
        if (value) json[name] = *value;
    };
    add("temperature", s.temperature);
    add("top_k", s.top_k);
    add("top_p", s.top_p);
    add("min_p", s.min_p);
    add("repetition_penalty", s.repetition_penalty);
    add("presence_penalty", s.presence_penalty);
    add("frequency_penalty", s.frequency_penalty);
    add("seed", s.seed);
    if (!s.logit_bias.empty()) {
        Json bias = Json::object();
        for (const auto& [id, value] : s.logit_bias) bias[std::to_string(id)] = value;
        json["logit_bias"] = bias;
    }
    return json;
}

Json detail_of(const Result& result) {
    switch (result.finish_reason) {
        case FinishReason::eos:
            return {{"token_id", result.stop_token_id.value_or(-1)}};
        case FinishReason::stop_string:
            return {{"stop", result.stop_string}};
        case FinishReason::max_new_tokens:
            return {{"limit", result.max_new_tokens.value_or(0)}};
        case FinishReason::context_full:
            return {{"limit", result.context_limit}};
        case FinishReason::error:
            return {{"message", result.error}};
        case FinishReason::cancelled:
            break;
    }
    return Json::object();
}

Json to_json(const Step& step, const Tokenizer& tokenizer) {
    return {{"index", step.index},
            {"computed_tokens", step.computed_tokens},
            {"cached_tokens", step.cached_tokens},
            {"chosen", to_json(step.chosen, tokenizer)},
            {"probability", step.probability},
            {"runners_up", to_json(step.runners_up, tokenizer)},
            {"milliseconds", step.milliseconds}};
}

void add_logprobs(Json& record, const Result& result, const Tokenizer& tokenizer) {
    if (!result.logprobs.empty()) {
        Json all = Json::array();
        for (std::size_t i = 0; i < result.logprobs.size(); ++i) {
            Json one = to_json(result.logprobs[i], tokenizer);
            one["top"] = to_json(result.top_logprobs[i], tokenizer);
            all.push_back(std::move(one));
        }
        record["output"]["logprobs"] = std::move(all);
    }
    if (!result.prompt_logprobs.empty()) {
        Json all = Json::array();
        for (const auto& t : result.prompt_logprobs)
            all.push_back(t ? to_json(*t, tokenizer) : Json(nullptr));
        record["prompt"]["logprobs"] = std::move(all);
    }
}

/// Null for what there was nothing to measure of: an answer of one token has no pace.
Json to_json(const Timing& timing) {
    const std::size_t n = timing.token_times_s.size();
    const auto measured = [](bool there, double value) { return there ? Json(value) : Json(nullptr); };
    return {{"queued_s", timing.queued_s},
            {"ttft_s", measured(n > 0, timing.ttft_s)},
            {"completion_s", timing.completion_s},
            {"tpot_s", measured(n > 1, timing.tpot_s)},
            {"tokens_per_s", measured(timing.tokens_per_s > 0, timing.tokens_per_s)}};
}

constexpr const char* kCacheRule =
    "full pages of 16 tokens whose ids, position, checkpoint, compute type and salt are equal";

}  // namespace

const char* name_of(FinishReason reason) {
    switch (reason) {
        case FinishReason::eos:
            return "eos";
        case FinishReason::stop_string:
            return "stop_string";
        case FinishReason::max_new_tokens:
            return "max_new_tokens";
        case FinishReason::context_full:
            return "context_full";
        case FinishReason::cancelled:
            return "cancelled";
        case FinishReason::error:
            return "error";
    }
    return "error";
}

std::string to_json(const Result& result, const EngineInfo& info, const Tokenizer& tokenizer) {
    Json record = {{"id", result.id},
                   {"model",
                    {{"path", info.model_path},
                     {"checkpoint_sha256", info.checkpoint_sha256},
                     {"dtype", info.dtype},
                     {"architecture", info.architecture}}},
                   {"tokenizer_sha256", info.tokenizer_sha256},
                   {"prompt",
                    {{"formatted", result.formatted_prompt},
                     {"token_ids", result.prompt_ids},
                     {"tokens", tokens_of(result.prompt_ids, tokenizer)}}},
                   {"sampling", to_json(result.sampling)},
                   {"limit",
                    {{"max_new_tokens", result.max_new_tokens ? Json(*result.max_new_tokens) : Json(nullptr)},
                     {"context", result.context_limit}}},
                   {"output",
                    {{"text", result.text},
                     {"token_ids", result.token_ids},
                     {"tokens", tokens_of(result.token_ids, tokenizer)}}},
                   {"cache", {{"cached_tokens", result.cached_tokens}, {"rule", kCacheRule}}},
                   {"timing", to_json(result.timing)},
                   {"device", info.device},
                   {"compute", info.compute},
                   {"finish_reason", name_of(result.finish_reason)},
                   {"finish_detail", detail_of(result)},
                   {"complete", result.complete}};
    add_logprobs(record, result, tokenizer);
    if (!result.steps.empty()) {
        Json steps = Json::array();
        for (const Step& step : result.steps) steps.push_back(to_json(step, tokenizer));
        record["steps"] = std::move(steps);
    }
    return one_line_json(record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

Chat Chat::user(const std::string& content, const std::string& system) {
    Json messages = Json::array();
    if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
    messages.push_back({{"role", "user"}, {"content", content}});
    Chat chat;
    chat.input.messages_json = messages.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return chat;
}

}  // namespace llmgen
