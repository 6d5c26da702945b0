// Pre-tokenizers: a text to the pieces that the model sees one by one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"
#include "text/split_patterns.h"

namespace llmgen {

/// Pieces of `text`; steps that change the characters keep the new text in `owned`.
struct PreText {
    std::string_view text;
    std::vector<Span> pieces;
    /// Pieces that begin before this offset stand at the very start of the user's text (Metaspace "first").
    std::size_t start_end = 0;

    std::string owned, spare;
    std::vector<Span> next, matches;
    bool at_start() const { return !pieces.empty() && pieces[0].begin < start_end; }
    /// Takes over a changed text, whose pieces already have their new offsets; `first` says whether the first
    /// of them is at the start, as at_start() did before.
    void own(std::string&& changed, bool first) {
        spare = std::move(changed);
        std::swap(owned, spare);
        text = owned;
        start_end = first ? 1 : 0;
    }
};

enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

class PreTokenizer {
public:
    virtual ~PreTokenizer() = default;
    /// Replaces t.pieces; empty pieces vanish.
    virtual void apply(PreText& t) const = 0;
    /// Whether Metaspace's "first" stands in it, so that start_end matters.
    virtual bool asks_for_start() const { return false; }
};
using PreTokenizerPtr = std::unique_ptr<PreTokenizer>;

PreTokenizerPtr make_sequence(std::vector<PreTokenizerPtr> steps);
PreTokenizerPtr make_regex_split(std::string_view pattern,
                                 Behavior behavior,
                                 bool invert,
                                 const std::string& where);
PreTokenizerPtr make_string_split(std::string needle, Behavior behavior, bool invert);
/// `to_alphabet` false: pieces stay raw bytes, which is what a byte-level vocabulary here wants.
PreTokenizerPtr make_byte_level(bool add_prefix_space, bool use_regex, bool to_alphabet);
PreTokenizerPtr make_digits(bool individual);
PreTokenizerPtr make_punctuation(Behavior behavior);
PreTokenizerPtr make_whitespace();
PreTokenizerPtr make_whitespace_split();
PreTokenizerPtr make_char_delimiter(char32_t delimiter);
PreTokenizerPtr make_bert();
PreTokenizerPtr make_unicode_scripts();
PreTokenizerPtr make_fixed_length(std::size_t n_chars);
enum class PrependScheme { kFirst, kNever, kAlways };
PreTokenizerPtr make_metaspace(std::string replacement, PrependScheme scheme, bool split);

/// Cuts `piece` at `matches` (sorted, inside it) as the reference's NormalizedString::split does; appends
/// what stays.
void split_at(
    Span piece, const std::vector<Span>& matches, Behavior behavior, bool invert, std::vector<Span>& out);

}  // namespace llmgen
