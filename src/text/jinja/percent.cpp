// Python's "%s" % x, with provenance: what the format string says keeps its own, what a value prints keeps
// the value's.
#include <algorithm>
#include <cmath>

#include "text/jinja/layout.h"

namespace llmgen::jinja {
namespace {

class PercentFormatter {
public:
    PercentFormatter(Interpreter& in, const Value& format, const Value& argument)
        : in_(in), format_(format), argument_(argument) {
        if (argument.is_tuple())
            values_ = argument.items();
        else
            values_ = {argument};
    }

    Value run() {
        const Text& text = format_.text();
        const std::string_view s = text.view();
        TextBuilder out;
        for (std::size_t at = 0; at < s.size();) {
            const std::size_t percent = std::min(s.find('%', at), s.size());
            out.append(text, at, percent);
            if (percent == s.size()) break;
            at = percent + 1;
            out.append(conversion(s, at));
        }
        // To Python whatever has a __getitem__ is a mapping here: an undefined has one, which would raise.
        const bool mapping = argument_.is_dict() || argument_.is_list() || argument_.is_undefined();
        if (!by_key_ && !mapping && next_ < values_.size())
            raise("TypeError", "not all arguments converted during string formatting");
        return in_.own(out.finish(), format_.is_markup());
    }

private:
    const Value& next() {
        if (next_ >= values_.size()) raise("TypeError", "not enough arguments for format string");
        return values_[next_++];
    }

    std::int64_t number(std::string_view s, std::size_t& at) {
        if (at < s.size() && s[at] == '*') {
            ++at;
            const Value& v = next();
            if (!v.is_integral()) raise("TypeError", "* wants int");
            return index_value(v);
        }
        std::int64_t n = 0;
        while (at < s.size() && s[at] >= '0' && s[at] <= '9')
            n = std::min<std::int64_t>(n * 10 + (s[at++] - '0'), kMaxWidth + 1);
        return n;
    }

    Text conversion(std::string_view s, std::size_t& at) {
        std::optional<Value> keyed;
        if (at < s.size() && s[at] == '(') {
            std::size_t end = at + 1;
            for (int open = 1; open > 0; ++end) {
                if (end >= s.size()) raise("ValueError", "incomplete format key");
                open += s[end] == '(' ? 1 : s[end] == ')' ? -1 : 0;
            }
            if (!argument_.is_dict()) raise("TypeError", "format requires a mapping");
            const std::string key(s.substr(at + 1, end - at - 2));
            const Value* v = argument_.as_dict().find(key);
            if (!v) raise("KeyError", "'" + key + "'");
            keyed = *v;
            by_key_ = true;
            at = end;
        }
        Layout l;
        bool zero = false, left = false;
        for (; at < s.size() && std::string_view("-+ #0").find(s[at]) != std::string_view::npos; ++at) {
            left |= s[at] == '-';
            zero |= s[at] == '0';
            l.alternate |= s[at] == '#';
            if (s[at] == '+') l.sign = '+';
            if (s[at] == ' ' && l.sign != '+') l.sign = ' ';
        }
        l.width = number(s, at);
        if (l.width < 0) {
            left = true;
            l.width = l.width < -kMaxWidth ? kMaxWidth + 1 : -l.width;
        }
        if (at < s.size() && s[at] == '.') {
            ++at;
            l.precision = std::max<std::int64_t>(0, number(s, at));
        }
        while (at < s.size() && (s[at] == 'l' || s[at] == 'h' || s[at] == 'L')) ++at;
        if (at >= s.size()) raise("ValueError", "incomplete format");
        if (l.width > kMaxWidth || l.precision > kMaxWidth)
            raise("ResourceError", "a format that is too wide");
        in_.charge(std::size_t(l.width));
        l.type = s[at++];
        if (l.type == '%') return Text("%");
        const Value v = keyed ? *keyed : next();
        l.align = left ? '<' : '>';
        return convert(l, v, zero && !left, at - 1);
    }

    Text convert(Layout l, const Value& v, bool zero, std::size_t at) {
        const auto zero_fill = [&] {
            if (!zero) return;
            l.fill = "0";
            l.align = '=';
        };
        switch (l.type) {
            case 's':
            case 'r':
            case 'a': {
                Text body = l.type == 's' ? in_.str(v) : in_.repr(v);
                if (format_.is_markup()) body = v.is_markup() && l.type == 's' ? body : escape_html(body);
                if (l.precision >= 0) body = body.slice(0, body.offset(std::size_t(l.precision)));
                return pad(l, "", body, '>');
            }
            case 'c': {
                if (v.is_string() && v.text().length() == 1) return pad(l, "", v.text(), '>');
                if (!v.is_integral()) raise("TypeError", "%c requires int or char");
                Layout c = l;
                c.type = 'c';
                c.align = '\0';
                c.width = 0;
                return pad(l, "", format_value(in_, v, Text("c")), '>');
            }
            case 'd':
            case 'i':
            case 'u':
            case 'x':
            case 'X':
            case 'o': {
                const bool decimal = l.type == 'd' || l.type == 'i' || l.type == 'u';
                Value i = v;
                if (decimal && v.is_undefined()) raise_undefined(v);
                if (decimal && v.is_float()) {
                    if (!std::isfinite(v.as_float()))
                        raise("OverflowError", "cannot convert float infinity to integer");
                    i = Value::integer(BigInt::from_double(v.as_float()));
                }
                if (!i.is_integral())
                    raise("TypeError", std::string("%") + l.type +
                                           " format: " + (decimal ? "a real number" : "an integer") +
                                           " is required, not " + type_name(v));
                const BigInt big = i.to_big();
                const int base = decimal ? 10 : l.type == 'o' ? 8 : 16;
                std::string digits = (big.negative() ? -big : big).to_string(base);
                if (l.type == 'X') std::transform(digits.begin(), digits.end(), digits.begin(), ::toupper);
                if (std::int64_t(digits.size()) < l.precision)
                    digits.insert(0, std::size_t(l.precision) - digits.size(), '0');
                std::string prefix = sign_of(l, big.negative());
                if (l.alternate && !decimal) prefix += std::string("0") + l.type;
                zero_fill();
                return pad(l, prefix, Text(digits, v.from_user()), '>');
            }
            case 'e':
            case 'E':
            case 'f':
            case 'F':
            case 'g':
            case 'G': {
                if (v.is_undefined()) raise_undefined(v);
                if (!v.is_number()) raise("TypeError", "must be real number, not " + type_name(v));
                const double d = v.is_float() ? v.as_float() : v.to_big().to_double();
                if (l.precision < 0) l.precision = 6;
                zero_fill();
                return format_float_value(l, d, v.from_user());
            }
            default:
                raise("ValueError", std::string("unsupported format character '") + l.type + "' (0x" +
                                        BigInt(static_cast<unsigned char>(l.type)).to_string(16) +
                                        ") at index " + std::to_string(at));
        }
    }

    Interpreter& in_;
    const Value& format_;
    const Value& argument_;
    List values_;
    std::size_t next_ = 0;
    bool by_key_ = false;
};

}  // namespace

Value percent_format(Interpreter& in, const Value& format, const Value& argument) {
    return PercentFormatter(in, format, argument).run();
}

}  // namespace llmgen::jinja
