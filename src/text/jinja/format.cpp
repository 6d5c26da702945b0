// "{}".format(x) and format(x, spec), with provenance: what the format string says keeps its own, what a
// value prints keeps the value's. "%s" % x is in percent.cpp.
#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "text/jinja/layout.h"

namespace llmgen::jinja {
Text pad(const Layout& l, const std::string& prefix, const Text& body, char default_align) {
    const char align = l.align ? l.align : default_align;
    const std::int64_t length = std::int64_t(utf8::length(prefix) + body.length());
    const std::int64_t missing = std::max<std::int64_t>(0, l.width - length);
    const std::int64_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
    TextBuilder out;
    for (std::int64_t i = 0; i < before; ++i) out.append(l.fill);
    out.append(prefix, body.any_user());
    if (align == '=')
        for (std::int64_t i = 0; i < missing; ++i) out.append(l.fill);
    out.append(body);
    if (align == '<' || align == '^')
        for (std::int64_t i = 0; i < missing - before; ++i) out.append(l.fill);
    return out.finish();
}

namespace {

std::string group(const std::string& digits, char separator, std::size_t every) {
    if (!separator) return digits;
    std::string out;
    for (std::size_t i = 0; i < digits.size(); ++i) {
        if (i && (digits.size() - i) % every == 0) out += separator;
        out += digits[i];
    }
    return out;
}

}  // namespace

std::string sign_of(const Layout& l, bool negative) {
    return negative ? "-" : l.sign == '+' ? "+" : l.sign == ' ' ? " " : "";
}

namespace {

std::string print_double(char type, int precision, double d, bool alternate) {
    std::string format = "%";
    if (alternate) format += '#';
    format += ".*";
    format += type;
    char small[64];
    const int n = std::snprintf(small, sizeof small, format.c_str(), precision, d);
    if (n < int(sizeof small)) return small;
    std::string out(std::size_t(n) + 1, '\0');
    std::snprintf(out.data(), out.size(), format.c_str(), precision, d);
    out.pop_back();
    return out;
}

// No type but a precision: like g, but with a digit after the point, and an exponent one digit sooner.
std::string general_with_point(int precision, double magnitude) {
    std::string s = print_double('e', precision - 1, magnitude, false);
    const std::size_t e = s.find('e');
    const int exponent = std::stoi(s.substr(e + 1));
    const bool fixed = exponent >= -4 && exponent < precision - 1;
    const std::string tail = s.substr(e);
    s = fixed ? print_double('f', precision - 1 - exponent, magnitude, false) : s.substr(0, e);
    if (s.find('.') != std::string::npos) {
        s.erase(s.find_last_not_of('0') + 1);
        if (s.back() == '.') s.pop_back();
    }
    if (!fixed) return s + tail;
    return s.find('.') == std::string::npos ? s + ".0" : s;
}

// The magnitude of a float in a type of the mini language.
std::string float_body(const Layout& l, double magnitude) {
    char type = l.type;
    if (!std::isfinite(magnitude)) {
        std::string s = std::isnan(magnitude) ? "nan" : "inf";
        if (type == 'F' || type == 'E' || type == 'G')
            std::transform(s.begin(), s.end(), s.begin(), ::toupper);
        return s + (type == '%' ? "%" : "");
    }
    const int precision = int(std::min<std::int64_t>(l.precision, 5000));
    if (type == '\0' && precision < 0) return format_float(magnitude);
    if (type == '%')
        return print_double('f', precision < 0 ? 6 : precision, magnitude * 100, l.alternate) + "%";
    if (type == 'n') type = 'g';
    if (type == '\0') return general_with_point(std::max(precision, 1), magnitude);
    return print_double(type,
                        precision < 0                                    ? 6
                        : (type == 'g' || type == 'G') && precision == 0 ? 1
                                                                         : precision,
                        magnitude, l.alternate);
}

}  // namespace

Text format_float_value(const Layout& l, double d, bool user) {
    const bool negative = std::signbit(d) && !std::isnan(d);
    std::string body = float_body(l, std::fabs(d));
    if (l.grouping) {
        const std::size_t whole = body.find_first_not_of("0123456789");
        const std::size_t end = whole == std::string::npos ? body.size() : whole;
        body = group(body.substr(0, end), l.grouping, 3) + body.substr(end);
    }
    return pad(l, sign_of(l, negative), Text(body, user), '>');
}

namespace {

// Zero padding in front of grouped digits is grouped, too.
std::string zero_grouped(std::string digits, const Layout& l, std::size_t every, std::size_t prefix) {
    std::string out = group(digits, l.grouping, every);
    if (l.fill != "0" || l.align != '=') return out;
    while (std::int64_t(out.size() + prefix) < l.width) {
        digits.insert(digits.begin(), '0');
        out = group(digits, l.grouping, every);
    }
    return out;
}

Text format_int_value(const Layout& l, const Value& v) {
    const BigInt i = v.to_big();
    const int base = l.type == 'b' ? 2 : l.type == 'o' ? 8 : l.type == 'x' || l.type == 'X' ? 16 : 10;
    std::string digits = (i.negative() ? -i : i).to_string(base);
    std::string prefix = sign_of(l, i.negative());
    if (l.alternate && base != 10) prefix += std::string("0") + l.type;
    if (l.type == 'X') std::transform(digits.begin(), digits.end(), digits.begin(), ::toupper);
    if (l.grouping) digits = zero_grouped(digits, l, base == 10 ? 3 : 4, prefix.size());
    return pad(l, prefix, Text(digits, v.from_user()), '>');
}

std::optional<Layout> parse_spec(std::string_view spec) {
    Layout l;
    std::size_t at = 0;
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    if (!spec.empty()) {
        const std::size_t first = std::size_t(utf8::decode(spec).length);
        if (first < spec.size() && is_align(spec[first])) {
            l.fill = std::string(spec.substr(0, first));
            l.align = spec[first];
            at = first + 1;
        } else if (is_align(spec[0])) {
            l.align = spec[0];
            at = 1;
        }
    }
    const auto peek = [&] { return at < spec.size() ? spec[at] : '\0'; };
    const auto number = [&]() -> std::int64_t {
        std::int64_t n = 0;
        while (peek() >= '0' && peek() <= '9') {
            n = std::min<std::int64_t>(n * 10 + (spec[at] - '0'), kMaxWidth + 1);
            ++at;
        }
        return n;
    };
    if (peek() == '+' || peek() == '-' || peek() == ' ') l.sign = spec[at++];
    if (peek() == '#') {
        l.alternate = true;
        ++at;
    }
    if (peek() == '0') {
        if (!l.align) {
            l.fill = "0";
            l.align = '=';
        }
        ++at;
    }
    l.width = number();
    if (peek() == ',' || peek() == '_') l.grouping = spec[at++];
    if (peek() == '.') {
        ++at;
        if (peek() < '0' || peek() > '9') raise("ValueError", "Format specifier missing precision");
        l.precision = number();
    }
    if (at < spec.size()) l.type = spec[at++];
    if (at < spec.size()) return std::nullopt;
    if (l.width > kMaxWidth || l.precision > kMaxWidth) raise("ResourceError", "a format that is too wide");
    return l;
}

[[noreturn]] void unknown_code(char type, const Value& v) {
    raise("ValueError",
          std::string("Unknown format code '") + type + "' for object of type '" + type_name(v) + "'");
}

}  // namespace

Text format_value(Interpreter& in, const Value& v, const Text& spec) {
    if (spec.empty()) return in.str(v);
    if (v.is_undefined()) raise("TypeError", "unsupported format string passed to Undefined.__format__");
    const auto parsed = parse_spec(spec.view());
    if (!parsed) raise("ValueError", "Invalid format specifier '" + std::string(spec.view()) + "'");
    Layout l = *parsed;
    in.charge(std::size_t(l.width));
    if (v.is_string()) {
        if (l.type && l.type != 's') unknown_code(l.type, v);
        if (l.grouping) raise("ValueError", std::string("Cannot specify '") + l.grouping + "' with 's'.");
        if (l.align == '=' && l.fill != "0")
            raise("ValueError", "'=' alignment not allowed in string format specifier");
        if (l.sign != '-') raise("ValueError", "Sign not allowed in string format specifier");
        if (l.align == '=') l.align = '<';
        Text body = v.text();
        if (l.precision >= 0) body = body.slice(0, body.offset(std::size_t(l.precision)));
        return pad(l, "", body, '<');
    }
    if (v.is_integral()) {
        const bool groups = l.grouping == ','
                                ? std::string_view("boxXcn").find(l.type) == std::string_view::npos
                                : l.type != 'c' && l.type != 'n';
        if (l.grouping && l.type && !groups)
            raise("ValueError", std::string("Cannot specify '") + l.grouping + "' with '" + l.type + "'.");
        if (l.type && std::string_view("eEfFgG%").find(l.type) != std::string_view::npos) {
            const double d = v.type() == Type::big_integer ? v.as_big().to_double() : double(v.as_int());
            return format_float_value(l, d, v.from_user());
        }
        if (l.type == 'c') {
            const std::int64_t code = index_value(v);
            if (code < 0 || code > 0x10FFFF) raise("OverflowError", "%c arg not in range(0x110000)");
            return pad(
                l, "",
                Text(utf8::encode(code >= 0xD800 && code < 0xE000 ? utf8::kReplacement : char32_t(code))),
                '<');
        }
        if (l.type && std::string_view("dnboxX").find(l.type) == std::string_view::npos)
            unknown_code(l.type, v);
        if (l.precision >= 0) raise("ValueError", "Precision not allowed in integer format specifier");
        return format_int_value(l, v);
    }
    if (v.is_float()) {
        if (l.type && std::string_view("eEfFgGn%").find(l.type) == std::string_view::npos)
            unknown_code(l.type, v);
        return format_float_value(l, v.as_float(), v.from_user());
    }
    raise("TypeError", "unsupported format string passed to " + type_name(v) + ".__format__");
}

// --- str.format ---

namespace {

class Formatter {
public:
    Formatter(Interpreter& in, const Arguments& a, const Value* mapping, bool markup)
        : in_(in), a_(a), mapping_(mapping), markup_(markup) {}

