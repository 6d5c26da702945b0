#include "text/jinja/lexer.h"

#include <array>

#include "base/utf8.h"
#include "text/jinja/unicode.h"

namespace llmgen::jinja {
namespace {

struct Operator {
    std::string_view text;
    Tok type;
};
// Longer ones first.
constexpr std::array kOperators = {
    Operator{"//", Tok::floordiv}, Operator{"**", Tok::pow},      Operator{"==", Tok::eq},
    Operator{"!=", Tok::ne},       Operator{">=", Tok::gteq},     Operator{"<=", Tok::lteq},
    Operator{"+", Tok::add},       Operator{"-", Tok::sub},       Operator{"/", Tok::div},
    Operator{"*", Tok::mul},       Operator{"%", Tok::mod},       Operator{"~", Tok::tilde},
    Operator{"[", Tok::lbracket},  Operator{"]", Tok::rbracket},  Operator{"(", Tok::lparen},
    Operator{")", Tok::rparen},    Operator{"{", Tok::lbrace},    Operator{"}", Tok::rbrace},
    Operator{">", Tok::gt},        Operator{"<", Tok::lt},        Operator{"=", Tok::assign},
    Operator{".", Tok::dot},       Operator{":", Tok::colon},     Operator{"|", Tok::pipe},
    Operator{",", Tok::comma},     Operator{";", Tok::semicolon},
};

[[noreturn]] void syntax_error(std::string message, std::size_t offset) {
    throw Failure{"TemplateSyntaxError", std::move(message), offset};
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
public:
    explicit Lexer(const std::string& source) : s_(source) {}

    std::vector<Token> run() {
        try {
            while (at_ < s_.size()) root();
            tokens_.push_back({Tok::eof, tokens_.empty() ? 0 : tokens_.back().offset, ""});
        } catch (const Failure& f) {
            Token t{Tok::fault, f.offset, ""};
            t.failure = f;
            tokens_.push_back(std::move(t));
        }
        return std::move(tokens_);
    }

private:
    bool looking_at(std::string_view text) const { return s_.compare(at_, text.size(), text) == 0; }
    char peek(std::size_t ahead = 0) const { return at_ + ahead < s_.size() ? s_[at_ + ahead] : '\0'; }

    std::size_t skip_space(std::size_t at) const {
        while (at < s_.size()) {
            const utf8::Decoded d = utf8::decode(std::string_view(s_).substr(at));
            if (!unicode::is_space(d.code_point)) break;
            at += std::size_t(d.length);
        }
        return at;
    }

    // The text before a tag, with what its sign or lstrip_blocks takes away.
    void data(std::size_t begin, std::size_t end, char sign, bool variable) {
        std::string_view text = std::string_view(s_).substr(begin, end - begin);
        if (sign == '-') {
            text = text.substr(0, trimmed(text));
        } else if (sign != '+' && !variable) {
            const std::size_t newline = text.rfind('\n');
            const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
            if ((line > 0 || line_starting_) && trimmed(text.substr(line)) == 0) text = text.substr(0, line);
        }
        if (!text.empty()) tokens_.push_back({Tok::data, begin, std::string(text)});
    }

    static std::size_t trimmed(std::string_view text) {
        std::size_t end = 0;
        for (std::size_t at = 0; at < text.size();) {
            const utf8::Decoded d = utf8::decode(text.substr(at));
            at += std::size_t(d.length);
            if (!unicode::is_space(d.code_point)) end = at;
        }
        return end;
    }

    char sign() {
        const char c = peek();
        if (c != '-' && c != '+') return '\0';
        ++at_;
        return c;
    }

    void root() {
        const std::size_t begin = at_;
        std::size_t tag = begin;
        for (;; ++tag) {
            tag = s_.find('{', tag);
            if (tag == std::string::npos || tag + 1 >= s_.size()) {
                tokens_.push_back({Tok::data, begin, s_.substr(begin)});
                at_ = s_.size();
                return;
            }
            if (s_[tag + 1] == '%' || s_[tag + 1] == '{' || s_[tag + 1] == '#') break;
        }
        at_ = tag + 2;
        if (s_[tag + 1] == '#') {
            data(begin, tag, sign(), false);
            comment(tag);
        } else if (s_[tag + 1] == '{') {
            data(begin, tag, sign(), true);
            tokens_.push_back({Tok::variable_begin, tag, ""});
            line_starting_ = false;
            expression(true);
        } else {
            const char mark = sign();
            data(begin, tag, mark, false);
            if (raw_begin()) {
                raw(tag);
            } else {
                tokens_.push_back({Tok::block_begin, tag, ""});
                line_starting_ = false;
                expression(false);
            }
        }
    }

    // After "%}", "-%}", "+%}" or the like: what the end of a tag swallows.
    void swallow(char mark, bool newline) {
        const std::size_t begin = at_;
        if (mark == '-')
            at_ = skip_space(at_);
        else if (newline && mark != '+' && peek() == '\n')
            ++at_;
        line_starting_ = at_ > begin && s_[at_ - 1] == '\n';
    }

    void comment(std::size_t tag) {
        const std::size_t end = s_.find("#}", at_);
        if (end == std::string::npos) syntax_error("Missing end of comment tag", tag);
        const char before = end > at_ ? s_[end - 1] : '\0';
        at_ = end + 2;
        swallow(before == '-' || before == '+' ? before : '\0', true);
    }

    // At "{%" and its sign: whether "raw %}" follows, which is then passed.
    bool raw_begin() {
        std::size_t at = skip_space(at_);
        if (s_.compare(at, 3, "raw") != 0) return false;
        at = skip_space(at + 3);
        if (s_.compare(at, 2, "%}") == 0) {
            at_ = at + 2;
            line_starting_ = false;
            return true;
        }
        if (s_.compare(at, 3, "-%}") != 0) return false;
        at_ = at + 3;
        swallow('-', false);
        return true;
    }

    void raw(std::size_t tag) {
        const std::size_t begin = at_;
        for (std::size_t open = s_.find("{%", begin); open != std::string::npos;
             open = s_.find("{%", open + 1)) {
            at_ = open + 2;
            const char mark = sign();
            at_ = skip_space(at_);
            if (!looking_at("endraw")) continue;
            at_ = skip_space(at_ + 6);
            char end_mark = '\0';
            if (peek() == '-' || peek() == '+') end_mark = s_[at_++];
            if (!looking_at("%}")) continue;
            at_ += 2;
            data(begin, open, mark, false);
            swallow(end_mark, true);
            return;
        }
        syntax_error("Missing end of raw directive", tag);
    }

    void expression(bool variable) {
        std::string brackets;
        while (at_ < s_.size()) {
            if (brackets.empty() && end_of_tag(variable)) return;
            const std::size_t space = skip_space(at_);
            if (space != at_) {
                at_ = space;
                continue;
            }
            if (number() || name() || string() || operation(brackets)) continue;
            const utf8::Decoded d = utf8::decode(std::string_view(s_).substr(at_));
            const std::string c = s_.substr(at_, std::size_t(d.length));
            syntax_error("unexpected char " +
                             (c == "'"    ? "\"'\""
                              : c == "\\" ? "'\\\\'"
                                          : "'" + c + "'") +
                             " at " + std::to_string(utf8::length(std::string_view(s_).substr(0, at_))),
                         at_);
        }
    }

    bool end_of_tag(bool variable) {
        const std::size_t begin = at_;
        char mark = '\0';
        if (peek() == '-' || (!variable && peek() == '+')) mark = s_[at_++];
        if (!looking_at(variable ? "}}" : "%}")) {
            at_ = begin;
            return false;
        }
        tokens_.push_back({variable ? Tok::variable_end : Tok::block_end, begin, ""});
        at_ += 2;
        swallow(mark, !variable);
        return true;
    }

    // Digits with single underscores between them.
    std::size_t digits(std::size_t at) const {
        while (at < s_.size() &&
               (is_digit(s_[at]) || (s_[at] == '_' && at + 1 < s_.size() && is_digit(s_[at + 1]) && at > 0 &&
                                     is_digit(s_[at - 1]))))
            ++at;
        return at;
    }

    bool number() {
        if (!is_digit(peek())) return false;
        const std::size_t begin = at_;
        const std::size_t whole = digits(begin);
        if (begin == 0 || s_[begin - 1] != '.') {
            std::size_t end = whole;
            if (end + 1 < s_.size() && s_[end] == '.' && is_digit(s_[end + 1])) end = digits(end + 1);
            std::size_t e = end;
            if (e < s_.size() && (s_[e] | 0x20) == 'e') {
                ++e;
                if (e < s_.size() && (s_[e] == '+' || s_[e] == '-')) ++e;
                if (e < s_.size() && is_digit(s_[e])) end = digits(e);
            }
            if (end > whole) {
                Token t{Tok::floating, begin, ""};
                t.number = Value::floating(parse_float(s_.substr(begin, end - begin)).value_or(0));
                tokens_.push_back(std::move(t));
                at_ = end;
                return true;
            }
        }
        at_ = integer_end(begin);
        Token t{Tok::integer, begin, ""};
        if (at_ - begin > 4300)
            syntax_error("Exceeds the limit (4300 digits) for integer string conversion", begin);
        t.number = *parse_int(s_.substr(begin, at_ - begin), 0);
        tokens_.push_back(std::move(t));
        return true;
    }

    std::size_t integer_end(std::size_t at) const {
        const auto run = [&](std::size_t from, auto&& accepts) {  // (_?d)*
            while (from < s_.size()) {
                if (accepts(s_[from]))
                    ++from;
                else if (s_[from] == '_' && from + 1 < s_.size() && accepts(s_[from + 1]))
                    from += 2;
                else
                    break;
            }
            return from;
        };
        if (s_[at] != '0') return run(at, is_digit);
        const char kind = at + 1 < s_.size() ? char(s_[at + 1] | 0x20) : '\0';
        std::size_t end = at + 2;
        if (kind == 'b') end = run(at + 2, [](char c) { return c == '0' || c == '1'; });
        if (kind == 'o') end = run(at + 2, [](char c) { return c >= '0' && c <= '7'; });
        if (kind == 'x')
            end = run(at + 2, [](char c) { return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); });
        if (end > at + 2) return end;
        return run(at, [](char c) { return c == '0'; });
    }

