// GPT-2's byte alphabet: each byte has a printable character, so that any bytes can stand in a JSON
// vocabulary.
//
//   '!'..'~', U+00A1..U+00AC, U+00AE..U+00FF   the byte of the same number
//   U+0100..U+0143                             the other 68 bytes, in order (0x20 is U+0120 "Ġ", 0x0A is
//   U+010A "Ċ")
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace llmgen {

/// The characters for all bytes of `bytes`.
std::string bytes_to_alphabet(std::string_view bytes);
void append_alphabet(std::string& out, unsigned char byte);
/// -1 for a character that is not in the alphabet.
int alphabet_byte(char32_t c);
/// The bytes that `text` spells; nullopt if one of its characters is not in the alphabet.
std::optional<std::string> alphabet_to_bytes(std::string_view text);

}  // namespace llmgen
