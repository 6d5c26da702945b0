#include "app/cli/json.h"

#include <algorithm>
#include <limits>

#include "app/cli/io.h"
#include "app/cli/numbers.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/utf8.h"

namespace llmgen::app {
namespace {

constexpr std::string_view kJsonSpace = " \t\r\n";

void skip_space(std::string_view& text) {
    const std::size_t n = text.find_first_not_of(kJsonSpace);
    text.remove_prefix(n == std::string_view::npos ? text.size() : n);
}

// The text of the value at the front of valid JSON, which is taken off.
std::string_view take_value(std::string_view& text) {
    std::size_t i = 0;
    int depth = 0;
    bool quoted = false;
    for (; i < text.size(); ++i) {
        const char c = text[i];
        if (quoted) {
            if (c == '\\')
                ++i;
            else if (c == '"')
                quoted = false;
        } else if (c == '"') {
            quoted = true;
        } else if (c == '[' || c == '{') {
            ++depth;
        } else if (c == ']' || c == '}' || (c == ',' && depth == 0) || (c == ':' && depth == 0)) {
            if (depth == 0) break;
            --depth;
        }
    }
    std::string_view value = text.substr(0, i);
    text.remove_prefix(i);
    const std::size_t end = value.find_last_not_of(kJsonSpace);
    return value.substr(0, end == std::string_view::npos ? 0 : end + 1);
}

}  // namespace

Json parse_json(const std::string& text, const std::string& where) {
    constexpr int kMaxDepth = 200;  // dump() recurses
    try {
        return Json::parse(text, [&](int depth, Json::parse_event_t, Json&) {
            if (depth > kMaxDepth) fail("{}: JSON nested more than {} deep", where, kMaxDepth);
            return true;
        });
    } catch (const nlohmann::json::exception& error) {
        // "[json.exception.parse_error.101] parse error at line 1, column 3: …"
        std::string_view message = error.what();
        const std::size_t bracket = message.find("] ");
        if (bracket != std::string_view::npos) message.remove_prefix(bracket + 2);
        fail("{}: not valid JSON: {}", where, printable(message));
    }
}

std::string dump(const Json& json) {
    return one_line_json(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

JsonObject::JsonObject(std::string text, const std::string& where)
    : where_(where), json_(parse_json(text, where)) {
    if (!json_.is_object()) fail("{}: a JSON object is expected, this is {}", where, json_.type_name());
    std::string_view rest = text;
    skip_space(rest);
    rest.remove_prefix(1);
    for (skip_space(rest); !rest.starts_with("}"); skip_space(rest)) {
        if (rest.starts_with(",")) {
            rest.remove_prefix(1);
            continue;
        }
        const std::string key = Json::parse(take_value(rest)).get<std::string>();
        rest.remove_prefix(1);  // the colon
        skip_space(rest);
        std::string value(take_value(rest));
        const auto known =
            std::find_if(members_.begin(), members_.end(), [&](const auto& m) { return m.first == key; });
        if (known == members_.end())
            members_.emplace_back(key, std::move(value));
        else
            known->second = std::move(value);
    }
}

const Json* JsonObject::find(const std::string& key) const {
    const auto it = json_.find(key);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
}

std::string JsonObject::raw(const std::string& key) const {
    for (const auto& [name, text] : members_)
        if (name == key) return text;
    return "";
}

std::string JsonObject::string(const std::string& key, const std::string& fallback) const {
    const Json* value = find(key);
    if (!value) return fallback;
    if (!value->is_string()) fail("{}: \"{}\" must be a string, it is {}", where_, key, value->type_name());
    return value->get<std::string>();
}

bool JsonObject::boolean(const std::string& key, bool fallback) const {
    const Json* value = find(key);
    if (!value) return fallback;
    if (!value->is_boolean())
        fail("{}: \"{}\" must be true or false, it is {}", where_, key, value->type_name());
    return value->get<bool>();
}

void check_messages(const Json& messages, const std::string& where) {
    if (!messages.is_array()) fail("{}: messages are a JSON array, this is {}", where, messages.type_name());
    if (messages.empty()) fail("{}: no messages", where);
    for (std::size_t i = 0; i < messages.size(); ++i) {
        if (!messages[i].is_object())
            fail("{}: message {} is {}, not an object", where, i, messages[i].type_name());
        if (!messages[i].contains("role") || !messages[i]["role"].is_string())
            fail("{}: message {} has no \"role\"", where, i);
    }
}

RenderInput messages_from_json(const std::string& text, const std::string& where) {
    std::string repaired = utf8::repair(without_bom(text));
    RenderInput input;
    const Json json = parse_json(repaired, where);
    if (!json.is_object()) {
        check_messages(json, where);
        input.messages_json = std::move(repaired);
        return input;
    }
    const JsonObject object(std::move(repaired), where);
    if (!object.find("messages")) fail("{}: the object has no \"messages\"", where);
    check_messages(*object.find("messages"), where);
    input.messages_json = object.raw("messages");
    if (object.find("tools")) input.tools_json = object.raw("tools");
    if (object.find("documents")) input.documents_json = object.raw("documents");
    return input;
}

std::vector<int> ids_from_json(const Json& json, const std::string& where) {
    if (!json.is_array()) fail("{}: ids are a JSON array, this is {}", where, json.type_name());
    std::vector<int> ids;
    ids.reserve(json.size());
    for (const Json& id : json) {
        if (!id.is_number_integer()) fail("{}: {} is not an id", where, printable(dump(id).substr(0, 60)));
        if (id.is_number_unsigned() ? id.get<std::uint64_t>() > std::uint64_t(std::numeric_limits<int>::max())
                                    : id.get<std::int64_t>() < 0)
            fail("{}: id {} is out of range", where, dump(id));
        ids.push_back(id.get<int>());
    }
    return ids;
}

std::string decode_base64(std::string_view text, const std::string& where) {
    while (text.ends_with("=")) text.remove_suffix(1);
    std::string out;
    unsigned bits = 0;
    int n_bits = 0;
    for (const char c : text) {
        unsigned value = 0;
        if (c >= 'A' && c <= 'Z')
            value = unsigned(c - 'A');
        else if (c >= 'a' && c <= 'z')
            value = unsigned(c - 'a') + 26;
        else if (c >= '0' && c <= '9')
            value = unsigned(c - '0') + 52;
        else if (c == '+' || c == '-')
            value = 62;
        else if (c == '/' || c == '_')
            value = 63;
        else
            fail("{}: not valid base64", where);
        bits = (bits << 6) | value;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            out += char((bits >> n_bits) & 0xff);
        }
    }
    if (n_bits >= 6) fail("{}: not valid base64: one character too many", where);
    return out;
}

}  // namespace llmgen::app
