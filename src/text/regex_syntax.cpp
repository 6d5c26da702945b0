// Ruby's flavour, where it differs from Perl's:
//
//   ^ $          are at lines always; . is all but \n, with (?m) all
//   \h           a hexadecimal digit
//   x{n}?        is (?:x{n})?; x{n,m}+ is (?:x{n,m})+, not possessive; x{,m} is x{0,m}
//   [a[bc]&&d]   classes nest and intersect
//   a(?i)b|c     the option holds for the rest of the group: a(?i:b|c)
//   (…)          groups; there are no back references here, so nothing is captured
#include "text/regex_syntax.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/utf8.h"
#include "text/quote.h"

namespace llmgen::regex_syntax {
namespace {

using unicode::CodeSet;
constexpr int kMaxDepth = 100;
constexpr int kMaxRepeat = 65535;
constexpr std::size_t kMaxSets = 4096;

Node node_of(Kind kind) {
    Node n;
    n.kind = kind;
    return n;
}

/// Characters whose case folding is several letters of ASCII: (?i) takes one for the other.
struct MultiFold {
    std::u32string_view letters, characters;
};
constexpr MultiFold kMultiFolds[] = {{U"ffi", U"\uFB03"},     {U"ffl", U"\uFB04"}, {U"ff", U"\uFB00"},
                                     {U"fi", U"\uFB01"},      {U"fl", U"\uFB02"},  {U"ss", U"\u00DF\u1E9E"},
                                     {U"st", U"\uFB05\uFB06"}};

struct Options {
    bool any_case = false, dot_all = false, extended = false;
};

class Parser {
public:
    Parser(std::string_view pattern, const std::string& where, Tree& tree)
        : whole_(pattern), where_(where), tree_(tree) {
        for (std::string_view rest = pattern; !rest.empty();) {
            const utf8::Decoded d = utf8::decode(rest);
            chars_.push_back(d.code_point);
            rest.remove_prefix(std::size_t(d.length));
        }
    }
    Node parse_all() {
        Node node = alternatives({}, 0);
        if (!done()) broken("unmatched )");
        return node;
    }

private:
    [[noreturn]] void broken(std::string_view what) const {
        fail("{}: pattern {}, character {}: {}", where_, quote(whole_), at_ + 1, what);
    }
    bool done() const { return at_ >= chars_.size(); }
    char32_t peek(std::size_t k = 0) const { return at_ + k < chars_.size() ? chars_[at_ + k] : U'\0'; }
    bool looking_at(std::u32string_view s) const {
        return chars_.size() - at_ >= s.size() && std::u32string_view(chars_).substr(at_, s.size()) == s;
    }
    bool take(std::u32string_view s) {
        if (!looking_at(s)) return false;
        at_ += s.size();
        return true;
    }
    char32_t next(std::string_view missing) {
        if (done()) broken(missing);
        return chars_[at_++];
    }

    int set_index(CodeSet set) {
        const auto it = std::find(tree_.sets.begin(), tree_.sets.end(), set);
        if (it != tree_.sets.end()) return int(it - tree_.sets.begin());
        if (tree_.sets.size() == kMaxSets) broken("too many different character classes");
        tree_.sets.push_back(std::move(set));
        return int(tree_.sets.size()) - 1;
    }
    Node set_node(CodeSet set) {
        Node n = node_of(Kind::kSet);
        n.set = set_index(std::move(set));
        return n;
    }
    Node char_node(char32_t c, const Options& o) {
        if (!o.any_case) return set_node(CodeSet::of(c, c));
        Node n = set_node(unicode::case_closure(CodeSet::of(c, c)));
        for (const MultiFold& fold : kMultiFolds)
            if (fold.characters.find(c) != fold.characters.npos)
                return either(set_of(fold.characters), spelled(fold.letters));
        n.letter = c >= 'A' && c <= 'Z' ? c + 32 : c;
        return n;
    }
    Node set_of(std::u32string_view characters) {
        std::vector<CodeSet::Range> ranges;
        for (char32_t c : characters) ranges.emplace_back(c, c);
        return set_node(CodeSet(std::move(ranges)));
    }
    Node spelled(std::u32string_view letters) {
        Node n = node_of(Kind::kConcat);
        for (char32_t c : letters) n.children.push_back(set_node(unicode::case_closure(CodeSet::of(c, c))));
        return n;
    }
    static Node either(Node a, Node b) {
        Node n = node_of(Kind::kAlternate);
        n.children.push_back(std::move(a));
        n.children.push_back(std::move(b));
        return n;
    }
    /// Letters of (?i) that spell a character's folding may be that character.
    void join_folds(Node& branch) {
        std::vector<Node>& all = branch.children;
        for (std::size_t i = 0; i + 1 < all.size(); ++i) {
            for (const MultiFold& fold : kMultiFolds) {
                std::size_t n = 0;
                while (n < fold.letters.size() && i + n < all.size() && all[i + n].letter == fold.letters[n])
                    ++n;
                if (n < fold.letters.size()) continue;
                all[i] = either(spelled(fold.letters), set_of(fold.characters));
                all.erase(all.begin() + std::ptrdiff_t(i) + 1, all.begin() + std::ptrdiff_t(i + n));
                break;
            }
        }
    }

