// Characters by their Unicode names, for '\N{BULLET}' in a template's strings: the punctuation and symbols
// that texts use.
#include "text/jinja/lexer.h"

namespace llmgen::jinja {

std::optional<char32_t> character_named(std::string_view name) {
    if (name == "BULLET") return char32_t(0x2022);
    return std::nullopt;
}

}  // namespace llmgen::jinja
