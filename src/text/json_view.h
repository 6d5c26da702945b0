// A parsed JSON value that knows where it stands, so that every complaint names file and component.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/quote.h"

namespace llmgen {

class JsonView {
public:
    JsonView(simdjson::dom::element value, const std::string& file, std::string path)
        : value_(value), file_(&file), path_(std::move(path)) {}

    /// "FILE: pre_tokenizer.pretokenizers[1]".
    std::string where() const { return path_.empty() ? *file_ : *file_ + ": " + path_; }
    const std::string& file() const { return *file_; }
    template <typename... Args>
    [[noreturn]] void broken(fmt::format_string<Args...> format, Args&&... args) const {
        fail("{}: {}", where(), fmt::format(format, std::forward<Args>(args)...));
    }

    bool is_null() const { return value_.is_null(); }
    bool is_string() const { return value_.is_string(); }
    bool is_object() const { return value_.is_object(); }
    bool is_array() const { return value_.is_array(); }
    std::string_view string() const { return get<std::string_view>("a string"); }
    bool boolean() const { return get<bool>("true or false"); }
    double number() const {
        double d = 0;
        if (value_.get(d)) broken("expected a number");
        return d;
    }
    std::int64_t integer(std::int64_t low, std::int64_t high) const {
        std::int64_t i = 0;
        if (value_.get(i)) broken("expected an integer");
        if (i < low || i > high) broken("{} is out of range ({} to {})", i, low, high);
        return i;
    }
    simdjson::dom::object object() const { return get<simdjson::dom::object>("an object"); }
    simdjson::dom::array array() const { return get<simdjson::dom::array>("an array"); }

    /// A member that is there and not null.
    std::optional<JsonView> find(std::string_view key) const {
        simdjson::dom::element member;
        if (object()[key].get(member) || member.is_null()) return std::nullopt;
        return JsonView(member, *file_, path_.empty() ? std::string(key) : path_ + "." + std::string(key));
    }
    JsonView need(std::string_view key) const {
        if (auto member = find(key)) return *member;
        broken("{} is missing", quote(key));
    }
    bool flag(std::string_view key, bool otherwise) const {
        const auto member = find(key);
        return member ? member->boolean() : otherwise;
    }
    std::string text(std::string_view key, std::string_view otherwise) const {
        const auto member = find(key);
        return std::string(member ? member->string() : otherwise);
    }
    /// Calls f(element, index).
    template <typename F>
    void each(F f) const {
        std::size_t i = 0;
        for (simdjson::dom::element e : array()) {
            f(JsonView(e, *file_, path_ + "[" + std::to_string(i) + "]"), i);
            ++i;
        }
    }
    /// Calls f(key, value).
    template <typename F>
    void each_member(F f) const {
        for (const auto& member : object())
            f(member.key, JsonView(member.value, *file_, path_ + "[" + quote(member.key) + "]"));
    }

private:
    template <typename T>
    T get(const char* expected) const {
        T out;
        if (value_.get(out)) broken("expected {}", expected);
        return out;
    }
    simdjson::dom::element value_;
    const std::string* file_;
    std::string path_;
};

/// A JSON file, parsed; Error naming it if it is no JSON (or only a Git LFS pointer).
class JsonFile {
public:
    explicit JsonFile(const std::filesystem::path& path);
    JsonFile(std::string name, std::string_view text);
    JsonView root() const { return JsonView(root_, name_, ""); }
    const std::string& text() const { return text_; }

private:
    void parse();
    std::string name_, text_;
    simdjson::dom::parser parser_;
    simdjson::dom::element root_;
};

}  // namespace llmgen