    Node alternatives(Options o, int depth) {
        if (depth > kMaxDepth) broken("groups are nested too deeply");
        Node all = node_of(Kind::kAlternate);
        do {
            all.children.push_back(branch(o, depth));
        } while (take(U"|"));
        return all.children.size() == 1 ? std::move(all.children[0]) : all;
    }

    Node branch(Options& o, int depth) {
        Node all = node_of(Kind::kConcat);
        while (!done() && peek() != '|' && peek() != ')') {
            if (o.extended && skip_extended()) continue;
            if (take(U"(?#")) {
                while (next("comment without end") != ')') {
                }
                continue;
            }
            bool rest_of_group = false;
            Node n = atom(o, depth, rest_of_group);
            if (!rest_of_group) n = quantified(std::move(n), o);
            all.children.push_back(std::move(n));
        }
        join_folds(all);
        return all;
    }

    bool skip_extended() {
        const char32_t c = peek();
        if (c == ' ' || (c >= 9 && c <= 13)) {
            ++at_;
            return true;
        }
        if (c != '#') return false;
        while (!done() && next("") != '\n') {
        }
        return true;
    }

    Node quantified(Node n, const Options& o) {
        while (!done()) {
            if (o.extended && skip_extended()) continue;
            Node r = node_of(Kind::kRepeat);
            bool interval = false;
            if (take(U"?")) {
                r.max = 1;
            } else if (take(U"*")) {
                r.max = kUnbounded;
            } else if (take(U"+")) {
                r.min = 1;
                r.max = kUnbounded;
            } else if (peek() == '{' && braces(r)) {
                interval = true;
            } else {
                break;
            }
            if (interval && r.min == r.max && looking_at(U"?")) {
                // the ? is a quantifier of its own
            } else if (take(U"?")) {
                r.greed = Greed::kLazy;
            } else if (!interval && take(U"+")) {
                r.greed = Greed::kPossessive;
            }
            r.children.push_back(std::move(n));
            n = std::move(r);
            if (++n_repeats_ > 2000) broken("too many quantifiers");
        }
        return n;
    }

    /// {n}, {n,}, {n,m}, {,m}; anything else is literal text.
    bool braces(Node& r) {
        const std::size_t start = at_++;
        const auto number = [&]() -> std::optional<int> {
            if (peek() < '0' || peek() > '9') return std::nullopt;
            int v = 0;
            while (peek() >= '0' && peek() <= '9')
                v = std::min(v * 10 + int(chars_[at_++] - '0'), kMaxRepeat + 1);
            return v;
        };
        const std::optional<int> low = number();
        bool ok = true;
        if (take(U",")) {
            const std::optional<int> high = number();
            ok = low || high;
            r.min = low.value_or(0);
            r.max = high.value_or(kUnbounded);
        } else {
            ok = low.has_value();
            r.min = r.max = low.value_or(0);
        }
        if (!ok || !take(U"}")) {
            at_ = start;
            return false;
        }
        if (r.min > kMaxRepeat || r.max > kMaxRepeat) broken("a quantifier is too large");
        if (r.max != kUnbounded && r.max < r.min) broken("a quantifier's bounds are the wrong way round");
        return true;
    }

    Node atom(Options& o, int depth, bool& rest_of_group) {
        const char32_t c = next("");
        switch (c) {
            case '(':
                return group(o, depth, rest_of_group);
            case '[':
                return set_node(bracket(o, depth));
            case '.':
                return set_node(o.dot_all ? CodeSet::of(0, unicode::kMaxCodePoint)
                                          : ~CodeSet::of('\n', '\n'));
            case '^':
                return assertion(Kind::kLineStart);
            case '$':
                return assertion(Kind::kLineEnd);
            case '\\':
                return escape(o);
            case '?':
            case '*':
            case '+':
                broken("a quantifier with nothing before it");
            default:
                return char_node(c, o);
        }
    }

    Node assertion(Kind kind) {
        if (kind == Kind::kLineStart || kind == Kind::kLineEnd || kind == Kind::kTextEndLine)
            tree_.line_feed = set_index(CodeSet::of('\n', '\n'));
        if (kind == Kind::kWordEdge || kind == Kind::kNotWordEdge)
            tree_.word = set_index(unicode::bare_word());
        return node_of(kind);
    }

