// Python's int() and float() of texts.
#include <charconv>
#include <cmath>

#include "base/utf8.h"
#include "text/jinja/lexer.h"
#include "text/jinja/unicode.h"

namespace llmgen::jinja {
namespace {

// White space off both ends, decimal digits of any script to ASCII; other characters beyond ASCII fail the
// parse later.
std::string ascii_digits(std::string_view text) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        const utf8::Decoded d = utf8::decode(text.substr(at));
        at += std::size_t(d.length);
        if (unicode::is_space(d.code_point))
            out += ' ';
        else if (const int digit = d.code_point < 0x80 ? -1 : unicode::decimal_value(d.code_point);
                 digit >= 0)
            out += char('0' + digit);
        else
            utf8::append(out, d.code_point);
    }
    const std::size_t begin = out.find_first_not_of(' ');
    if (begin == std::string::npos) return {};
    return out.substr(begin, out.find_last_not_of(' ') - begin + 1);
}

// Underscores only between digits; empty where misplaced.
std::string without_underscores(std::string_view s) {
    std::string out;
    for (std::size_t i = 0; i < s.size(); ++i) {
        if (s[i] != '_') {
            out += s[i];
            continue;
        }
        const auto alnum = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
        if (i == 0 || i + 1 >= s.size() || !alnum(s[i - 1]) || !alnum(s[i + 1])) return {};
    }
    return out;
}

}  // namespace

std::optional<Value> parse_int(std::string_view text, int base) {
    const std::string clean = ascii_digits(text);
    std::string_view s = clean;
    bool negative = false;
    if (!s.empty() && (s[0] == '+' || s[0] == '-')) {
        negative = s[0] == '-';
        s.remove_prefix(1);
    }
    bool prefixed = false;
    if (s.size() > 1 && s[0] == '0') {
        const char kind = char(s[1] | 0x20);
        const int means = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
        if (means && (base == 0 || base == means)) {
            base = means;
            s.remove_prefix(2);
            prefixed = true;
            if (!s.empty() && s[0] == '_') s.remove_prefix(1);
        }
    }
    const std::string digits = without_underscores(s);
    if (digits.empty()) return std::nullopt;
    if (base == 0) {
        base = 10;
        if (digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos) return std::nullopt;
    }
    for (const char c : digits) {
        const int v = c >= '0' && c <= '9'                     ? c - '0'
                      : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                               : 99;
        if (v >= base) return std::nullopt;
    }
    if (!prefixed && digits.size() > 4300) return std::nullopt;
    if (digits.size() > 16000) return std::nullopt;
    const BigInt value = BigInt::parse(digits, base);
    return Value::integer(negative ? -value : value);
}

std::optional<double> parse_float(std::string_view text) {
    const std::string clean = without_underscores(ascii_digits(text));
    std::string_view s = clean;
    if (s.empty()) return std::nullopt;
    bool negative = false;
    if (s[0] == '+' || s[0] == '-') {
        negative = s[0] == '-';
        s.remove_prefix(1);
    }
    if (s.empty()) return std::nullopt;
    std::string lower;
    for (const char c : s) lower += char(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
    double value = 0;
    if (lower == "inf" || lower == "infinity") {
        value = HUGE_VAL;
    } else if (lower == "nan") {
        value = std::nan("");
    } else {
        if (lower.find_first_not_of("0123456789.e+-") != std::string::npos || lower[0] == '+' ||
            lower[0] == '-')
            return std::nullopt;
        const auto [end, error] = std::from_chars(lower.data(), lower.data() + lower.size(), value);
        if (end != lower.data() + lower.size() || error == std::errc::invalid_argument) return std::nullopt;
        if (error == std::errc::result_out_of_range) value = std::strtod(lower.c_str(), nullptr);
    }
    return negative ? -value : value;
}

}  // namespace llmgen::jinja