    bool name() {
        const std::size_t begin = at_;
        bool identifier = true;
        while (at_ < s_.size()) {
            const utf8::Decoded d = utf8::decode(std::string_view(s_).substr(at_));
            const char32_t c = d.code_point;
            if (!unicode::is_word(c) && !unicode::is_id_continue(c)) break;
            identifier &= at_ == begin ? unicode::is_id_start(c) : unicode::is_id_continue(c);
            at_ += std::size_t(d.length);
        }
        if (at_ == begin) return false;
        if (!identifier) syntax_error("Invalid character in identifier", begin);
        tokens_.push_back({Tok::name, begin, s_.substr(begin, at_ - begin)});
        return true;
    }

    bool string() {
        const char quote = peek();
        if (quote != '\'' && quote != '"') return false;
        std::size_t end = at_ + 1;
        while (end < s_.size() && s_[end] != quote) end += s_[end] == '\\' ? 2 : 1;
        if (end >= s_.size()) return false;
        tokens_.push_back(
            {Tok::string, at_, unescape(std::string_view(s_).substr(at_ + 1, end - at_ - 1), at_)});
        at_ = end + 1;
        return true;
    }

    static std::string unescape(std::string_view text, std::size_t offset);

    bool operation(std::string& brackets) {
        for (const Operator& op : kOperators) {
            if (!looking_at(op.text)) continue;
            if (op.type == Tok::lparen) brackets += ')';
            if (op.type == Tok::lbracket) brackets += ']';
            if (op.type == Tok::lbrace) brackets += '}';
            if (op.type == Tok::rparen || op.type == Tok::rbracket || op.type == Tok::rbrace) {
                if (brackets.empty()) syntax_error("unexpected '" + std::string(op.text) + "'", at_);
                if (brackets.back() != op.text[0])
                    syntax_error(
                        "unexpected '" + std::string(op.text) + "', expected '" + brackets.back() + "'", at_);
                brackets.pop_back();
            }
            tokens_.push_back({op.type, at_, ""});
            at_ += op.text.size();
            return true;
        }
        return false;
    }

