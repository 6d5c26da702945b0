// How each alternative of the Llama 3 pattern is decided at a piece's first character c, in the pattern's
// order:
//
//   (?i:'s|'t|…)              c is ' and a contraction follows ('ſ too: U+017F is an s to (?i))
//   [^\r\n\p{L}\p{N}]?\p{L}+  c is a letter, or c is no letter, number or line end and a letter follows
//   \p{N}{1,3}                c is a number
//    ?[^\s\p{L}\p{N}]+[\r\n]* c, or what follows a space, is none of space, letter, number
//   \s*[\r\n]+                c begins a run of spaces that has a line end: up to the last one of them
//   \s+(?!\S)                 the run reaches the text's end: all of it; else all but its last character
//   \s+                       a single space
#include "text/split_patterns.h"

#include <array>

#include "base/utf8.h"
#include "text/unicode.h"

namespace llmgen {
namespace {

enum Kind : std::uint8_t { kLetter, kNumber, kSpace, kLineEnd, kOther };

struct Char {
    Kind kind;
    std::uint32_t length;
};

template <bool kMarks>
Kind kind_of(std::uint32_t c) {
    if (c == '\r' || c == '\n') return kLineEnd;
    const std::uint16_t f = unicode::flags()[c];
    if (f & unicode::kIsLetter) return kLetter;
    if (kMarks && (f & unicode::kIsMark)) return kLetter;
    if (f & unicode::kIsNumber) return kNumber;
    return f & unicode::kIsSpace ? kSpace : kOther;
}

/// Classes of characters of one text; ASCII from a table of 128.
template <bool kMarks>
class Reader {
public:
    explicit Reader(std::string_view text) : text_(text), flags_(unicode::flags()) {}
    Char at(std::size_t i) const {
        const auto lead = static_cast<unsigned char>(text_[i]);
        if (lead < 0x80) return {ascii()[lead], 1};
        // Valid UTF-8 is given, so only the lengths have to be told apart.
        const auto tail = [&](std::size_t k) { return std::uint32_t(text_[i + k]) & 0x3F; };
        if (lead < 0xE0) return {wide((lead & 0x1FU) << 6 | tail(1)), 2};
        if (lead < 0xF0) return {wide((lead & 0x0FU) << 12 | tail(1) << 6 | tail(2)), 3};
        return {wide((lead & 0x07U) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3)), 4};
    }

private:
    static const std::array<Kind, 128>& ascii() {
        static const std::array<Kind, 128> table = [] {
            std::array<Kind, 128> t{};
            for (std::uint32_t c = 0; c < 128; ++c) t[c] = kind_of<kMarks>(c);
            return t;
        }();
        return table;
    }
    Kind wide(std::uint32_t c) const {
        const std::uint16_t f = flags_[c];
        if (f & (kMarks ? unicode::kIsLetter | unicode::kIsMark : unicode::kIsLetter)) return kLetter;
        if (f & unicode::kIsNumber) return kNumber;
        return f & unicode::kIsSpace ? kSpace : kOther;
    }
    std::string_view text_;
    const unicode::FlagTable& flags_;
};

bool is(char c, char lower) { return (c | 0x20) == lower; }

/// Bytes of the contraction that begins at the apostrophe, 0 where there is none.
template <bool kAnyCase>
std::size_t contraction(std::string_view text) {
    if (text.size() < 2) return 0;
    const auto same = [](char c, char lower) { return kAnyCase ? is(c, lower) : c == lower; };
    const char a = text[1];
    if (same(a, 's') || same(a, 't') || same(a, 'm') || same(a, 'd')) return 2;
    if (text.size() < 3) return 0;
    if (kAnyCase && a == '\xC5' && text[2] == '\xBF') return 3;
    const char b = text[2];
    if ((same(a, 'r') && same(b, 'e')) || (same(a, 'v') && same(b, 'e')) || (same(a, 'l') && same(b, 'l')))
        return 3;
    return 0;
}

/// End of the run of characters from `at` on that satisfy `in`.
template <typename R, typename F>
std::size_t run_end(const R& reader, std::size_t size, std::size_t at, F in) {
    while (at < size) {
        const Char c = reader.at(at);
        if (!in(c.kind)) break;
        at += c.length;
    }
    return at;
}

/// `\s+(?!\S)|\s+` at a space; with kLineEnds `\s*[\r\n]+` first.
template <bool kLineEnds, typename R>
std::size_t space_end(const R& reader, std::size_t size, std::size_t at) {
    std::size_t end = at, last = at, line = 0;
    while (end < size) {
        const Char c = reader.at(end);
        if (c.kind != kSpace && c.kind != kLineEnd) break;
        last = end;
        end += c.length;
        if (c.kind == kLineEnd) line = end;
    }
    if (kLineEnds && line != 0) return line;
    return end == size || last == at ? end : last;
}

template <int kDigits, bool kMarks>
void split_llama3(std::string_view text, std::uint32_t base, std::vector<Span>& pieces) {
    const Reader<kMarks> reader(text);
    const std::size_t size = text.size();
    const auto letter = [](Kind k) { return k == kLetter; };
    const auto other = [](Kind k) { return k == kOther; };
    for (std::size_t at = 0, end; at < size; at = end) {
        const Char c = reader.at(at);
        const std::size_t after = at + c.length;
        end = 0;
        if (text[at] == '\'') {
            if (const std::size_t n = contraction<true>(text.substr(at))) end = at + n;
        }
        if (end != 0) {
        } else if (c.kind == kLetter) {
            end = run_end(reader, size, after, letter);
        } else if (c.kind == kNumber) {
            end = after;
            for (int i = 1; i < kDigits && end < size; ++i) {
                const Char d = reader.at(end);
                if (d.kind != kNumber) break;
                end += d.length;
            }
        } else {
            const Kind following = after < size ? reader.at(after).kind : kSpace;
            if (c.kind != kLineEnd && following == kLetter)
                end = run_end(reader, size, after, letter);
            else if (c.kind == kOther || (text[at] == ' ' && following == kOther))
                end = run_end(reader, size, run_end(reader, size, after, other),
                              [](Kind k) { return k == kLineEnd; });
            else
                end = space_end<true>(reader, size, at);
        }
        pieces.push_back({base + std::uint32_t(at), base + std::uint32_t(end)});
    }
}

}  // namespace

