// JSON Lines that any reader splits the same way.
#pragma once

#include <string>

namespace llmgen {

/// A JSON text with U+0085, U+2028 and U+2029 written as \uXXXX: they are legal raw in JSON strings, but many
/// readers of lines (Python's splitlines, JavaScript before 2019) end a line there.
std::string one_line_json(std::string json);

}  // namespace llmgen
