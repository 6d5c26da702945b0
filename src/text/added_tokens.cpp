#include "text/added_tokens.h"

#include "base/error.h"
#include "base/utf8.h"
#include "text/unicode.h"

namespace llmgen {
namespace {
/// The last character of valid UTF-8 that is not empty, and where it begins.
std::pair<char32_t, std::size_t> last_char(std::string_view text) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    return {utf8::decode(text.substr(at)).code_point, at};
}
bool has(char32_t c, std::uint16_t flag) { return (unicode::flags()[c] & flag) != 0; }
}  // namespace

void AddedTokenFinder::add(const AddedToken& token, std::string_view pattern) {
    if (pattern.empty()) return;
    std::uint32_t node = 0;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        const char byte = pattern[i];
        std::uint32_t next = 0;
        if (i == 0)
            next = roots_[static_cast<unsigned char>(byte)];
        else if (const Node* c = child(nodes_[node], byte))
            next = std::uint32_t(c - nodes_.data());
        if (next == 0) {
            next = std::uint32_t(nodes_.size());
            nodes_.push_back({0, i == 0 ? 0 : nodes_[node].first_child, -1, byte});
            if (i == 0)
                roots_[static_cast<unsigned char>(byte)] = next;
            else
                nodes_[node].first_child = next;
        }
        node = next;
    }
    if (nodes_[node].token >= 0) return;  // the first of two equal patterns is found
    nodes_[node].token = std::int32_t(tokens_.size());
    tokens_.push_back({token.id, std::uint32_t(pattern.size()), token.single_word, token.lstrip, token.rstrip,
                       token.special});
}

bool ends_with_word(std::string_view text) {
    return !text.empty() && has(last_char(text).first, unicode::kIsWord);
}
bool starts_with_word(std::string_view text) {
    return !text.empty() && has(utf8::decode(text).code_point, unicode::kIsWord);
}

std::size_t space_at_end(std::string_view text) {
    const std::size_t size = text.size();
    while (!text.empty()) {
        const auto [c, at] = last_char(text);
        if (!has(c, unicode::kIsSpace)) break;
        text = text.substr(0, at);
    }
    return size - text.size();
}

std::size_t space_at_start(std::string_view text) {
    std::size_t n = 0;
    while (n < text.size()) {
        const utf8::Decoded d = utf8::decode(text.substr(n));
        if (!has(d.code_point, unicode::kIsSpace)) break;
        n += std::size_t(d.length);
    }
    return n;
}

}  // namespace llmgen
