#include "text/byte_level.h"

#include "base/utf8.h"

namespace llmgen {
namespace {
bool is_itself(unsigned b) { return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xFF && b != 0xAD); }

constexpr int kOthers = 68;  // bytes that are not themselves

struct Alphabet {
    std::array<char32_t, 256> of_byte{};
    std::array<int, 256 + kOthers> byte_of{};
    Alphabet() {
        byte_of.fill(-1);
        char32_t next = 0x100;
        for (unsigned b = 0; b < 256; ++b) {
            of_byte[b] = is_itself(b) ? b : next++;
            byte_of[of_byte[b]] = int(b);
        }
    }
};
const Alphabet& alphabet() {
    static const Alphabet a;
    return a;
}
}  // namespace

void append_alphabet(std::string& out, unsigned char byte) { utf8::append(out, alphabet().of_byte[byte]); }

std::string bytes_to_alphabet(std::string_view bytes) {
    std::string out;
    out.reserve(bytes.size() * 2);
    for (char c : bytes) append_alphabet(out, static_cast<unsigned char>(c));
    return out;
}

int alphabet_byte(char32_t c) { return c < 256 + kOthers ? alphabet().byte_of[c] : -1; }

std::optional<std::string> alphabet_to_bytes(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
        const auto lead = static_cast<unsigned char>(text[i]);
        if (lead < 0x80) {  // nearly all of a vocabulary
            if (!is_itself(lead)) return std::nullopt;
            out += text[i++];
            continue;
        }
        const utf8::Decoded d = utf8::decode(text.substr(i));
        const int byte = d.valid ? alphabet_byte(d.code_point) : -1;
        if (byte < 0) return std::nullopt;
        out += char(byte);
        i += std::size_t(d.length);
    }
    return out;
}

}  // namespace llmgen
