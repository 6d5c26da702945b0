// Unicode as the reference tokenizer sees it: categories, classes, scripts, case, from unicode_data.inc.
//
// The distribution's libraries know older versions of Unicode than the reference's regex engine (16.0), and
// the reference itself mixes versions; the tables are therefore our own (tools/unicode_tables.py).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace llmgen::unicode {

inline constexpr std::uint32_t kMaxCodePoint = 0x10FFFF;

/// A set of code points as sorted, disjoint, inclusive ranges.
class CodeSet {
public:
    using Range = std::pair<std::uint32_t, std::uint32_t>;
    CodeSet() = default;
    explicit CodeSet(std::vector<Range> ranges);
    static CodeSet of(std::uint32_t first, std::uint32_t last) { return CodeSet({{first, last}}); }

    const std::vector<Range>& ranges() const { return ranges_; }
    bool empty() const { return ranges_.empty(); }
    bool contains(std::uint32_t c) const;
    CodeSet operator|(const CodeSet& other) const;
    CodeSet operator&(const CodeSet& other) const;
    CodeSet operator~() const;
    bool operator==(const CodeSet& other) const = default;

private:
    std::vector<Range> ranges_;
};

/// The class that \p{name} stands for ("Lu", "L", "Han", "Alphabetic", "White_Space", the POSIX names …);
/// spaces, hyphens, underscores and case don't count. nullopt where the reference's engine knows none.
std::optional<CodeSet> property(std::string_view name);
/// [[:name:]], without the brackets; nullopt for an unknown name.
std::optional<CodeSet> posix_class(std::string_view name);
/// \w outside of a bracket; inside it is [[:word:]] and lacks ² ³ ¹ ¼ ½ ¾ (so the reference's engine).
CodeSet bare_word();
/// `set` and every character that (?i) takes for one of its members.
CodeSet case_closure(const CodeSet& set);

// One word of flags per code point: the low five bits are the category.
enum Flag : std::uint16_t {
    kCategoryMask = 0x1F,
    kIsLetter = 1 << 5,
    kIsNumber = 1 << 6,
    kIsSpace = 1 << 7,
    kIsWord = 1 << 8,          // as the reference's single_word and Whitespace see it (joiners too)
    kIsNumeric = 1 << 9,       // Digits
    kIsPunctuation = 1 << 10,  // Punctuation
    kIsAccent = 1 << 11,       // StripAccents
    kIsUpper = 1 << 12,        // Lu, Lt, Lm, Lo, M: the first half of the o200k pattern
    kIsLower = 1 << 13,        // Ll, Lm, Lo, M: its second half
    kChanges = 1 << 14,        // NFC may change it or what stands before it
    kIsMark = 1 << 15,         // M
};

/// Two-stage table of flags over all code points; built once, read by all threads.
class FlagTable {
public:
    FlagTable();
    std::uint16_t operator[](std::uint32_t c) const {
        return blocks_[std::size_t(index_[c >> 8]) << 8 | (c & 0xFF)];
    }

private:
    std::vector<std::uint16_t> index_, blocks_;
};
const FlagTable& flags();

/// Lower case of one character, character by character as Rust's to_lowercase: at most two.
struct Lower {
    std::uint32_t first, second;  // second is 0 but for U+0130
};
Lower to_lower(std::uint32_t c);

/// Class of the UnicodeScripts pre-tokenizer: neighbours of one class stay together, 0 joins any.
unsigned script_class(std::uint32_t c);

bool in_ranges(const std::uint32_t* ranges, std::size_t n, std::uint32_t c);
bool is_bert_ideograph(std::uint32_t c);
bool is_bert_accent(std::uint32_t c);
bool is_bert_removed(std::uint32_t c);
bool is_bert_space(std::uint32_t c);
bool is_nmt_removed(std::uint32_t c);
bool is_nmt_space(std::uint32_t c);
bool has_canonical(std::uint32_t c);   // changed by NFD in the reference (Hangul syllables aside)
bool has_compatible(std::uint32_t c);  // changed by NFKD, not by NFD
bool is_combining(std::uint32_t c);    // combining class other than 0 in the reference
bool is_not_composed(std::uint32_t c);

}  // namespace llmgen::unicode
