#include "app/batch/item.h"

#include <charconv>

#include "app/batch/fields.h"
#include "app/batch/openai.h"
#include "app/cli/io.h"
#include "base/error.h"

namespace llmgen::app {
namespace {

// Fields of other programs, which would be ignored in silence and change the answer.
void refuse_foreign(const JsonObject& o) {
    constexpr std::pair<const char*, const char*> kOurs[] = {
        {"max_tokens", "max_new_tokens"}, {"max_completion_tokens", "max_new_tokens"},
        {"stop_sequences", "stop"},       {"stop_strings", "stop"},
        {"top_logprobs", "logprobs"},
    };
    for (const auto& [theirs, ours] : kOurs)
        if (o.find(theirs)) fail("{}: unknown field \"{}\"; is \"{}\" meant?", o.where(), theirs, ours);
    for (const char* key : {"n", "best_of", "num_return_sequences"})
        if (const Json* n = o.find(key); n && *n != 1)
            fail("{}: \"{}\" must be 1: a line has one answer", o.where(), key);
    if (o.find("response_format")) fail("{}: \"response_format\" isn't supported", o.where());
}

// What belongs to another kind of prompt than the line's.
void refuse_without_effect(const JsonObject& o, bool raw) {
    const bool chat = o.find("messages") || (o.find("prompt") && !raw);
    if (o.find("system") && (raw || !o.find("prompt")))
        fail("{}: \"system\" goes with a \"prompt\" that the chat template formats", o.where());
    if (o.find("raw") && !o.find("prompt")) fail("{}: \"raw\" goes with \"prompt\"", o.where());
    for (const char* key : {"tools", "documents", "chat_template_kwargs"})
        if (o.find(key) && !chat)
            fail("{}: \"{}\" needs the chat template: it doesn't go with \"raw\" or \"token_ids\"", o.where(),
                 key);
}

void read_ours(const JsonObject& o, const BatchDefaults& defaults, BatchItem& item) {
    Request& request = item.request;
    refuse_foreign(o);
    refuse_misspelt(o, {"token_ids", "system", "raw", "max_new_tokens"});
    read_common(o, request);
    if (const auto n = integer_field(o, "max_new_tokens", 0)) request.max_new_tokens = n;
    if (const auto n = integer_field(o, "logprobs", 0, 1 << 20)) request.logprobs = *n;
    const int sources =
        (o.find("prompt") ? 1 : 0) + (o.find("messages") ? 1 : 0) + (o.find("token_ids") ? 1 : 0);
    if (sources != 1)
        fail("{}: give one of \"prompt\", \"messages\", \"token_ids\"; there are {}", o.where(), sources);
    const bool raw = o.find("prompt") && o.boolean("raw", defaults.raw);
    refuse_without_effect(o, raw);
    if (o.find("token_ids")) {
        request.prompt = ids_from_json(*o.find("token_ids"), o.where() + ": token_ids");
    } else if (o.find("messages")) {
        request.prompt = read_chat(o);
    } else if (raw) {
        request.prompt = RawText{o.string("prompt")};
    } else {
        const std::string prompt = o.string("prompt");
        if (prompt.empty()) fail("{}: empty prompt", o.where());
        Chat chat = Chat::user(prompt, o.string("system", defaults.system));
        read_template_fields(o, chat.input);
        request.prompt = std::move(chat);
    }
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
        out = Json{{"id", openai_id(item)},
                   {"custom_id", item.id},
                   {"response",
                    {{"status_code", 200},
                     {"request_id", openai_id(item)},
                     {"body", openai_body(item, result, info, tokenizer)}}},
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
    return dump(Json{{"id", openai_id(item)},
                     {"custom_id", item.id},
                     {"response",
                      {{"status_code", 400}, {"request_id", openai_id(item)}, {"body", {{"error", error}}}}},
                     {"error", {{"code", "request_failed"}, {"message", text}}}}) +
           "\n";
}

// By text, not by parsing: a key in quotes can't stand inside a JSON string, where its quotes are escaped.
DoneLine read_done_line(std::string_view text) {
    DoneLine done;
    if (!text.starts_with("{") || !text.ends_with("}")) return done;
    constexpr std::string_view kOpenai = "{\"id\":\"batch_req_", kOurs = ",\"line\":";
    std::string_view number;
    const std::size_t quote = text.find('"', kOpenai.size());
    if (text.starts_with(kOpenai) && quote != std::string_view::npos &&
        text.substr(quote).starts_with("\",\"custom_id\":"))  // else an id of ours that looks like theirs
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
