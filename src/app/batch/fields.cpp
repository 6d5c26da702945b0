#include "app/batch/fields.h"

#include <algorithm>
#include <climits>

#include "app/cli/io.h"
#include "app/cli/numbers.h"
#include "base/error.h"

namespace llmgen::app {

std::optional<int> integer_field(const JsonObject& o,
                                 const std::string& key,
                                 std::int64_t low,
                                 std::int64_t high) {
    const Json* value = o.find(key);
    if (!value) return std::nullopt;
    if (!value->is_number_integer())
        fail("{}: \"{}\" must be a whole number, it is {}", o.where(), key,
             printable(dump(*value).substr(0, 60)));
    return int(parse_integer(o.where() + ": " + key, dump(*value), low, high));
}

namespace {

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
    set(s.temperature, real(o, "temperature", kTemperatureRange));
    set(s.top_k, integer_field(o, "top_k", -1));
    set(s.top_p, real(o, "top_p", kShareRange));
    set(s.min_p, real(o, "min_p", kShareRange));
    set(s.repetition_penalty, real(o, "repetition_penalty", kRepetitionRange));
    set(s.presence_penalty, real(o, "presence_penalty", kPenaltyRange));
    set(s.frequency_penalty, real(o, "frequency_penalty", kPenaltyRange));
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

}  // namespace

void read_common(const JsonObject& o, Request& request) {
    read_sampling(o, request.sampling);
    read_stop(o, request);
    if (const auto priority = integer_field(o, "priority", INT_MIN)) request.priority = *priority;
    request.cache_salt = o.string("cache_salt", request.cache_salt);
}

void read_template_fields(const JsonObject& o, RenderInput& input) {
    if (o.find("tools")) input.tools_json = o.raw("tools");
    if (o.find("documents")) input.documents_json = o.raw("documents");
    if (!o.find("chat_template_kwargs")) return;
    const JsonObject variables(o.raw("chat_template_kwargs"), o.where() + ": chat_template_kwargs");
    for (const auto& [name, value] : variables.members()) input.variables[name] = value;
}

Chat read_chat(const JsonObject& o) {
    Chat chat;
    if (!o.find("messages")) fail("{}: no \"messages\"", o.where());
    check_messages(*o.find("messages"), o.where());
    chat.input.messages_json = o.raw("messages");
    read_template_fields(o, chat.input);
    return chat;
}

void refuse_misspelt(const JsonObject& o, std::vector<std::string> known) {
    static constexpr const char* kCommon[] = {"prompt",
                                              "messages",
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
                                              "logprobs",
                                              "tools",
                                              "documents",
                                              "chat_template_kwargs"};
    known.insert(known.end(), std::begin(kCommon), std::end(kCommon));
    for (const auto& [key, value] : o.members()) {
        if (key.size() > 40 || std::find(known.begin(), known.end(), key) != known.end()) continue;
        for (const std::string& word : known)
            if (word.size() > 4 && edit_distance(word, key) <= (word.size() < 7 ? 1u : 2u))
                fail("{}: unknown field \"{}\"; is \"{}\" meant?", o.where(), printable(key), word);
    }
}

}  // namespace llmgen::app
