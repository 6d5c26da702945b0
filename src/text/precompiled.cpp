// sentencepiece's precompiled normalization: a double-array trie (Darts) from strings to their replacements.
//
//   u32 size of the trie in bytes | trie, u32 units | replacements, each ended by a zero byte       (little
//   endian) unit: bit 31 and bits 0-7 the label, bit 8 has a leaf, bit 9 offset is in 256s, bits 10-30 the
//   offset;
//         a leaf's unit is bit 31 and the value
//
// As the reference applies it: a grapheme of less than six bytes that has any entry for a prefix of it is
// replaced as a whole by the entry of the shortest such prefix; else each of its characters is looked up
// alone.
#include <utf8proc.h>

#include <cstring>

#include "base/error.h"
#include "base/utf8.h"
#include "text/base64.h"
#include "text/normalizer.h"

namespace llmgen {
namespace {

class Precompiled final : public Normalizer {
public:
    Precompiled(const std::string& charsmap, const std::string& where) {
        std::uint32_t size = 0;
        if (charsmap.size() >= 4) std::memcpy(&size, charsmap.data(), 4);
        if (size % 4 != 0 || size == 0 || size > charsmap.size() - 4)
            fail("{}: precompiled_charsmap is damaged", where);
        units_.resize(size / 4);
        std::memcpy(units_.data(), charsmap.data() + 4, size);
        texts_ = charsmap.substr(4 + size);
        if (!utf8::is_valid(texts_))
            fail("{}: precompiled_charsmap is damaged: its replacements are not UTF-8", where);
    }

    void apply(NormalText& t) const override {
        NormalText out;
        out.tracked = t.tracked;
        bool modified = false;
        const std::string_view text = t.text;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t end = grapheme_end(text, at);
            const auto put = [&](std::string_view s, std::size_t from) {
                out.text += s;
                if (t.tracked) out.origins.resize(out.text.size(), t.origin(from));
            };
            std::string_view replacement;
            if (end - at < 6 && find(text.substr(at, end - at), replacement)) {
                put(replacement, at);
                modified = true;
                at = end;
                continue;
            }
            while (at < end) {
                const auto n = std::size_t(utf8::decode(text.substr(at)).length);
                const bool found = find(text.substr(at, n), replacement);
                put(found ? replacement : text.substr(at, n), at);
                modified = modified || found;
                at += n;
            }
        }
        if (modified) t = std::move(out);
    }

private:
    static std::size_t grapheme_end(std::string_view text, std::size_t at) {
        const utf8::Decoded first = utf8::decode(text.substr(at));
        std::size_t end = at + std::size_t(first.length);
        char32_t previous = first.code_point;
        utf8proc_int32_t state = 0;
        while (end < text.size()) {
            const utf8::Decoded d = utf8::decode(text.substr(end));
            if (previous >= 0x20 && previous < 0x7F && d.code_point < 0x7F) break;
            if (utf8proc_grapheme_break_stateful(utf8proc_int32_t(previous), utf8proc_int32_t(d.code_point),
                                                 &state))
                break;
            previous = d.code_point;
            end += std::size_t(d.length);
        }
        return end;
    }

    static std::size_t offset(std::uint32_t unit) {
        return std::size_t(unit >> 10) << ((unit & (1U << 9)) >> 6);
    }

    /// The replacement for the shortest prefix of `key` that has one.
    bool find(std::string_view key, std::string_view& replacement) const {
        std::size_t at = offset(units_[0]);
        for (char c : key) {
            const auto byte = static_cast<unsigned char>(c);
            if (byte == 0) return false;
            at ^= byte;
            if (at >= units_.size()) return false;
            const std::uint32_t unit = units_[at];
            if ((unit & (1U << 31 | 0xFF)) != byte) return false;
            at ^= offset(unit);
            if ((unit >> 8 & 1) == 0) continue;
            if (at >= units_.size()) return false;
            const std::size_t begin = units_[at] & ~(1U << 31);
            // A damaged file can point into the middle of a character.
            if (begin > texts_.size() ||
                (begin < texts_.size() && (static_cast<unsigned char>(texts_[begin]) & 0xC0) == 0x80))
                return false;
            replacement = std::string_view(texts_).substr(
                begin, std::min(texts_.find('\0', begin), texts_.size()) - begin);
            return true;
        }
        return false;
    }

    std::vector<std::uint32_t> units_;
    std::string texts_;
};

}  // namespace

NormalizerPtr make_precompiled(std::string_view charsmap, const std::string& where) {
    const std::optional<std::string> bytes = decode_base64(charsmap);
    if (!bytes) fail("{}: precompiled_charsmap is not base64", where);
    return std::make_unique<Precompiled>(*bytes, where);
}

}  // namespace llmgen