    Node wrap(Kind kind, Node inside) {
        Node n = node_of(kind);
        n.children.push_back(std::move(inside));
        return n;
    }

    Node group(Options& o, int depth, bool& rest_of_group) {
        Kind kind = Kind::kConcat;
        Options inner = o;
        if (take(U"?")) {
            if (take(U":")) {
            } else if (take(U"=")) {
                kind = Kind::kAhead;
            } else if (take(U"!")) {
                kind = Kind::kNotAhead;
            } else if (take(U"<=")) {
                kind = Kind::kBehind;
            } else if (take(U"<!")) {
                kind = Kind::kNotBehind;
            } else if (take(U">")) {
                kind = Kind::kAtomic;
            } else if (peek() == '<' || peek() == '\'') {
                const char32_t end = next("") == '<' ? U'>' : U'\'';
                while (next("group name without end") != end) {
                }
            } else if (options(inner)) {  // (?i) up to the end of the enclosing group
                rest_of_group = true;
                return alternatives(inner, depth + 1);
            }
        }
        Node inside = alternatives(inner, depth + 1);
        if (!take(U")")) broken("a group without end");
        return wrap(kind, std::move(inside));
    }

    /// After "(?": option letters. True if ")" ends them, false if ":" does.
    bool options(Options& o) {
        bool on = true;
        for (;;) {
            switch (next("a group without end")) {
                case '-':
                    on = false;
                    break;
                case 'i':
                    o.any_case = on;
                    break;
                case 'm':
                    o.dot_all = on;
                    break;
                case 'x':
                    o.extended = on;
                    break;
                case ')':
                    return true;
                case ':':
                    return false;
                default:
                    broken("this kind of group is not supported");
            }
        }
    }

    std::optional<CodeSet> class_escape(char32_t c, bool in_bracket) {
        switch (c) {
            case 'd':
                return unicode::posix_class("digit");
            case 'D':
                return ~*unicode::posix_class("digit");
            case 's':
                return unicode::posix_class("space");
            case 'S':
                return ~*unicode::posix_class("space");
            case 'w':
                return in_bracket ? *unicode::posix_class("word") : unicode::bare_word();
            case 'W':
                return ~(in_bracket ? *unicode::posix_class("word") : unicode::bare_word());
            case 'h':
                return unicode::posix_class("xdigit");
            case 'H':
                return ~*unicode::posix_class("xdigit");
            case 'p':
            case 'P':
                return property(c == 'P');
            default:
                return std::nullopt;
        }
    }

    CodeSet property(bool negate) {
        if (!take(U"{")) broken("\\p without {name}");
        if (take(U"^")) negate = !negate;
        std::string name;
        for (char32_t c; (c = next("\\p{ without end")) != '}';) utf8::append(name, c);
        const std::optional<CodeSet> set = unicode::property(name);
        if (!set) broken("unknown character property " + quote(name));
        return negate ? ~*set : *set;
    }

