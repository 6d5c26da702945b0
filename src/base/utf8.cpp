#include "base/utf8.h"

#include <algorithm>

namespace llmgen::utf8 {

Decoded decode(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned lead = byte(0);
    if (lead < 0x80) return {char32_t(lead), 1, true, false};
    int n = 0;
    unsigned low = 0x80, high = 0xBF;  // bounds of the second byte; the others are 80..BF
    char32_t value = 0;
    if (lead >= 0xC2 && lead <= 0xDF) {
        n = 2;
        value = lead & 0x1F;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        n = 3;
        value = lead & 0x0F;
        if (lead == 0xE0) low = 0xA0;   // shorter forms
        if (lead == 0xED) high = 0x9F;  // surrogates
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        n = 4;
        value = lead & 0x07;
        if (lead == 0xF0) low = 0x90;
        if (lead == 0xF4) high = 0x8F;  // above U+10FFFF
    } else {
        return {kReplacement, 1, false, false};
    }
    for (int i = 1; i < n; ++i) {
        if (std::size_t(i) >= text.size()) return {kReplacement, i, false, true};
        const unsigned b = byte(std::size_t(i));
        if (b < low || b > high) return {kReplacement, i, false, false};
        low = 0x80;
        high = 0xBF;
        value = (value << 6) | (b & 0x3F);
    }
    return {value, n, true, false};
}

void append(std::string& text, char32_t c) {
    if (c < 0x80) {
        text += char(c);
    } else if (c < 0x800) {
        text += char(0xC0 | (c >> 6));
        text += char(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        text += char(0xE0 | (c >> 12));
        text += char(0x80 | ((c >> 6) & 0x3F));
        text += char(0x80 | (c & 0x3F));
    } else {
        text += char(0xF0 | (c >> 18));
        text += char(0x80 | ((c >> 12) & 0x3F));
        text += char(0x80 | ((c >> 6) & 0x3F));
        text += char(0x80 | (c & 0x3F));
    }
}

std::string encode(char32_t code_point) {
    std::string text;
    append(text, code_point);
    return text;
}

bool is_valid(std::string_view text) {
    while (!text.empty()) {
        const Decoded d = decode(text);
        if (!d.valid) return false;
        text.remove_prefix(std::size_t(d.length));
    }
    return true;
}

std::string repair(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const Decoded d = decode(text);
        if (d.valid)
            out.append(text.substr(0, std::size_t(d.length)));
        else
            append(out, kReplacement);
        text.remove_prefix(std::size_t(d.length));
    }
    return out;
}

std::size_t incomplete_tail(std::string_view text) {
    for (std::size_t n = 1; n <= std::min<std::size_t>(3, text.size()); ++n) {
        const Decoded d = decode(text.substr(text.size() - n));
        if (d.truncated && std::size_t(d.length) == n) return n;
        if ((static_cast<unsigned char>(text[text.size() - n]) & 0xC0) != 0x80)
            return 0;  // a lead byte ends the search
    }
    return 0;
}

std::size_t length(std::string_view text) {
    std::size_t n = 0;
    for (; !text.empty(); ++n) text.remove_prefix(std::size_t(decode(text).length));
    return n;
}

}  // namespace llmgen::utf8
