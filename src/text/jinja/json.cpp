// JSON in and out as Python's json module does it: integers of any size, NaN and Infinity, key order kept,
// the last of equal keys wins.
//
// Strings are marked as the user's, so they keep their provenance through whatever a template does with them.
// Invalid UTF-8 and lone surrogates become U+FFFD.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/utf8.h"
#include "text/jinja/eval.h"
#include "text/jinja/lexer.h"
#include "text/jinja/objects.h"

namespace llmgen::jinja {
namespace {

class JsonParser {
public:
    JsonParser(std::string_view text, bool user) : s_(text), user_(user) {}

    Value run() {
        Value v = value(0);
        space();
        if (at_ < s_.size()) fail("extra data");
        return v;
    }

private:
    [[noreturn]] void fail(const std::string& what) const {
        const std::string_view before = s_.substr(0, at_);
        const std::size_t line = 1 + std::size_t(std::count(before.begin(), before.end(), '\n'));
        const std::size_t newline = before.rfind('\n');
        const std::size_t column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
        raise("ValueError", "invalid JSON, line " + std::to_string(line) + ", column " +
                                std::to_string(column) + ": " + what);
    }
    void space() {
        while (at_ < s_.size() && (s_[at_] == ' ' || s_[at_] == '\t' || s_[at_] == '\n' || s_[at_] == '\r'))
            ++at_;
    }
    char peek() const { return at_ < s_.size() ? s_[at_] : '\0'; }
    bool word(std::string_view w) {
        if (s_.substr(at_, w.size()) != w) return false;
        at_ += w.size();
        return true;
    }

    Value value(int depth) {
        if (depth > kMaxDepth - 20) fail("nested too deeply");
        space();
        switch (peek()) {
            case '{':
                return object(depth);
            case '[':
                return array(depth);
            case '"':
                return Value::string(Text(string(), user_));
            default:
                break;
        }
        if (word("null")) return Value().with_user(user_);
        if (word("true")) return Value::boolean(true).with_user(user_);
        if (word("false")) return Value::boolean(false).with_user(user_);
        if (word("NaN")) return Value::floating(std::nan("")).with_user(user_);
        if (word("Infinity")) return Value::floating(HUGE_VAL).with_user(user_);
        if (word("-Infinity")) return Value::floating(-HUGE_VAL).with_user(user_);
        return number();
    }

    Value object(int depth) {
        auto d = std::make_shared<Dict>();
        ++at_;
        space();
        if (peek() == '}') {
            ++at_;
            return Value::dict(std::move(d));
        }
        for (;;) {
            space();
            if (peek() != '"') fail("a key in double quotes is missing");
            Value key = Value::string(Text(string(), user_));
            space();
            if (peek() != ':') fail("':' is missing");
            ++at_;
            d->set(std::move(key), value(depth + 1));
            space();
            const char c = peek();
            if (c != ',' && c != '}') fail("',' or '}' is missing");
            ++at_;
            if (c == '}') return Value::dict(std::move(d));
        }
    }

    Value array(int depth) {
        List items;
        ++at_;
        space();
        if (peek() == ']') {
            ++at_;
            return Value::list({});
        }
        for (;;) {
            items.push_back(value(depth + 1));
            space();
            const char c = peek();
            if (c != ',' && c != ']') fail("',' or ']' is missing");
            ++at_;
            if (c == ']') return Value::list(std::move(items));
        }
    }

    unsigned hex4() {
        if (at_ + 4 > s_.size()) fail("\\u needs four hexadecimal digits");
        unsigned code = 0;
        const auto [end, error] = std::from_chars(s_.data() + at_, s_.data() + at_ + 4, code, 16);
        if (error != std::errc() || end != s_.data() + at_ + 4) fail("\\u needs four hexadecimal digits");
        at_ += 4;
        return code;
    }

    void escape(std::string& out) {
        const char e = peek();
        ++at_;
        static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
        if (const std::size_t i = kFrom.find(e); e != '\0' && i != std::string_view::npos) {
            out += kTo[i];
            return;
        }
        if (e != 'u') fail("an unknown escape");
        unsigned code = hex4();
        if (code >= 0xD800 && code < 0xDC00 && s_.substr(at_, 2) == "\\u") {
            const std::size_t back = at_;
            at_ += 2;
            const unsigned low = hex4();
            if (low >= 0xDC00 && low < 0xE000)
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            else
                at_ = back;
        }
        utf8::append(out, code >= 0xD800 && code < 0xE000 ? utf8::kReplacement : char32_t(code));
    }

    std::string string() {
        std::string out;
        for (++at_;;) {
            const std::size_t begin = at_;
            while (at_ < s_.size() && s_[at_] != '"' && s_[at_] != '\\' &&
                   static_cast<unsigned char>(s_[at_]) >= 0x20)
                ++at_;
            out.append(s_.substr(begin, at_ - begin));
            if (at_ >= s_.size()) fail("a string that does not end");
            const char c = s_[at_];
            if (c != '"' && c != '\\') fail("a control character in a string");
            ++at_;
            if (c == '"') return out;
            escape(out);
        }
    }

