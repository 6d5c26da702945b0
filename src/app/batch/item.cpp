#include "app/batch/item.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <ctime>

#include "app/cli/io.h"
#include "app/cli/numbers.h"
#include "base/error.h"

namespace llmgen::app {
namespace {

// A number of a field, checked like the flag of the same name.
std::optional<int> integer(const JsonObject& o,
                           const std::string& key,
                           std::int64_t low,
                           std::int64_t high = INT_MAX) {
    const Json* value = o.find(key);
    if (!value) return std::nullopt;
    if (!value->is_number_integer())
        fail("{}: \"{}\" must be a whole number, it is {}", o.where(), key,
             printable(dump(*value).substr(0, 60)));
    return int(parse_integer(o.where() + ": " + key, dump(*value), low, high));
}

std::optional<double> real(const JsonObject& o, const std::string& key, const RealRange& range) {
    const Json* value = o.find(key);
    if (!value) return std::nullopt;
    if (!value->is_number())
        fail("{}: \"{}\" must be a number, it is {}", o.where(), key, printable(dump(*value).substr(0, 60)));
    return parse_real(o.where() + ": " + key, dump(*value), range);
}

void read_sampling(const JsonObject& o, Sampling& s) {
    const auto set = [](auto& field, auto value) {
        if (value) field = value;
    };
    set(s.temperature, real(o, "temperature", {.low = 0}));
    set(s.top_k, integer(o, "top_k", -1));
    set(s.top_p, real(o, "top_p", {.low = 0, .high = 1}));
    set(s.min_p, real(o, "min_p", {.low = 0, .high = 1}));
    set(s.repetition_penalty, real(o, "repetition_penalty", {.low = 0, .open_low = true}));
    set(s.presence_penalty, real(o, "presence_penalty", {}));
    set(s.frequency_penalty, real(o, "frequency_penalty", {}));
    if (o.boolean("greedy", false)) s.temperature = 0;
    if (const Json* seed = o.find("seed")) {
        if (!seed->is_number_integer()) fail("{}: \"seed\" must be a whole number", o.where());
        s.seed = parse_unsigned(o.where() + ": seed", dump(*seed));
    }
    if (const Json* bias = o.find("logit_bias")) {
        if (!bias->is_object()) fail("{}: \"logit_bias\" must be an object {{\"ID\": BIAS}}", o.where());
        s.logit_bias.clear();
        for (const auto& [id, value] : bias->items()) {
            if (!value.is_number()) fail("{}: \"logit_bias\" must hold numbers", o.where());
            s.logit_bias.emplace_back(int(parse_integer(o.where() + ": logit_bias", id, 0, INT_MAX)),
                                      value.get<double>());
        }
    }
}

void read_stop(const JsonObject& o, Request& request) {
    if (const Json* stop = o.find("stop")) {
        request.stop.clear();
        const auto add = [&](const Json& text) {
            if (!text.is_string()) fail("{}: \"stop\" must be a string or an array of strings", o.where());
            if (text.get_ref<const std::string&>().empty())
                fail("{}: \"stop\" holds an empty string, which would stop at once", o.where());
            request.stop.push_back(text.get<std::string>());
        };
        if (stop->is_array())
            for (const Json& text : *stop) add(text);
        else
            add(*stop);
    }
    if (const Json* ids = o.find("stop_token_ids"))
        request.stop_token_ids = ids_from_json(*ids, o.where() + ": stop_token_ids");
    request.ignore_eos = o.boolean("ignore_eos", request.ignore_eos);
}

// Fields that both forms share.
void read_common(const JsonObject& o, Request& request) {
    read_sampling(o, request.sampling);
    read_stop(o, request);
    if (const auto priority = integer(o, "priority", INT_MIN)) request.priority = *priority;
    request.cache_salt = o.string("cache_salt", request.cache_salt);
}

Chat read_chat(const JsonObject& o) {
    Chat chat;
    check_messages(*o.find("messages"), o.where());
    chat.input.messages_json = o.raw("messages");
    if (o.find("tools")) chat.input.tools_json = o.raw("tools");
    if (o.find("documents")) chat.input.documents_json = o.raw("documents");
    if (o.find("chat_template_kwargs")) {
        const JsonObject variables(o.raw("chat_template_kwargs"), o.where() + ": chat_template_kwargs");
        for (const auto& [name, value] : variables.members()) chat.input.variables[name] = value;
    }
    return chat;
}

// A misspelt field would be ignored in silence; a field of the user's own is none of our business.
void refuse_misspelt(const JsonObject& o, const std::vector<std::string>& known) {
    for (const auto& [key, value] : o.members()) {
        if (key.size() > 40 || std::find(known.begin(), known.end(), key) != known.end()) continue;
        for (const std::string& word : known)
            if (word.size() > 4 && edit_distance(word, key) <= (word.size() < 7 ? 1u : 2u))
                fail("{}: unknown field \"{}\"; is \"{}\" meant?", o.where(), printable(key), word);
    }
}

void read_ours(const JsonObject& o, const BatchDefaults& defaults, BatchItem& item) {
    Request& request = item.request;
    refuse_misspelt(o, {"prompt",
                        "messages",
                        "token_ids",
                        "system",
                        "raw",
                        "temperature",
                        "top_k",
                        "top_p",
                        "min_p",
                        "repetition_penalty",
                        "presence_penalty",
                        "frequency_penalty",
                        "greedy",
                        "seed",
                        "logit_bias",
                        "stop",
                        "stop_token_ids",
                        "ignore_eos",
                        "priority",
                        "cache_salt",
                        "max_new_tokens",
                        "logprobs",
                        "tools",
                        "documents",
                        "chat_template_kwargs"});
    read_common(o, request);
    if (const auto n = integer(o, "max_new_tokens", 0)) request.max_new_tokens = n;
    if (const auto n = integer(o, "logprobs", 0, 1 << 20)) request.logprobs = *n;
    const int sources =
        (o.find("prompt") ? 1 : 0) + (o.find("messages") ? 1 : 0) + (o.find("token_ids") ? 1 : 0);
    if (sources != 1)
        fail("{}: give one of \"prompt\", \"messages\", \"token_ids\"; there are {}", o.where(), sources);
    if (o.find("token_ids")) {
        request.prompt = ids_from_json(*o.find("token_ids"), o.where() + ": token_ids");
    } else if (o.find("messages")) {
        request.prompt = read_chat(o);
    } else {
        std::string prompt = o.string("prompt");
        if (o.boolean("raw", defaults.raw)) {
            request.prompt = RawText{std::move(prompt)};
            return;
        }
        if (prompt.empty()) fail("{}: empty prompt", o.where());
        Chat chat = Chat::user(prompt, o.string("system", defaults.system));
        if (o.find("tools")) chat.input.tools_json = o.raw("tools");
        request.prompt = std::move(chat);
    }
}

void read_openai(const JsonObject& line, BatchItem& item) {
    const std::string url = line.string("url", "/v1/chat/completions");
    if (url != "/v1/chat/completions" && url != "/v1/completions")
        fail("{}: url \"{}\" isn't served; /v1/chat/completions and /v1/completions are", line.where(),
             printable(url.substr(0, 100)));
    item.chat_endpoint = url == "/v1/chat/completions";
    if (!line.find("body")) fail("{}: no \"body\"", line.where());
    const JsonObject body(line.raw("body"), line.where() + ", body");
    Request& request = item.request;
    read_common(body, request);
    if (const auto n = integer(body, "n", 1); n.value_or(1) != 1) fail("{}: \"n\" must be 1", body.where());
    for (const char* key : {"max_tokens", "max_completion_tokens"})
        if (const auto n = integer(body, key, 0)) request.max_new_tokens = n;
    item.model = body.string("model");
    if (!item.chat_endpoint) {
        if (const auto n = integer(body, "logprobs", 0, 1 << 20)) request.logprobs = *n;
        if (!body.find("prompt")) fail("{}: no \"prompt\"", body.where());
        if (body.find("prompt")->is_array())
            request.prompt = ids_from_json(*body.find("prompt"), body.where() + ": prompt");
        else
            request.prompt = RawText{body.string("prompt")};
        return;
    }
    if (body.boolean("logprobs", false))
        request.logprobs = integer(body, "top_logprobs", 0, 1 << 20).value_or(0);
    if (!body.find("messages")) fail("{}: no \"messages\"", body.where());
    request.prompt = read_chat(body);
}

std::string batch_id(const BatchItem& item) { return fmt::format("batch_req_{}", item.line); }

Json openai_body(const BatchItem& item, const Result& result, const EngineInfo& info) {
    const bool stopped =
        result.finish_reason == FinishReason::eos || result.finish_reason == FinishReason::stop_string;
    Json choice{{"index", 0}};
    if (item.chat_endpoint)
        choice["message"] = {{"role", "assistant"}, {"content", result.text}};
    else
        choice["text"] = result.text;
    choice["logprobs"] = nullptr;
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

}  // namespace

BatchItem parse_item(const std::string& text,
                     std::size_t line,
                     std::size_t index,
                     const BatchDefaults& defaults) {
    BatchItem item;
    item.line = line;
    item.index = index;
    item.id = index;
    item.request = defaults.request;
    const std::string where = fmt::format("line {}", line);
    try {
        const JsonObject object(text, where);
        item.openai = object.find("custom_id") || object.find("body");
        if (const Json* id = object.find(item.openai ? "custom_id" : "id")) {
            if (!id->is_string() && !id->is_number())
                fail("{}: the id must be a string or a number, it is {}", where, id->type_name());
            item.id = *id;
        }
        item.request.id = item.id.is_string() ? item.id.get<std::string>() : dump(item.id);
        if (item.openai)
            read_openai(object, item);
        else
            read_ours(object, defaults, item);
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception& error) {
        item.error = error.what();
    }
    return item;
}

std::string result_line(const BatchItem& item,
                        const Result& result,
                        const EngineInfo& info,
                        const Tokenizer& tokenizer) {
    if (result.finish_reason == FinishReason::error) return error_line(item, result.error);
    Json out;
    if (item.openai) {
        out = Json{{"id", batch_id(item)},
                   {"custom_id", item.id},
                   {"response",
                    {{"status_code", 200},
                     {"request_id", batch_id(item)},
                     {"body", openai_body(item, result, info)}}},
                   {"error", nullptr}};
    } else {
        out = Json{{"id", item.id}, {"line", item.line}};
        Json record = Json::parse(to_json(result, info, tokenizer));
        for (auto& [key, value] : record.items())
            if (key != "id") out[key] = std::move(value);
    }
    return dump(out) + "\n";
}

std::string error_line(const BatchItem& item, const std::string& message) {
    const std::string text = printable(message);
    if (!item.openai)
        return dump(Json{{"id", item.id}, {"line", item.line}, {"error", {{"message", text}}}}) + "\n";
    const Json error{{"message", text}, {"type", "invalid_request_error"}};
    return dump(Json{{"id", batch_id(item)},
                     {"custom_id", item.id},
                     {"response",
                      {{"status_code", 400}, {"request_id", batch_id(item)}, {"body", {{"error", error}}}}},
                     {"error", {{"code", "request_failed"}, {"message", text}}}}) +
           "\n";
}

// By text, not by parsing: a key in quotes can't stand inside a JSON string, where its quotes are escaped.
DoneLine read_done_line(std::string_view text) {
    DoneLine done;
    if (!text.starts_with("{") || !text.ends_with("}")) return done;
    constexpr std::string_view kOpenai = "{\"id\":\"batch_req_", kOurs = ",\"line\":";
    std::string_view number;
    if (text.starts_with(kOpenai))
        number = text.substr(kOpenai.size());
    else if (const std::size_t at = text.find(kOurs); at != std::string_view::npos)
        number = text.substr(at + kOurs.size());
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), done.line);
    if (error != std::errc()) done.line = 0;
    done.failed = text.find(",\"error\":{") != std::string_view::npos;
    return done;
}

Json id_of_line(const std::string& text) {
    try {
        const Json json = Json::parse(text);
        for (const char* key : {"custom_id", "id"})
            if (json.is_object() && json.contains(key) && !json[key].is_null()) return json[key];
    } catch (const std::exception&) {  // a bad line has no id
    }
    return nullptr;
}

}  // namespace llmgen::app
