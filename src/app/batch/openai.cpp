#include "app/batch/openai.h"

#include <algorithm>
#include <ctime>

#include "app/batch/fields.h"
#include "app/cli/io.h"
#include "base/error.h"
#include "base/utf8.h"

namespace llmgen::app {
namespace {

void refuse_unsupported(const JsonObject& body) {
    for (const char* key : {"n", "best_of"})
        if (const Json* n = body.find(key); n && *n != 1) fail("{}: \"{}\" must be 1", body.where(), key);
    if (const Json* format = body.find("response_format"); format && *format != Json{{"type", "text"}})
        fail("{}: \"response_format\" other than text isn't supported", body.where());
    if (const Json* choice = body.find("tool_choice"); choice && *choice != "auto" && *choice != "none")
        fail("{}: \"tool_choice\" can be \"auto\" or \"none\": no call can be enforced", body.where());
    for (const char* key : {"functions", "function_call", "audio", "suffix"})
        if (const Json* value = body.find(key); value && *value != "")
            fail("{}: \"{}\" isn't supported", body.where(), key);
    if (body.boolean("echo", false)) fail("{}: \"echo\" isn't supported", body.where());
}

// How many of the tokens are text: the one that ended it isn't.
std::size_t n_of_text(const Result& result) {
    const std::size_t n = result.logprobs.size();
    return result.finish_reason == FinishReason::eos ? std::max<std::size_t>(n, 1) - 1 : n;
}

std::string text_of(const Tokenizer& tokenizer, int id) {
    const int one[] = {id};
    return tokenizer.decode(one, false);
}

Json chat_logprob(const TokenLogprob& token, const Tokenizer& tokenizer) {
    const std::string text = text_of(tokenizer, token.id);
    Json bytes = nullptr;  // a token of half a character: its own bytes aren't known here
    if (text.find("\xEF\xBF\xBD") == std::string::npos) {
        bytes = Json::array();
        for (const unsigned char byte : text) bytes.push_back(byte);
    }
    return {{"token", text}, {"logprob", token.logprob}, {"bytes", std::move(bytes)}};
}

Json chat_logprobs(const Result& result, const Tokenizer& tokenizer) {
    Json content = Json::array();
    for (std::size_t i = 0; i < n_of_text(result); ++i) {
        Json one = chat_logprob(result.logprobs[i], tokenizer);
        one["top_logprobs"] = Json::array();
        for (const TokenLogprob& best : result.top_logprobs[i])
            one["top_logprobs"].push_back(chat_logprob(best, tokenizer));
        content.push_back(std::move(one));
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
}

std::size_t n_characters(std::string_view text) {
    return std::size_t(std::ranges::count_if(text, [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

Json completion_logprobs(const Result& result, const Tokenizer& tokenizer) {
    Json tokens = Json::array(), logprobs = Json::array(), top = Json::array(), offsets = Json::array();
    Detokenizer detokenizer(tokenizer, true);
    std::size_t offset = 0;
    for (std::size_t i = 0; i < n_of_text(result); ++i) {
        const TokenLogprob& token = result.logprobs[i];
        tokens.push_back(text_of(tokenizer, token.id));
        logprobs.push_back(token.logprob);
        offsets.push_back(offset);
        offset += n_characters(detokenizer.push(token.id));
        Json row = Json::object();
        for (const TokenLogprob& best : result.top_logprobs[i])
            row[text_of(tokenizer, best.id)] = best.logprob;
        top.push_back(std::move(row));
    }
    return {{"tokens", std::move(tokens)},
            {"token_logprobs", std::move(logprobs)},
            {"top_logprobs", std::move(top)},
            {"text_offset", std::move(offsets)}};
}

}  // namespace

std::string openai_id(const BatchItem& item) { return fmt::format("batch_req_{}", item.line); }

void read_openai(const JsonObject& line, BatchItem& item) {
    const std::string url = line.string("url", "/v1/chat/completions");
    if (url != "/v1/chat/completions" && url != "/v1/completions")
        fail("{}: url \"{}\" isn't served; /v1/chat/completions and /v1/completions are", line.where(),
             printable(url.substr(0, 100)));
    item.chat_endpoint = url == "/v1/chat/completions";
    if (!line.find("body")) fail("{}: no \"body\"", line.where());
    const JsonObject body(line.raw("body"), line.where() + ", body");
    Request& request = item.request;
    refuse_misspelt(body, {"model", "max_tokens", "max_completion_tokens", "top_logprobs", "tool_choice",
                           "response_format", "stream", "stream_options"});
    refuse_unsupported(body);
    read_common(body, request);
    for (const char* key : {"max_tokens", "max_completion_tokens"})
        if (const auto n = integer_field(body, key, 0)) request.max_new_tokens = n;
    item.model = body.string("model");
    if (!item.chat_endpoint) {
        if (const auto n = integer_field(body, "logprobs", 0, 1 << 20)) request.logprobs = *n;
        if (!body.find("prompt")) fail("{}: no \"prompt\"", body.where());
        if (body.find("prompt")->is_array())
            request.prompt = ids_from_json(*body.find("prompt"), body.where() + ": prompt");
        else
            request.prompt = RawText{body.string("prompt")};
        return;
    }
    const auto n_top = integer_field(body, "top_logprobs", 0, 1 << 20);
    if (body.boolean("logprobs", false))
        request.logprobs = n_top.value_or(0);
    else if (n_top)
        fail("{}: \"top_logprobs\" needs \"logprobs\": true", body.where());
    Chat chat = read_chat(body);
    if (body.find("tool_choice") && *body.find("tool_choice") == "none") chat.input.tools_json.reset();
    request.prompt = std::move(chat);
}

Json openai_body(const BatchItem& item,
                 const Result& result,
                 const EngineInfo& info,
                 const Tokenizer& tokenizer) {
    const bool stopped =
        result.finish_reason == FinishReason::eos || result.finish_reason == FinishReason::stop_string;
    Json choice{{"index", 0}};
    if (item.chat_endpoint)
        choice["message"] = {{"role", "assistant"}, {"content", result.text}};
    else
        choice["text"] = result.text;
    if (result.logprobs.empty())
        choice["logprobs"] = nullptr;
    else
        choice["logprobs"] =
            item.chat_endpoint ? chat_logprobs(result, tokenizer) : completion_logprobs(result, tokenizer);
    choice["finish_reason"] = stopped ? "stop" : "length";
    const std::size_t n_prompt = result.prompt_ids.size(), n_out = result.token_ids.size();
    return Json{{"id", (item.chat_endpoint ? "chatcmpl-" : "cmpl-") + std::to_string(item.line)},
                {"object", item.chat_endpoint ? "chat.completion" : "text_completion"},
                {"created", std::int64_t(std::time(nullptr))},
                {"model", item.model.empty() ? info.model_path : item.model},
                {"choices", Json::array({std::move(choice)})},
                {"usage",
                 {{"prompt_tokens", n_prompt},
                  {"completion_tokens", n_out},
                  {"total_tokens", n_prompt + n_out},
                  {"prompt_tokens_details", {{"cached_tokens", result.cached_tokens}}}}}};
}

}  // namespace llmgen::app
