// UTF-8: decoding, validation and repair.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace llmgen::utf8 {

inline constexpr char32_t kReplacement = 0xFFFD;

struct Decoded {
    char32_t code_point;  // kReplacement where the bytes are no character
    int length;           // bytes consumed, at least 1
    bool valid;           // false: a maximal invalid subpart (Unicode 16, table 3-7 and section 3.9)
    bool truncated;       // false unless the text ends inside a so far valid sequence
};

/// The character at the front of `text`, which must not be empty.
Decoded decode(std::string_view text);

void append(std::string& text, char32_t code_point);
std::string encode(char32_t code_point);

bool is_valid(std::string_view text);
/// Each maximal invalid subpart becomes one U+FFFD, as Python's and Rust's lossy decoders do.
std::string repair(std::string_view text);
/// Bytes at the end of `text` (at most 3) that begin a character and are valid so far.
std::size_t incomplete_tail(std::string_view text);
/// Number of code points, counting each invalid subpart as one.
std::size_t length(std::string_view text);

}  // namespace llmgen::utf8
