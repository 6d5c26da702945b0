// The user's strings inside error messages: one printable line.
#pragma once

#include <string>
#include <string_view>

#include "base/utf8.h"

namespace llmgen {

/// `text` in double quotes, control characters and invalid bytes replaced, cut after 60 characters.
inline std::string quote(std::string_view text) {
    std::string out = "\"";
    for (int n = 0; !text.empty(); ++n) {
        if (n == 60) {
            out += "…";
            break;
        }
        const utf8::Decoded d = utf8::decode(text);
        if (d.code_point == '\n')
            out += "\\n";
        else if (d.code_point == '"')
            out += "\\\"";
        else
            utf8::append(out,
                         d.code_point < 0x20 || d.code_point == 0x7F ? utf8::kReplacement : d.code_point);
        text.remove_prefix(std::size_t(d.length));
    }
    return out + "\"";
}

}  // namespace llmgen
