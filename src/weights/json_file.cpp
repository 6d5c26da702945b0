#include "weights/json_file.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "base/error.h"
#include "base/lfs.h"
#include "base/mmap.h"
#include "base/utf8.h"

namespace llmgen::weights {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 64;  // copying, comparing and printing a value recurse

/// A value as it stands in a message.
std::string brief(const json& value) {
    if (value.is_array()) return "an array";
    if (value.is_object()) return "an object";
    return printable(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace

std::string printable(std::string_view text) {
    constexpr std::size_t kLimit = 120;
    std::string line;
    while (!text.empty()) {
        if (line.size() > kLimit) return line + "…";
        const utf8::Decoded next = utf8::decode(text);
        const bool control = next.code_point < 0x20 || (next.code_point >= 0x7f && next.code_point < 0xa0) ||
                             next.code_point == 0x2028 || next.code_point == 0x2029;
        utf8::append(line, control ? utf8::kReplacement : next.code_point);
        text.remove_prefix(std::size_t(next.length));
    }
    return line;
}

bool exists(const std::filesystem::path& path) {
    std::error_code ignored;
    return std::filesystem::exists(path, ignored);
}

bool is_file(const std::filesystem::path& path) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(path, ignored);
}

bool is_folder(const std::filesystem::path& path) {
    std::error_code ignored;
    return std::filesystem::is_directory(path, ignored);
}

void refuse_foreign(std::string_view front, const std::string& origin) {
    reject_lfs_pointer(origin, front);
    const auto word = front.find_first_not_of(" \t\r\n");
    const std::string_view page = word == std::string_view::npos ? "" : front.substr(word);
    for (const std::string_view opening : {"<!doctype", "<!DOCTYPE", "<html", "<HTML", "<?xml"})
        if (page.starts_with(opening))
            fail("{}: is a web page, not the file itself; download it again", origin);
    if (front.starts_with("PK\x03\x04"))
        fail("{}: is a zip or PyTorch file; only safetensors checkpoints can be read", origin);
    if (front.starts_with("GGUF"))
        fail("{}: is a GGUF file; only safetensors checkpoints can be read", origin);
}

json parse_json_object(std::string_view text, const std::string& origin) {
    refuse_foreign(text.substr(0, 512), origin);
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
        fail("{}: is empty, a JSON object is expected; download it again", origin);
    if (text.starts_with("\xEF\xBB\xBF"))
        fail("{}: begins with a byte order mark; save it as UTF-8 without one", origin);
    // The parser takes a NUL for the end; JSON has none anywhere.
    if (const auto nul = text.find('\0'); nul != std::string_view::npos)
        fail("{}: is not valid JSON: error at byte {} of {}", origin, nul + 1, text.size());
    const auto shallow = [&](int depth, json::parse_event_t, json&) {
        if (depth > kMaxDepth) fail("{}: nested more than {} levels deep", origin, kMaxDepth);
        return true;
    };
    try {
        json value = json::parse(text, shallow);
        if (!value.is_object()) fail("{}: expected a JSON object, found {}", origin, brief(value));
        return value;
    } catch (const json::parse_error& error) {
        if (error.byte > text.size())
            fail("{}: is not valid JSON: it ends in the middle, after {} bytes; download it again", origin,
                 text.size());
        fail("{}: is not valid JSON: error at byte {} of {}", origin, error.byte, text.size());
    } catch (const json::exception&) {
        fail("{}: is not valid JSON: a number is out of range", origin);
    }
}

std::string read_json_text(const std::filesystem::path& path, std::size_t limit) {
    return read_file(path, limit);
}

const json* JsonObject::find(const char* key) const {
    const auto member = object_.find(key);
    return member == object_.end() || member->is_null() ? nullptr : &*member;
}

void JsonObject::fail_value(const char* key, const json& value, const std::string& expected) const {
    fail("{} is {}, expected {}", where(key), brief(value), expected);
}

void JsonObject::fail_missing(const char* key) const { fail("{} is missing", where(key)); }

std::optional<std::int64_t> JsonObject::integer(const char* key, std::int64_t low, std::int64_t high) const {
    const json* value = find(key);
    if (!value) return std::nullopt;
    // Unsigned first: 2^64 − 1 read as signed would pass as −1.
    const bool too_large =
        value->is_number_unsigned() && value->get<std::uint64_t>() > std::uint64_t(INT64_MAX);
    if (value->is_number_integer() && !too_large) {
        const auto number = value->get<std::int64_t>();
        if (low <= number && number <= high) return number;
    }
    fail_value(key, *value, fmt::format("an integer from {} to {}", low, high));
}

std::optional<double> JsonObject::number(const char* key, double low, double high) const {
    const json* value = find(key);
    if (!value) return std::nullopt;
    if (value->is_number()) {
        const auto number = value->get<double>();
        if (low <= number && number <= high) return number;
    }
    fail_value(key, *value, fmt::format("a number from {} to {}", low, high));
}

std::optional<bool> JsonObject::boolean(const char* key) const {
    const json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_boolean()) fail_value(key, *value, "true or false");
    return value->get<bool>();
}

std::optional<std::string> JsonObject::text(const char* key) const {
    const json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_string()) fail_value(key, *value, "a string");
    return value->get<std::string>();
}

std::optional<std::vector<double>> JsonObject::numbers(const char* key) const {
    const json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_array()) fail_value(key, *value, "a list of numbers");
    std::vector<double> numbers;
    for (const json& item : *value) {
        if (!item.is_number()) fail_value(key, item, "a list of numbers");
        numbers.push_back(item.get<double>());
    }
    return numbers;
}

std::optional<JsonObject> JsonObject::object(const char* key) const {
    const json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_object()) fail_value(key, *value, "an object");
    return JsonObject(*value, origin_, prefix_ + key + ".");
}

std::vector<int> JsonObject::token_ids(const char* key,
                                       int vocab_size,
                                       std::vector<std::string>& warnings) const {
    std::vector<int> ids;
    const json* value = find(key);
    if (!value) return ids;
    const auto add = [&](const json& item) {
        if (item.is_null()) return;
        if (!item.is_number_integer()) fail_value(key, item, "a token id or a list of them");
        const bool fits = item.is_number_unsigned() && item.get<std::uint64_t>() < std::uint64_t(vocab_size);
        if (fits)
            ids.push_back(item.get<int>());
        else
            warnings.push_back(fmt::format("{}: {} is outside the vocabulary of {}: ignored", where(key),
                                           brief(item), vocab_size));
    };
    if (value->is_array())
        for (const json& item : *value) add(item);
    else
        add(*value);
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
}

}  // namespace llmgen::weights