    const std::string& s_;
    std::size_t at_ = 0;
    bool line_starting_ = true;
    std::vector<Token> tokens_;
};

void append_escaped_code(std::string& out, unsigned long code) {
    utf8::append(out, code >= 0xD800 && code <= 0xDFFF ? utf8::kReplacement : char32_t(code));
}

// \xHH, \uHHHH, \UHHHHHHHH after the letter; passes the digits.
void unescape_hex(std::string& out, std::string_view text, std::size_t& at, char letter, std::size_t offset) {
    const std::size_t n = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
    unsigned long code = 0;
    for (std::size_t i = 0; i < n; ++i, ++at) {
        const char c = at < text.size() ? text[at] : '\0';
        const int digit = is_digit(c)                              ? c - '0'
                          : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                                   : -1;
        if (digit < 0)
            syntax_error(std::string("truncated \\") + letter + std::string(n, 'X') + " escape", offset);
        code = code * 16 + unsigned(digit);
    }
    if (code > 0x10FFFF) syntax_error("illegal Unicode character", offset);
    append_escaped_code(out, code);
}

std::string Lexer::unescape(std::string_view text, std::size_t offset) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        const char c = text[at++];
        if (c != '\\' || at >= text.size()) {
            out += c;
            continue;
        }
        const char e = text[at];
        const std::string_view simple = "\\'\"abfnrtv", meaning = "\\'\"\a\b\f\n\r\t\v";
        if (static_cast<unsigned char>(e) >= 0x80) {
            // The reference writes the character as an escape of its own first, whose backslash is then the
            // escaped one.
            const utf8::Decoded d = utf8::decode(text.substr(at));
            char code[12];
            std::snprintf(code, sizeof code,
                          d.code_point < 0x100     ? "x%02x"
                          : d.code_point < 0x10000 ? "u%04x"
                                                   : "U%08x",
                          unsigned(d.code_point));
            out += '\\';
            out += code;
            at += std::size_t(d.length);
            continue;
        }
        ++at;
        if (const std::size_t i = simple.find(e); i != std::string_view::npos) {
            out += meaning[i];
        } else if (e == '\n') {
            continue;
        } else if (e >= '0' && e <= '7') {
            unsigned long code = 0;
            --at;
            for (int i = 0; i < 3 && at < text.size() && text[at] >= '0' && text[at] <= '7'; ++i)
                code = code * 8 + unsigned(text[at++] - '0');
            append_escaped_code(out, code);
        } else if (e == 'x' || e == 'u' || e == 'U') {
            unescape_hex(out, text, at, e, offset);
        } else if (e == 'N') {
            const std::size_t close = text.find('}', at);
            if (at >= text.size() || text[at] != '{' || close == std::string_view::npos)
                syntax_error("malformed \\N character escape", offset);
            const auto named = character_named(text.substr(at + 1, close - at - 1));
            if (!named) syntax_error("unknown Unicode character name", offset);
            utf8::append(out, *named);
            at = close + 1;
        } else {
            out += '\\';
            out += e;
        }
    }
    return out;
}

}  // namespace

