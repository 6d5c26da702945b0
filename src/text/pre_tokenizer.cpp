#include "text/pre_tokenizer.h"

#include <optional>

#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/unicode.h"

namespace llmgen {
namespace {

std::string_view view(const PreText& t, Span s) { return t.text.substr(s.begin, s.end - s.begin); }
Span make_span(std::size_t begin, std::size_t end) { return {std::uint32_t(begin), std::uint32_t(end)}; }

/// Calls f(code point, begin, end) for each character of a piece of valid UTF-8.
template <typename F>
void each_char(const PreText& t, Span s, F f) {
    for (std::size_t at = s.begin; at < s.end;) {
        const utf8::Decoded d = utf8::decode(t.text.substr(at, s.end - at));
        f(d.code_point, at, at + std::size_t(d.length));
        at += std::size_t(d.length);
    }
}

/// Replaces the pieces by what `split(piece)` appends to t.next.
template <typename F>
void replace_pieces(PreText& t, F split) {
    t.next.clear();
    for (const Span piece : t.pieces) split(piece);
    std::swap(t.pieces, t.next);
}

class Sequence final : public PreTokenizer {
public:
    explicit Sequence(std::vector<PreTokenizerPtr> steps) : steps_(std::move(steps)) {}
    void apply(PreText& t) const override {
        for (const PreTokenizerPtr& step : steps_) step->apply(t);
    }
    bool asks_for_start() const override {
        for (const PreTokenizerPtr& step : steps_)
            if (step->asks_for_start()) return true;
        return false;
    }

private:
    std::vector<PreTokenizerPtr> steps_;
};

class RegexSplit final : public PreTokenizer {
public:
    RegexSplit(std::string_view pattern, Behavior behavior, bool invert, const std::string& where)
        : behavior_(behavior), invert_(invert) {
        // A pattern written out by hand covers the text, so that isolating the matches and keeping only them
        // are one.
        if ((behavior == Behavior::kIsolated && !invert) || (behavior == Behavior::kRemoved && invert))
            fast_ = known_pattern(pattern);
        if (!fast_) regex_.emplace(pattern, where);
    }
    void apply(PreText& t) const override {
        if (fast_) return replace_pieces(t, [&](Span piece) { fast_(view(t, piece), piece.begin, t.next); });
        Regex::Subject subject(*regex_, t.text);
        replace_pieces(t, [&](Span piece) {
            t.matches.clear();
            subject.find_all(piece, t.matches);
            split_at(piece, t.matches, behavior_, invert_, t.next);
        });
    }

private:
    Behavior behavior_;
    bool invert_;
    std::optional<Regex> regex_;
    SplitFunction fast_ = nullptr;
};

class StringSplit final : public PreTokenizer {
public:
    StringSplit(std::string needle, Behavior behavior, bool invert)
        : needle_(std::move(needle)), behavior_(behavior), invert_(invert) {}
    void apply(PreText& t) const override {
        replace_pieces(t, [&](Span piece) {
            t.matches.clear();
            const std::string_view text = view(t, piece);
            for (std::size_t at = text.find(needle_); at != text.npos;
                 at = text.find(needle_, at + needle_.size()))
                t.matches.push_back(make_span(piece.begin + at, piece.begin + at + needle_.size()));
            split_at(piece, t.matches, behavior_, invert_, t.next);
        });
    }

private:
    std::string needle_;
    Behavior behavior_;
    bool invert_;
};

/// Splits at single characters that satisfy F.
template <typename F>
class CharSplit final : public PreTokenizer {
public:
    CharSplit(F wanted, Behavior behavior) : wanted_(wanted), behavior_(behavior) {}
    void apply(PreText& t) const override {
        replace_pieces(t, [&](Span piece) {
            t.matches.clear();
            each_char(t, piece, [&](char32_t c, std::size_t begin, std::size_t end) {
                if (wanted_(c)) t.matches.push_back(make_span(begin, end));
            });
            split_at(piece, t.matches, behavior_, false, t.next);
        });
    }

private:
    F wanted_;
    Behavior behavior_;
};
template <typename F>
PreTokenizerPtr char_split(F wanted, Behavior behavior) {
    return std::make_unique<CharSplit<F>>(wanted, behavior);
}
auto has_flag(std::uint16_t flag) {
    return [flag](char32_t c) { return (unicode::flags()[c] & flag) != 0; };
}

class ByteLevel final : public PreTokenizer {
public:
    ByteLevel(bool add_prefix_space, bool use_regex, bool to_alphabet)
        : add_prefix_space_(add_prefix_space), use_regex_(use_regex), to_alphabet_(to_alphabet) {}
    void apply(PreText& t) const override {
        if (add_prefix_space_) prefix(t);
        if (use_regex_)
            replace_pieces(t, [&](Span piece) { split_gpt2(view(t, piece), piece.begin, t.next); });
        if (to_alphabet_) map(t);
    }

private:
    static void prefix(PreText& t) {
        bool all_have = true;
        for (const Span piece : t.pieces) all_have = all_have && view(t, piece).starts_with(' ');
        if (all_have) return;
        const bool at_start = t.at_start();
        std::string changed;
        changed.reserve(t.text.size() + t.pieces.size());
        for (Span& piece : t.pieces) {
            const std::string_view text = view(t, piece);
            const std::size_t begin = changed.size();
            if (!text.starts_with(' ')) changed += ' ';
            changed += text;
            piece = make_span(begin, changed.size());
        }
        t.own(std::move(changed), at_start);
    }
    static void map(PreText& t) {
        const bool at_start = t.at_start();
        std::string changed;
        changed.reserve(t.text.size() * 2);
        for (Span& piece : t.pieces) {
            const std::size_t begin = changed.size();
            for (char c : view(t, piece)) append_alphabet(changed, static_cast<unsigned char>(c));
            piece = make_span(begin, changed.size());
        }
        t.own(std::move(changed), at_start);
    }
    bool add_prefix_space_, use_regex_, to_alphabet_;
};

class Metaspace final : public PreTokenizer {
public:
    Metaspace(std::string replacement, PrependScheme scheme, bool split)
        : replacement_(std::move(replacement)), scheme_(scheme), split_(split) {}
    bool asks_for_start() const override { return scheme_ == PrependScheme::kFirst; }
    void apply(PreText& t) const override {
        const bool at_start = t.at_start();
        std::string changed;
        changed.reserve(t.text.size() * 2);
        for (Span& piece : t.pieces) {
            const std::string_view text = view(t, piece);
            const std::size_t begin = changed.size();
            const bool wants = scheme_ == PrependScheme::kAlways ||
                               (scheme_ == PrependScheme::kFirst && piece.begin < t.start_end);
            if (wants && !text.starts_with(' ') && !text.starts_with(replacement_)) changed += replacement_;
            for (char c : text) c == ' ' ? changed += replacement_ : changed += c;
            piece = make_span(begin, changed.size());
        }
        t.own(std::move(changed), at_start);
        if (split_) StringSplit(replacement_, Behavior::kMergedWithNext, false).apply(t);
    }

private:
    std::string replacement_;
    PrependScheme scheme_;
    bool split_;
};

class Whitespace final : public PreTokenizer {
public:
    // \w+|[^\w\s]+ of the regex crate: runs of word characters and runs of what is neither.
    void apply(PreText& t) const override {
        replace_pieces(t, [&](Span piece) {
            int previous = 0;
            each_char(t, piece, [&](char32_t c, std::size_t begin, std::size_t end) {
                const std::uint16_t f = unicode::flags()[c];
                const int kind = f & unicode::kIsWord ? 1 : f & unicode::kIsSpace ? 0 : 2;
                if (kind != 0 && kind == previous)
                    t.next.back().end = std::uint32_t(end);
                else if (kind != 0)
                    t.next.push_back(make_span(begin, end));
                previous = kind;
            });
        });
    }
};

class UnicodeScripts final : public PreTokenizer {
public:
    // A border stands before a character whose script is another than that of the last character that had
    // one. Spaces have none, so those at the front of a piece belong to no part of it, and are lost (so the
    // reference).
    void apply(PreText& t) const override {
        replace_pieces(t, [&](Span piece) {
            std::optional<unsigned> last;
            const std::size_t before = t.next.size();
            each_char(t, piece, [&](char32_t c, std::size_t begin, std::size_t) {
                const unsigned script = unicode::script_class(c);
                if (script == 0) return;
                if (last != script) {
                    if (t.next.size() > before) t.next.back().end = std::uint32_t(begin);
                    t.next.push_back(make_span(begin, piece.end));
                }
                last = script;
            });
        });
    }
};

class FixedLength final : public PreTokenizer {
public:
    explicit FixedLength(std::size_t n_chars) : n_chars_(n_chars) {}
    void apply(PreText& t) const override {
        replace_pieces(t, [&](Span piece) {
            std::size_t n = 0;
            each_char(t, piece, [&](char32_t, std::size_t begin, std::size_t end) {
                if (n++ % n_chars_ == 0)
                    t.next.push_back(make_span(begin, end));
                else
                    t.next.back().end = std::uint32_t(end);
            });
        });
    }

private:
    std::size_t n_chars_;
};

}  // namespace

void split_at(
    Span piece, const std::vector<Span>& matches, Behavior behavior, bool invert, std::vector<Span>& out) {
    const std::size_t before = out.size();
    bool previous = false;
    const auto add = [&](std::uint32_t begin, std::uint32_t end, bool is_match) {
        is_match = is_match != invert;
        const bool has_last = out.size() > before;
        switch (behavior) {
            case Behavior::kRemoved:
                if (!is_match) out.push_back({begin, end});
                break;
            case Behavior::kIsolated:
                out.push_back({begin, end});
                break;
            case Behavior::kContiguous:
                if (is_match == previous && has_last)
                    out.back().end = end;
                else
                    out.push_back({begin, end});
                break;
            case Behavior::kMergedWithPrevious:
                if (is_match && !previous && has_last)
                    out.back().end = end;
                else
                    out.push_back({begin, end});
                break;
            case Behavior::kMergedWithNext:  // the part after a match joins it, if it is none itself
                if (!is_match && previous && has_last)
                    out.back().end = end;
                else
                    out.push_back({begin, end});
                break;
        }
        previous = is_match;
    };
    std::uint32_t at = piece.begin;
    for (const Span m : matches) {
        if (at < m.begin) add(at, m.begin, false);
        add(m.begin, m.end, true);
        at = m.end;
    }
    if (at < piece.end) add(at, piece.end, false);
    std::size_t kept = before;
    for (std::size_t i = before; i < out.size(); ++i)
        if (out[i].begin < out[i].end) out[kept++] = out[i];
    out.resize(kept);
}

PreTokenizerPtr make_sequence(std::vector<PreTokenizerPtr> steps) {
    return std::make_unique<Sequence>(std::move(steps));
}
PreTokenizerPtr make_regex_split(std::string_view pattern,
                                 Behavior behavior,
                                 bool invert,
                                 const std::string& where) {
    return std::make_unique<RegexSplit>(pattern, behavior, invert, where);
}
PreTokenizerPtr make_string_split(std::string needle, Behavior behavior, bool invert) {
    return std::make_unique<StringSplit>(std::move(needle), behavior, invert);
}
PreTokenizerPtr make_byte_level(bool add_prefix_space, bool use_regex, bool to_alphabet) {
    return std::make_unique<ByteLevel>(add_prefix_space, use_regex, to_alphabet);
}
PreTokenizerPtr make_digits(bool individual) {
    return char_split(has_flag(unicode::kIsNumeric),
                      individual ? Behavior::kIsolated : Behavior::kContiguous);
}
PreTokenizerPtr make_punctuation(Behavior behavior) {
    return char_split(has_flag(unicode::kIsPunctuation), behavior);
}
PreTokenizerPtr make_whitespace() { return std::make_unique<Whitespace>(); }
PreTokenizerPtr make_whitespace_split() {
    return char_split(has_flag(unicode::kIsSpace), Behavior::kRemoved);
}
PreTokenizerPtr make_char_delimiter(char32_t delimiter) {
    return char_split([delimiter](char32_t c) { return c == delimiter; }, Behavior::kRemoved);
}
PreTokenizerPtr make_bert() {
    std::vector<PreTokenizerPtr> steps;
    steps.push_back(make_whitespace_split());
    steps.push_back(make_punctuation(Behavior::kIsolated));
    return make_sequence(std::move(steps));
}
PreTokenizerPtr make_unicode_scripts() { return std::make_unique<UnicodeScripts>(); }
PreTokenizerPtr make_fixed_length(std::size_t n_chars) { return std::make_unique<FixedLength>(n_chars); }
PreTokenizerPtr make_metaspace(std::string replacement, PrependScheme scheme, bool split) {
    return std::make_unique<Metaspace>(std::move(replacement), scheme, split);
}

}  // namespace llmgen
