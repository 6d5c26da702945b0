// JSON that comes in and goes out.
//
// Two traps: dump() throws on bad UTF-8 unless told otherwise, and recurses; a template must see numbers and
// the order of keys exactly as they were written. So text is repaired before it is parsed, nesting is capped,
// and what goes on to a template goes as the original text, not as a second printing of it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmgen/chat_template.h"

namespace llmgen::app {

using Json = nlohmann::ordered_json;

/// Throws Error naming `where` and the place in the text. `text` must be valid UTF-8.
Json parse_json(const std::string& text, const std::string& where);
/// One line; invalid UTF-8 becomes U+FFFD.
std::string dump(const Json& json);

/// An object with, for each member, the text that stands for its value. Of a key given twice the last counts.
class JsonObject {
public:
    /// Throws Error where `text` isn't an object.
    JsonObject(std::string text, const std::string& where);
    const Json& json() const { return json_; }
    const std::string& where() const { return where_; }

    /// Absent or null: nullptr.
    const Json* find(const std::string& key) const;
    /// The value's own text; "" where absent.
    std::string raw(const std::string& key) const;
    const std::vector<std::pair<std::string, std::string>>& members() const { return members_; }

    // Typed access: `fallback` where absent or null, Error naming the key where the type is another.
    std::string string(const std::string& key, const std::string& fallback = "") const;
    bool boolean(const std::string& key, bool fallback) const;

private:
    std::string where_;
    Json json_;
    std::vector<std::pair<std::string, std::string>> members_;
};

/// Messages from a JSON text: an array, or an object with "messages" (and perhaps "tools", "documents").
RenderInput messages_from_json(const std::string& text, const std::string& where);
/// Throws Error where it isn't a list of objects with a role.
void check_messages(const Json& messages, const std::string& where);

/// Reads a JSON array of ids.
std::vector<int> ids_from_json(const Json& json, const std::string& where);

/// RFC 4648, padding optional. Throws Error.
std::string decode_base64(std::string_view text, const std::string& where);

}  // namespace llmgen::app