    Text run(const Text& format, int depth = 2) {
        if (depth < 0) raise("ValueError", "Max string recursion exceeded");
        TextBuilder out;
        const std::string_view s = format.view();
        for (std::size_t at = 0; at < s.size();) {
            const std::size_t brace = s.find_first_of("{}", at);
            if (brace == std::string_view::npos) {
                out.append(format, at, s.size());
                break;
            }
            out.append(format, at, brace);
            if (brace + 1 < s.size() && s[brace + 1] == s[brace]) {
                out.append(format, brace, brace + 1);
                at = brace + 2;
                continue;
            }
            if (s[brace] == '}') raise("ValueError", "Single '}' encountered in format string");
            std::size_t end = brace + 1;
            for (int open = 1; open > 0; ++end) {
                if (end >= s.size())
                    raise("ValueError", end == brace + 1 ? "Single '{' encountered in format string"
                                                         : "expected '}' before end of string");
                open += s[end] == '{' ? 1 : s[end] == '}' ? -1 : 0;
            }
            out.append(field(format.slice(brace + 1, end - 1), depth));
            at = end;
        }
        in_.charge(out.size());
        return out.finish();
    }

private:
    // name[!conversion][:spec]
    Text field(const Text& text, int depth) {
        const std::string_view s = text.view();
        std::size_t end = 0;
        for (bool bracket = false; end < s.size(); ++end) {
            if (s[end] == '[') bracket = true;
            if (s[end] == ']') bracket = false;
            if (!bracket && (s[end] == '!' || s[end] == ':')) break;
        }
        Value v = lookup(s.substr(0, end));
        if (end < s.size() && s[end] == '!') {
            const char conversion = end + 1 < s.size() ? s[end + 1] : '\0';
            if (conversion == '\0') raise("ValueError", "unmatched '{' in format spec");
            if (end + 2 < s.size() && s[end + 2] != ':')
                raise("ValueError", "expected ':' after conversion specifier");
            if (conversion == 'r' || conversion == 'a')
                v = Value::string(in_.repr(v));
            else if (conversion == 's')
                v = Value::string(in_.str(v), v.is_markup());
            else
                raise("ValueError", std::string("Unknown conversion specifier '") + conversion + "'");
            end += 2;
        }
        Text spec;
        if (end < s.size()) spec = run(text.slice(end + 1, s.size()), depth - 1);
        if (!markup_ || v.is_markup()) return format_value(in_, v, spec);
        return escape_html(format_value(in_, v, spec));
    }

