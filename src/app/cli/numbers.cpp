#include "app/cli/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "app/cli/io.h"
#include "base/error.h"
#include "base/utf8.h"

namespace llmgen::app {
namespace {

constexpr std::string_view kSpace = " \t\r\n\f\v";

// "+5" is what people write and what from_chars refuses.
std::string_view without_plus(std::string_view text) {
    if (text.size() > 1 && text[0] == '+' && text[1] != '-' && text[1] != '+') text.remove_prefix(1);
    return text;
}

template <typename T>
bool parse_whole(std::string_view text, T& value, std::errc& code) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    code = error;
    return end == text.data() + text.size() && !text.empty() &&
           (error == std::errc() || error == std::errc::result_out_of_range);
}

std::string shown(double value) { return fmt::format("{:g}", value); }

}  // namespace

std::int64_t parse_integer(const std::string& name,
                           std::string_view text,
                           std::int64_t low,
                           std::int64_t high) {
    std::int64_t value = 0;
    std::errc code{};
    if (!parse_whole(without_plus(text), value, code))
        fail_usage("{}: \"{}\" is not a whole number", name, printable(text));
    if (code == std::errc::result_out_of_range || value < low || value > high)
        fail_usage("{}: {} is out of range, it must be {} to {}", name, printable(text), low, high);
    return value;
}

std::uint64_t parse_unsigned(const std::string& name, std::string_view text) {
    std::uint64_t value = 0;
    std::errc code{};
    if (!parse_whole(without_plus(text), value, code))
        fail_usage("{}: \"{}\" is not a whole number of 0 or more", name, printable(text));
    if (code == std::errc::result_out_of_range)
        fail_usage("{}: {} is out of range, it must be 0 to {}", name, printable(text), UINT64_MAX);
    return value;
}

double parse_real(const std::string& name, std::string_view text, const RealRange& range) {
    double value = 0;
    std::errc code{};
    if (!parse_whole(without_plus(text), value, code))
        fail_usage("{}: \"{}\" is not a number", name, printable(text));
    if (code == std::errc::result_out_of_range || !std::isfinite(value))
        fail_usage("{}: {} is not a finite number", name, printable(text));
    if (value < range.low || value > range.high || (range.open_low && value == range.low)) {
        const bool bounded_low = range.low > -1e300, bounded_high = range.high < 1e300;
        const std::string low =
            bounded_low ? fmt::format("{} {}", range.open_low ? "greater than" : "at least", shown(range.low))
                        : "";
        const std::string high = bounded_high ? "at most " + shown(range.high) : "";
        fail_usage("{}: {} is out of range, it must be {}{}{}", name, printable(text), low,
                   bounded_low && bounded_high ? " and " : "", high);
    }
    return value;
}

std::size_t parse_size(const std::string& name, std::string_view text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    std::string unit(end, std::size_t(text.data() + text.size() - end));
    unit.erase(0, unit.find_first_not_of(' '));
    std::transform(unit.begin(), unit.end(), unit.begin(),
                   [](unsigned char c) { return char(std::tolower(c)); });
    int power = 0;
    if (!unit.empty() && unit != "b") {
        const std::size_t at = std::string_view("kmgt").find(unit[0]);
        const std::string rest = unit.substr(1);
        if (at == std::string_view::npos || (rest != "" && rest != "b" && rest != "ib"))
            power = -1;
        else
            power = int(at) + 1;
    }
    if (error != std::errc() || power < 0 || !std::isfinite(value))
        fail_usage("{}: \"{}\" is not a size; write bytes, or 512M, 4GiB, 1.5G", name, printable(text));
    const double bytes = value * std::pow(1024.0, power);
    if (bytes < 1 || bytes > 0x1p60)
        fail_usage("{}: {} is out of range, it must be 1 byte to 1 EiB", name, printable(text));
    return std::size_t(bytes);
}

std::vector<int> parse_ids(const std::string& name, std::string_view text) {
    const auto trim = [](std::string_view s) {
        const std::size_t begin = s.find_first_not_of(kSpace);
        if (begin == std::string_view::npos) return std::string_view();
        return s.substr(begin, s.find_last_not_of(kSpace) - begin + 1);
    };
    text = trim(text);
    if (text.starts_with("[") && text.ends_with("]")) text = trim(text.substr(1, text.size() - 2));
    std::vector<int> ids;
    while (!text.empty()) {
        std::size_t end = text.find_first_of(", \t\r\n\f\v");
        if (end == std::string_view::npos) end = text.size();
        ids.push_back(int(parse_integer(name, text.substr(0, end), 0, std::numeric_limits<int>::max())));
        text.remove_prefix(end);
        const std::size_t next = text.find_first_not_of(kSpace);
        text.remove_prefix(next == std::string_view::npos ? text.size() : next);
        if (text.starts_with(",")) {
            text = trim(text.substr(1));
            if (text.empty()) fail_usage("{}: ends with a comma", name);
        }
    }
    return ids;
}

std::pair<int, double> parse_bias(const std::string& name, std::string_view text) {
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos)
        fail_usage("{}: \"{}\" is not ID:BIAS, for example 42:-5", name, printable(text));
    return {int(parse_integer(name, text.substr(0, colon), 0, std::numeric_limits<int>::max())),
            parse_real(name, text.substr(colon + 1), kPenaltyRange)};
}

std::string unescape(std::string_view text) {
    const auto hex = [&](std::size_t at, std::size_t digits, unsigned& value) {
        if (at + digits > text.size()) return false;
        const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + digits, value, 16);
        return error == std::errc() && end == text.data() + at + digits;
    };
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
        unsigned value = 0;
        if (next == 'n')
            out += '\n';
        else if (next == 'r')
            out += '\r';
        else if (next == 't')
            out += '\t';
        else if (next == '0')
            out += '\0';
        else if (next == '\\')
            out += '\\';
        else if (next == 'x' && hex(i + 2, 2, value)) {
            out += char(value);
            i += 2;
        } else if (next == 'u' && hex(i + 2, 4, value)) {
            unsigned low = 0;  // of a character beyond U+FFFF, which JSON writes as two
            const bool pair = value >> 10 == 0xD800 >> 10 &&
                              text.substr(std::min(i + 6, text.size())).starts_with("\\u") &&
                              hex(i + 8, 4, low) && low >> 10 == 0xDC00 >> 10;
            utf8::append(
                out, pair ? char32_t(0x10000 + ((value & 0x3FF) << 10 | (low & 0x3FF))) : char32_t(value));
            i += pair ? 10 : 4;
        } else {
            out += text[i];
            continue;
        }
        ++i;
    }
    return out;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i)
        for (std::size_t j = 0; j <= b.size(); ++j) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[a.size()][b.size()];
}

std::string human_bytes(double bytes) {
    const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (bytes >= 1024 && unit < 4) {
        bytes /= 1024;
        ++unit;
    }
    return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : bytes < 10 ? 2 : 1, units[unit]);
}

}  // namespace llmgen::app