std::string normalise_template(std::string_view text) {
    const std::string valid = utf8::repair(text);
    std::string out;
    out.reserve(valid.size());
    for (std::size_t i = 0; i < valid.size(); ++i) {
        if (valid[i] != '\r') {
            out += valid[i];
            continue;
        }
        out += '\n';
        if (i + 1 < valid.size() && valid[i + 1] == '\n') ++i;
    }
    if (!out.empty() && out.back() == '\n') out.pop_back();
    return out;
}

std::vector<Token> tokenise(const std::string& source) { return Lexer(source).run(); }

std::string describe(Tok type) {
    switch (type) {
        case Tok::data:
            return "template data / text";
        case Tok::variable_begin:
            return "begin of print statement";
        case Tok::variable_end:
            return "end of print statement";
        case Tok::block_begin:
            return "begin of statement block";
        case Tok::block_end:
            return "end of statement block";
        case Tok::name:
            return "name";
        case Tok::string:
            return "string";
        case Tok::integer:
            return "integer";
        case Tok::floating:
            return "float";
        case Tok::eof:
            return "end of template";
        default:
            break;
    }
    for (const Operator& op : kOperators)
        if (op.type == type) return std::string(op.text);
    return "fault";
}

std::string describe(const Token& token) {
    return token.type == Tok::name ? token.text : describe(token.type);
}

}  // namespace llmgen::jinja