    Value lookup(std::string_view name) {
        std::size_t at = name.find_first_of(".[");
        if (at == std::string_view::npos) at = name.size();
        Value v = first(name.substr(0, at));
        while (at < name.size()) {
            if (name[at] == '.') {
                std::size_t end = name.find_first_of(".[", at + 1);
                if (end == std::string_view::npos) end = name.size();
                if (end == at + 1) raise("ValueError", "Empty attribute in format string");
                v = in_.attribute(v, name.substr(at + 1, end - at - 1));
                at = end;
            } else if (name[at] == '[') {
                const std::size_t end = name.find(']', at);
                if (end == std::string_view::npos) raise("ValueError", "Missing ']' in format string");
                const std::string_view key = name.substr(at + 1, end - at - 1);
                if (key.empty()) raise("ValueError", "Empty attribute in format string");
                const bool digits =
                    key.find_first_not_of("0123456789") == std::string_view::npos && key.size() < 18;
                v = in_.item(v, digits ? Value::integer(std::stoll(std::string(key)))
                                       : Value::string(std::string(key)));
                at = end + 1;
            } else {
                raise("ValueError", "Only '.' or '[' may follow ']' in format field specifier");
            }
        }
        return v;
    }

    Value first(std::string_view name) {
        const bool digits = name.find_first_not_of("0123456789") == std::string_view::npos;
        if (!digits || mapping_) {
            if (mapping_) return in_.item(*mapping_, Value::string(std::string(name)));
            for (const auto& [key, v] : a_.keyword)
                if (key.view() == name) return v;
            raise("KeyError", "'" + std::string(name) + "'");
        }
        if (name.size() > 9) raise("ValueError", "Too many decimal digits in format string");
        if (name.empty() ? numbered_ == 2 : numbered_ == 1)
            raise("ValueError",
                  name.empty()
                      ? "cannot switch from manual field specification to automatic field numbering"
                      : "cannot switch from automatic field numbering to manual field specification");
        numbered_ = name.empty() ? 1 : 2;
        const std::size_t i = name.empty() ? next_++ : std::size_t(std::stoul(std::string(name)));
        if (i >= a_.positional.size()) raise("IndexError", "tuple index out of range");
        return a_.positional[i];
    }

    Interpreter& in_;
    const Arguments& a_;
    const Value* mapping_;
    bool markup_;
    int numbered_ = 0;  // 1 automatic, 2 manual
    std::size_t next_ = 0;
};

}  // namespace

Text str_format(Interpreter& in, const Value& format, const Arguments& arguments, const Value* mapping) {
    return Formatter(in, arguments, mapping, format.is_markup()).run(format.text());
}

}  // namespace llmgen::jinja
