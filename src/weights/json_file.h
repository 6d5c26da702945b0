// Reading JSON that a user brought: bounded in size and depth, faults as one line. For this room only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace llmgen::weights {

/// Safe to show in a line: control characters and invalid UTF-8 replaced, 120 bytes at most.
std::string printable(std::string_view text);

// What can't be looked at isn't there: opening it says why.
bool exists(const std::filesystem::path& path);
bool is_file(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

/// Throws Error when `front`, a file's beginning, shows that the file is something that people often have in
/// place of the expected one: a Git LFS pointer, an HTML page, a pickle, a GGUF file.
void refuse_foreign(std::string_view front, const std::string& origin);

/// Throws Error: no JSON, a byte order mark, more than 64 levels deep, no object at the top.
nlohmann::json parse_json_object(std::string_view text, const std::string& origin);
/// The text of a JSON file of at most `limit` bytes.
std::string read_json_text(const std::filesystem::path& path, std::size_t limit = std::size_t(64) << 20);

/// The members of a JSON object, with messages that name file and key. null counts as absent.
class JsonObject {
public:
    /// `prefix` stands before each key in messages: "rope_scaling.".
    JsonObject(const nlohmann::json& object, std::string origin, std::string prefix = "")
        : object_(object), origin_(std::move(origin)), prefix_(std::move(prefix)) {}

    /// nullptr where absent or null.
    const nlohmann::json* find(const char* key) const;
    bool has(const char* key) const { return find(key) != nullptr; }
    bool contains(const char* key) const { return object_.contains(key); }  // also as null

    std::optional<std::int64_t> integer(const char* key, std::int64_t low, std::int64_t high) const;
    std::optional<double> number(const char* key, double low, double high) const;
    std::optional<bool> boolean(const char* key) const;
    std::optional<std::string> text(const char* key) const;
    std::optional<std::vector<double>> numbers(const char* key) const;
    std::optional<JsonObject> object(const char* key) const;

    /// eos_token_id: an integer or a list of them. Those outside [0, vocab_size) are left out, with a line.
    std::vector<int> token_ids(const char* key, int vocab_size, std::vector<std::string>& warnings) const;

    const std::string& origin() const { return origin_; }
    /// "config.json: rope_scaling.factor", the beginning of a message.
    std::string where(const char* key) const { return origin_ + ": " + prefix_ + key; }
    [[noreturn]] void fail_value(const char* key,
                                 const nlohmann::json& value,
                                 const std::string& expected) const;
    [[noreturn]] void fail_missing(const char* key) const;

private:
    const nlohmann::json& object_;
    std::string origin_;
    std::string prefix_;
};

}  // namespace llmgen::weights