    Value number() {
        const std::size_t begin = at_;
        const auto digits = [&] {
            const std::size_t from = at_;
            while (peek() >= '0' && peek() <= '9') ++at_;
            return at_ > from;
        };
        if (peek() == '-') ++at_;
        const std::size_t whole = at_;
        if (!digits() || (s_[whole] == '0' && at_ > whole + 1)) {
            at_ = begin;
            fail("a value is missing");
        }
        bool integer = true;
        if (peek() == '.' && at_ + 1 < s_.size() && s_[at_ + 1] >= '0' && s_[at_ + 1] <= '9') {
            ++at_;
            digits();
            integer = false;
        }
        if (peek() == 'e' || peek() == 'E') {
            ++at_;
            if (peek() == '+' || peek() == '-') ++at_;
            if (!digits()) fail("an exponent without digits");
            integer = false;
        }
        const std::string_view text = s_.substr(begin, at_ - begin);
        if (!integer) return Value::floating(parse_float(text).value_or(0)).with_user(user_);
        const auto v = parse_int(text, 10);
        if (!v) fail("an integer of more than 4300 digits");
        return v->with_user(user_);
    }

    std::string_view s_;
    bool user_;
    std::size_t at_ = 0;
};

class JsonWriter {
public:
    JsonWriter(Interpreter& in, const JsonStyle& style) : in_(in), style_(style) {}

    void write(const Value& v, int level) {
        in_.step();
        switch (v.type()) {
            case Type::none:
                out.append("null", v.from_user());
                return;
            case Type::boolean:
                out.append(v.as_bool() ? "true" : "false", v.from_user());
                return;
            case Type::integer:
            case Type::big_integer:
                out.append(scalar_text(v), v.from_user());
                return;
            case Type::floating:
                out.append(number(v.as_float()), v.from_user());
                return;
            case Type::string:
                string(v.text());
                return;
            case Type::list:
            case Type::tuple:
                array(v.items(), level);
                return;
            case Type::dict:
                object(v.as_dict(), level);
                return;
            default:
                raise("TypeError", "Object of type " + type_name(v) + " is not JSON serializable");
        }
    }
    TextBuilder out;

private:
    static std::string number(double d) {
        if (std::isnan(d)) return "NaN";
        if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
        return format_float(d);
    }

    void line(int level) {
        if (!style_.indent) return;
        in_.charge(style_.indent->size() * std::size_t(level));
        out.append("\n");
        for (int i = 0; i < level; ++i) out.append(*style_.indent);
    }

    void array(const List& items, int level) {
        if (items.empty()) return out.append("[]");
        out.append("[");
        for (std::size_t i = 0; i < items.size(); ++i) {
            if (i) out.append(style_.item_separator);
            line(level + 1);
            write(items[i], level + 1);
        }
        line(level);
        out.append("]");
    }

    void object(const Dict& d, int level) {
        if (d.size() == 0) return out.append("{}");
        std::vector<const std::pair<Value, Value>*> entries;
        for (const auto& entry : d.entries()) entries.push_back(&entry);
        if (style_.sort_keys)
            std::stable_sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
                return compare(a->first, b->first, "<") == -1;
            });
        out.append("{");
        bool first = true;
        for (const auto* entry : entries) {
            if (!first) out.append(style_.item_separator);
            first = false;
            line(level + 1);
            key(entry->first);
            out.append(style_.key_separator);
            write(entry->second, level + 1);
        }
        line(level);
        out.append("}");
    }

    void key(const Value& k) {
        if (k.is_string()) return string(k.text());
        if (!k.is_number() && !k.is_none())
            raise("TypeError", "keys must be str, int, float, bool or None, not " + type_name(k));
        out.append("\"");
        write(k, 0);
        out.append("\"");
    }

    void string(const Text& text) {
        out.append("\"");
        for (TextReader r(text); !r.done();) {
            const std::size_t begin = r.at();
            const char32_t c = r.next();
            static constexpr std::string_view kFrom = "\"\\\n\r\t\f\b", kTo = "\"\\nrtfb";
            if (const std::size_t i = c < 0x80 ? kFrom.find(char(c)) : std::string_view::npos;
                i != std::string_view::npos) {
                const char escaped[2] = {'\\', kTo[i]};
                out.append(std::string_view(escaped, 2), r.user());
            } else if (c < 0x20 || (style_.ensure_ascii && c > 0x7E)) {
                unicode(c, r.user());
            } else {
                out.append(text, begin, r.at());
            }
        }
        out.append("\"");
        in_.charge(text.size());
    }

    void unicode(char32_t c, bool user) {
        char code[16];
        if (c < 0x10000)
            std::snprintf(code, sizeof code, "\\u%04x", unsigned(c));
        else
            std::snprintf(code, sizeof code, "\\u%04x\\u%04x", 0xD800 + unsigned((c - 0x10000) >> 10),
                          0xDC00 + unsigned((c - 0x10000) & 0x3FF));
        out.append(code, user);
    }

    Interpreter& in_;
    const JsonStyle& style_;
};

}  // namespace

Value parse_json(std::string_view text, bool user) {
    const std::string valid = utf8::is_valid(text) ? std::string() : utf8::repair(text);
    return JsonParser(valid.empty() ? text : std::string_view(valid), user).run();
}

Text dump_json(Interpreter& in, const Value& v, const JsonStyle& style) {
    JsonWriter w(in, style);
    w.write(v, 0);
    return w.out.finish();
}

}  // namespace llmgen::jinja
