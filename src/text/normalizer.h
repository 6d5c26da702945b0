// Normalizers: a text to the text that is tokenized.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace llmgen {

/// A text and, if `tracked`, for each of its bytes the offset in the original text of the character it comes
/// from.
struct NormalText {
    std::string text;
    bool tracked = false;
    std::vector<std::uint32_t> origins;

    std::uint32_t origin(std::size_t at) const {
        return origins.empty() ? 0 : at < origins.size() ? origins[at] : origins.back();
    }
};

class Normalizer {
public:
    virtual ~Normalizer() = default;
    virtual void apply(NormalText& t) const = 0;
};
using NormalizerPtr = std::unique_ptr<Normalizer>;

NormalizerPtr make_normalizer_sequence(std::vector<NormalizerPtr> steps);
enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
NormalizerPtr make_normal_form(NormalForm form);
NormalizerPtr make_lowercase();
NormalizerPtr make_strip(bool left, bool right);
NormalizerPtr make_strip_accents();
NormalizerPtr make_prepend(std::string prefix);
NormalizerPtr make_replace_string(std::string needle, std::string content);
NormalizerPtr make_replace_regex(std::string_view pattern, std::string content, const std::string& where);
NormalizerPtr make_nmt();
NormalizerPtr make_byte_level_normalizer();
struct BertOptions {
    bool clean_text = true, handle_chinese_chars = true, strip_accents = false, lowercase = true;
};
NormalizerPtr make_bert_normalizer(const BertOptions& options);
/// `charsmap` is sentencepiece's precompiled_charsmap in base64. Throws Error, begun by `where`,
/// if it is broken.
NormalizerPtr make_precompiled(std::string_view charsmap, const std::string& where);

}  // namespace llmgen
