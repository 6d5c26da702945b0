// Template text to tokens, with transformers' settings: trim_blocks, lstrip_blocks, one trailing newline
// dropped.
//
//   text {%- if x -%} text {{ y }} text {# comment #} {% raw %} text {% endraw %}
//
// Traps: white space is Unicode's (NBSP, U+2028, \x1c …); CRLF and CR become LF before all else, so offsets
// are those of the normalised text; lstrip looks only at white space from the start of a line; the end of a
// tag isn't looked for inside brackets; a fault in a late token must not hide a fault in the grammar before
// it, so faults are tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace llmgen::jinja {

enum class Tok : std::uint8_t {
    data,
    variable_begin,
    variable_end,
    block_begin,
    block_end,
    name,
    string,
    integer,
    floating,
    add,
    sub,
    div,
    floordiv,
    mul,
    mod,
    pow,
    tilde,
    lbracket,
    rbracket,
    lparen,
    rparen,
    lbrace,
    rbrace,
    eq,
    ne,
    gt,
    gteq,
    lt,
    lteq,
    assign,
    dot,
    colon,
    pipe,
    comma,
    semicolon,
    fault,
    eof
};

struct Token {
    Tok type;
    std::size_t offset;
    std::string text;      // data, name, string (unescaped)
    Value number = {};     // integer, floating
    Failure failure = {};  // fault
};

/// CRLF and CR to LF, one trailing newline dropped, invalid UTF-8 repaired.
std::string normalise_template(std::string_view text);
/// Tokens of a normalised text; the last is eof (or fault).
std::vector<Token> tokenise(const std::string& source);
/// "end of statement block", "name", the operator's own text …
std::string describe(Tok type);
std::string describe(const Token& token);

/// Python's int(text, base) and float(text); nullopt where Python raises ValueError.
std::optional<Value> parse_int(std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);
/// The character of a Unicode name such as "BULLET"; nullopt where the table lacks it.
std::optional<char32_t> character_named(std::string_view name);

}  // namespace llmgen::jinja
