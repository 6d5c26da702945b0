// The split patterns of tokenizer.json: Oniguruma's syntax (Ruby flavour), matched by PCRE2 with JIT.
//
// Neither UTF-8 nor Unicode reaches PCRE2. A pattern only uses a few sets of characters; they cut the code
// points into at most 256 atoms (characters that no set of the pattern tells apart), and what PCRE2 sees is
// one byte per character: its atom. So every class is a 256-bit bitmap, matching is as fast as on ASCII, and
// the Unicode is that of our own tables, which the reference's engine agrees with:
//
//   ` ?\p{L}+|\s`   atoms 0 = rest, 1 = U+0020, 2 = other \s, 3 = \p{L}   →   \x01?\x03+|[\x01\x02]
//
// What the translation doesn't know (back references, \X, conditionals …) is an Error when the file is
// loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/split_patterns.h"

namespace llmgen {

class Regex {
public:
    /// `where` begins the message of an Error ("DIR/tokenizer.json: pre_tokenizer").
    Regex(std::string_view pattern, const std::string& where);
    ~Regex();
    Regex(Regex&&) noexcept;
    Regex& operator=(Regex&&) noexcept;

    /// A text made ready for matching: its atoms, and where each character begins.
    class Subject {
    public:
        Subject(const Regex& regex, std::string_view text);  // `text` must be valid UTF-8 and outlive this
        ~Subject();
        Subject(const Subject&) = delete;
        Subject& operator=(const Subject&) = delete;
        /// Appends all matches inside [span.begin, span.end) of the text, which the pattern sees as a text of
        /// its own. Empty matches directly after a match are left out, as in the reference. Throws Error when
        /// the pattern needs too many steps.
        void find_all(Span span, std::vector<Span>& matches);

    private:
        std::size_t atom_index(std::uint32_t byte) const;
        struct Match;
        const Regex& regex_;
        bool ascii_;
        std::string atoms_;
        std::vector<std::uint32_t> begins_;  // byte offset of each atom, unless ascii_
        std::unique_ptr<Match> match_;
    };

private:
    struct Program;
    std::unique_ptr<Program> program_;
};

}  // namespace llmgen