void split_gpt2(std::string_view text, std::uint32_t base, std::vector<Span>& pieces) {
    const Reader<false> reader(text);
    const std::size_t size = text.size();
    for (std::size_t at = 0, end; at < size; at = end) {
        const std::size_t n = text[at] == '\'' ? contraction<false>(text.substr(at)) : 0;
        const std::size_t first = text[at] == ' ' && at + 1 < size ? at + 1 : at;
        const Kind kind = reader.at(first).kind;
        if (n != 0)
            end = at + n;
        else if (kind == kSpace || kind == kLineEnd)
            end = space_end<false>(reader, size, at);
        else
            end = run_end(reader, size, first, [&](Kind k) { return k == kind; });
        pieces.push_back({base + std::uint32_t(at), base + std::uint32_t(end)});
    }
}

SplitFunction known_pattern(std::string_view regex) {
    if (regex == kGpt2Pattern) return split_gpt2;
    if (regex == kLlama3Pattern) return split_llama3<3, false>;
    if (regex == kQwen2Pattern) return split_llama3<1, false>;
    // cl100k: its possessive quantifiers and single line end make no difference to the pieces.
    if (regex ==
        R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)")
        return split_llama3<3, false>;
    // Qwen 3.5: marks count as letters (and may be the character before the letters, which comes to the
    // same).
    if (regex ==
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)")
        return split_llama3<1, true>;
    return nullptr;
}

}  // namespace llmgen