    /// The character that an escape other than a class stands for; nullopt for what is none.
    std::optional<char32_t> char_escape(char32_t c) {
        switch (c) {
            case 't':
                return '\t';
            case 'n':
                return '\n';
            case 'r':
                return '\r';
            case 'f':
                return '\f';
            case 'v':
                return '\v';
            case 'a':
                return '\a';
            case 'e':
                return 0x1B;
            case 'x':
                return take(U"{") ? hex(8, true) : hex(2, false);
            case 'u': {
                const std::size_t before = at_;
                const char32_t v = hex(4, false);
                if (at_ != before + 4) broken("\\u needs four digits");
                return v;
            }
            case '0':
                return octal(0);
            default:
                break;
        }
        const bool is_alnum = (c >= '1' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
        return is_alnum && c < 0x80 ? std::nullopt : std::optional(c);
    }
    char32_t hex(int max_digits, bool braced) {
        std::uint32_t v = 0;
        int n = 0;
        for (; n < max_digits; ++n, ++at_) {
            const char32_t c = peek(), lower = c | 32;
            if (c >= '0' && c <= '9')
                v = v * 16 + (c - '0');
            else if (lower >= 'a' && lower <= 'f')
                v = v * 16 + (lower - 'a' + 10);
            else
                break;
        }
        if (braced && (n == 0 || !take(U"}"))) broken("\\x{ without end");
        if (v > unicode::kMaxCodePoint) broken("not a code point");
        if (!braced && max_digits == 2 && v >= 0x80) broken("\\x of a byte above 7F is not supported");
        return v;
    }
    static bool is_octal(char32_t c) { return c >= '0' && c <= '7'; }
    char32_t octal(char32_t v) {
        for (int n = 0; n < 2 && is_octal(peek()); ++n) v = v * 8 + (chars_[at_++] - '0');
        return v;
    }

    Node escape(const Options& o) {
        const char32_t c = next("the pattern ends in a backslash");
        switch (c) {
            case 'A':
                return assertion(Kind::kTextStart);
            case 'z':
                return assertion(Kind::kTextEnd);
            case 'Z':
                return assertion(Kind::kTextEndLine);
            case 'G':
                return assertion(Kind::kSearchStart);
            case 'b':
                return assertion(Kind::kWordEdge);
            case 'B':
                return assertion(Kind::kNotWordEdge);
            case 'N':
                return set_node(~CodeSet::of('\n', '\n'));
            case 'O':
                return set_node(CodeSet::of(0, unicode::kMaxCodePoint));
            case 'R':
                return line_break();
            default:
                break;
        }
        if (c >= '1' && c <= '7' && is_octal(peek()) && is_octal(peek(1)))
            return char_node(octal(c - '0'), o);
        if (auto set = class_escape(c, false))
            return set_node(o.any_case ? unicode::case_closure(*set) : *set);
        if (const auto value = char_escape(c)) return char_node(*value, o);
        broken("\\" + utf8::encode(c) + " is not supported");
    }

    Node line_break() {
        Node crlf = node_of(Kind::kConcat);
        crlf.children.push_back(set_node(CodeSet::of('\r', '\r')));
        crlf.children.push_back(set_node(CodeSet::of('\n', '\n')));
        Node all = node_of(Kind::kAlternate);
        all.children.push_back(std::move(crlf));
        all.children.push_back(set_node(CodeSet({{'\n', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}})));
        return wrap(Kind::kAtomic, std::move(all));
    }

    /// After "[".
    CodeSet bracket(const Options& o, int depth) {
        if (depth > kMaxDepth) broken("classes are nested too deeply");
        const bool negate = take(U"^");
        CodeSet all = CodeSet::of(0, unicode::kMaxCodePoint), part;
        bool intersects = false, first = true;
        for (;; first = false) {
            if (done()) broken("a class without end");
            if (peek() == ']' && !first) break;
            if (take(U"&&")) {
                all = all & part;
                part = {};
                intersects = true;
                continue;
            }
            part = part | bracket_item(o, depth);
        }
        ++at_;
        all = intersects ? all & part : part;
        if (o.any_case) all = unicode::case_closure(all);
        return negate ? ~all : all;
    }

    CodeSet bracket_item(const Options& o, int depth) {
        if (take(U"[:")) return posix();
        if (take(U"[")) return bracket(o, depth + 1);
        std::optional<CodeSet> set;
        const char32_t low = bracket_char(set);
        if (set) return *set;
        if (peek() != '-' || peek(1) == ']' || at_ + 1 >= chars_.size()) return CodeSet::of(low, low);
        const std::size_t before = at_++;
        if (looking_at(U"[") || looking_at(U"&&")) {  // the hyphen is one
            at_ = before;
            return CodeSet::of(low, low);
        }
        const char32_t high = bracket_char(set);
        if (set) return *set | CodeSet::of(low, low) | CodeSet::of('-', '-');
        if (high < low) broken("a range of characters is the wrong way round");
        return CodeSet::of(low, high);
    }

    char32_t bracket_char(std::optional<CodeSet>& set) {
        const char32_t c = next("a class without end");
        if (c != '\\') return c;
        const char32_t e = next("the pattern ends in a backslash");
        if (e == 'b') return '\b';
        if ((set = class_escape(e, true))) return 0;
        if (e >= '1' && e <= '7') return octal(e - '0');
        if (const auto value = char_escape(e)) return *value;
        broken("\\" + utf8::encode(e) + " is not supported in a class");
    }

    CodeSet posix() {
        const bool negate = take(U"^");
        std::string name;
        while (!done() && peek() != ':' && peek() != ']') utf8::append(name, next(""));
        const std::optional<CodeSet> set = unicode::posix_class(name);
        if (!set || !take(U":]")) broken("unknown class [:" + name + ":]");
        return negate ? ~*set : *set;
    }

    std::string_view whole_;
    const std::string& where_;
    Tree& tree_;
    std::u32string chars_;
    std::size_t at_ = 0;
    int n_repeats_ = 0;
};

}  // namespace

Tree parse(std::string_view pattern, const std::string& where) {
    Tree tree;
    tree.root = Parser(pattern, where, tree).parse_all();
    return tree;
}

}  // namespace llmgen::regex_syntax
