#include "base/json_text.h"

#include <string_view>

namespace llmgen {

std::string one_line_json(std::string json) {
    struct Escape {
        std::string_view raw, escaped;
    };
    constexpr Escape kEscapes[] = {{"\u0085", "\\u0085"}, {"\u2028", "\\u2028"}, {"\u2029", "\\u2029"}};
    for (const Escape& escape : kEscapes)
        for (std::size_t at = json.find(escape.raw); at != std::string::npos;
             at = json.find(escape.raw, at + escape.escaped.size()))
            json.replace(at, escape.raw.size(), escape.escaped);
    return json;
}

}  // namespace llmgen
