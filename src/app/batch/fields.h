// Fields of a batch's line that both of its forms have, checked like the flags of the same names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/cli/json.h"
#include "llmgen/llmgen.h"

namespace llmgen::app {

/// A whole number in [low, high]; nullopt where absent or null.
std::optional<int> integer_field(const JsonObject& o,
                                 const std::string& key,
                                 std::int64_t low,
                                 std::int64_t high = INT32_MAX);
/// Sampling, stops, priority and cache_salt, over what `request` has from the command's flags.
void read_common(const JsonObject& o, Request& request);
/// What the template sees beside the messages: "tools", "documents", "chat_template_kwargs".
void read_template_fields(const JsonObject& o, RenderInput& input);
/// The same, and "messages", which must be there.
Chat read_chat(const JsonObject& o);

/// A misspelt field would be ignored in silence; a field of the user's own is none of our business.
/// `known`: those of its form, beside the fields that both have.
void refuse_misspelt(const JsonObject& o, std::vector<std::string> known);

}  // namespace llmgen::app
