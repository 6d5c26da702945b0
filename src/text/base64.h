// Base64 (RFC 4648) to bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace llmgen {

/// nullopt if `text` has other characters or the wrong length; padding may be missing.
inline std::optional<std::string> decode_base64(std::string_view text) {
    while (text.ends_with('=')) text.remove_suffix(1);
    if (text.size() % 4 == 1) return std::nullopt;
    std::string out;
    out.reserve(text.size() * 3 / 4);
    unsigned bits = 0;
    int n = 0;
    for (char c : text) {
        int v = -1;
        if (c >= 'A' && c <= 'Z') v = c - 'A';
        if (c >= 'a' && c <= 'z') v = c - 'a' + 26;
        if (c >= '0' && c <= '9') v = c - '0' + 52;
        if (c == '+') v = 62;
        if (c == '/') v = 63;
        if (v < 0) return std::nullopt;
        bits = (bits << 6 | unsigned(v)) & 0xFFFFFF;
        n += 6;
        if (n >= 8) {
            n -= 8;
            out += char(bits >> n & 0xFF);
        }
    }
    return out;
}

}  // namespace llmgen
