#include "text/tokenizer_json_parts.h"

#include "base/utf8.h"

namespace llmgen {
namespace {

constexpr int kMaxDepth = 16;  // Sequences inside Sequences

[[noreturn]] void unknown(const JsonView& j, std::string_view kind, std::string_view type) {
    j.broken("{} of type {} is not supported", kind, quote(type));
}

void check_depth(const JsonView& j, int depth) {
    if (depth > kMaxDepth) j.broken("Sequences are nested more than {} deep", kMaxDepth);
}

struct Pattern {
    std::string text;
    bool is_regex;
};
Pattern parse_pattern(const JsonView& j) {
    const JsonView p = j.need("pattern");
    if (p.is_string()) return {std::string(p.string()), false};
    Pattern pattern;
    if (const auto regex = p.find("Regex"))
        pattern = {std::string(regex->string()), true};
    else
        pattern = {std::string(p.need("String").string()), false};
    if (pattern.text.empty()) p.broken("an empty pattern is not supported");
    return pattern;
}

/// A string of exactly one character.
std::string one_char(const JsonView& j) {
    const std::string text(j.string());
    if (utf8::length(text) != 1) j.broken("expected a single character, found {}", quote(text));
    return text;
}

NormalizerPtr parse_normalizer_at(const JsonView& j, int depth) {
    check_depth(j, depth);
    const std::string type = j.text("type", "");
    if (type == "Sequence") {
        std::vector<NormalizerPtr> steps;
        j.need("normalizers").each([&](const JsonView& step, std::size_t) {
            steps.push_back(parse_normalizer_at(step, depth + 1));
        });
        return make_normalizer_sequence(std::move(steps));
    }
    if (type == "NFC") return make_normal_form(NormalForm::kNfc);
    if (type == "NFD") return make_normal_form(NormalForm::kNfd);
    if (type == "NFKC") return make_normal_form(NormalForm::kNfkc);
    if (type == "NFKD") return make_normal_form(NormalForm::kNfkd);
    if (type == "Lowercase") return make_lowercase();
    if (type == "Strip") return make_strip(j.flag("strip_left", true), j.flag("strip_right", true));
    if (type == "StripAccents") return make_strip_accents();
    if (type == "Prepend") return make_prepend(std::string(j.need("prepend").string()));
    if (type == "Nmt") return make_nmt();
    if (type == "ByteLevel") return make_byte_level_normalizer();
    if (type == "Precompiled") return make_precompiled(j.need("precompiled_charsmap").string(), j.where());
    if (type == "Replace") {
        Pattern p = parse_pattern(j);
        const std::string content(j.need("content").string());
        return p.is_regex ? make_replace_regex(p.text, content, j.where())
                          : make_replace_string(std::move(p.text), content);
    }
    if (type == "BertNormalizer") {
        BertOptions o;
        o.clean_text = j.flag("clean_text", true);
        o.handle_chinese_chars = j.flag("handle_chinese_chars", true);
        o.lowercase = j.flag("lowercase", true);
        o.strip_accents = j.flag("strip_accents", o.lowercase);
        return make_bert_normalizer(o);
    }
    unknown(j, "a normalizer", type);
}

Behavior parse_behavior(const JsonView& j) {
    const std::string name = j.text("behavior", "Isolated");
    if (name == "Removed") return Behavior::kRemoved;
    if (name == "Isolated") return Behavior::kIsolated;
    if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
    if (name == "MergedWithNext") return Behavior::kMergedWithNext;
    if (name == "Contiguous") return Behavior::kContiguous;
    j.broken("behavior {} is not supported", quote(name));
}

struct MetaspaceOptions {
    std::string replacement;
    PrependScheme scheme;
    bool split;
};
MetaspaceOptions parse_metaspace(const JsonView& j) {
    MetaspaceOptions o{one_char(j.need("replacement")), PrependScheme::kAlways, j.flag("split", true)};
    const auto scheme = j.find("prepend_scheme");
    const std::string name = j.text("prepend_scheme", "always");
    if (name == "first")
        o.scheme = PrependScheme::kFirst;
    else if (name == "never")
        o.scheme = PrependScheme::kNever;
    else if (name != "always")
        j.broken("prepend_scheme {} is not supported", quote(name));
    if (!j.flag("add_prefix_space", true)) {  // the older name
        if (scheme && o.scheme != PrependScheme::kNever)
            j.broken("add_prefix_space and prepend_scheme contradict each other");
        o.scheme = PrependScheme::kNever;
    }
    return o;
}

PreTokenizerPtr parse_pre_tokenizer_at(const JsonView& j, bool raw_bytes, int depth) {
    check_depth(j, depth);
    const std::string type = j.text("type", "");
    if (type == "Sequence") {
        std::vector<PreTokenizerPtr> steps;
        j.need("pretokenizers").each([&](const JsonView& step, std::size_t) {
            steps.push_back(parse_pre_tokenizer_at(step, raw_bytes, depth + 1));
        });
        return make_sequence(std::move(steps));
    }
    if (type == "ByteLevel")
        return make_byte_level(j.flag("add_prefix_space", true), j.flag("use_regex", true), !raw_bytes);
    if (type == "Split") {
        Pattern p = parse_pattern(j);
        const Behavior behavior = parse_behavior(j);
        const bool invert = j.flag("invert", false);
        return p.is_regex ? make_regex_split(p.text, behavior, invert, j.where())
                          : make_string_split(std::move(p.text), behavior, invert);
    }
    if (type == "Digits") return make_digits(j.flag("individual_digits", false));
    if (type == "Punctuation") return make_punctuation(parse_behavior(j));
    if (type == "Whitespace") return make_whitespace();
    if (type == "WhitespaceSplit") return make_whitespace_split();
    if (type == "CharDelimiterSplit")
        return make_char_delimiter(utf8::decode(one_char(j.need("delimiter"))).code_point);
    if (type == "BertPreTokenizer") return make_bert();
    if (type == "UnicodeScripts") return make_unicode_scripts();
    if (type == "FixedLength") return make_fixed_length(std::size_t(j.need("length").integer(1, 1 << 30)));
    if (type == "Metaspace") {
        MetaspaceOptions o = parse_metaspace(j);
        return make_metaspace(std::move(o.replacement), o.scheme, o.split);
    }
    unknown(j, "a pre-tokenizer", type);
}

void parse_decoder_at(const JsonView& j, DecoderPlan& plan, int depth) {
    check_depth(j, depth);
    const std::string type = j.text("type", "");
    if (type == "Sequence") {
        j.need("decoders").each([&](const JsonView& step, std::size_t) {
            parse_decoder_at(step, plan, depth + 1);
        });
    } else if (type == "ByteLevel") {
        plan.push_back(make_byte_level_decoder());
    } else if (type == "ByteFallback") {
        plan.push_back(make_byte_fallback_decoder());
    } else if (type == "Fuse") {
        plan.push_back(make_fuse_decoder());
    } else if (type == "Replace") {
        const Pattern p = parse_pattern(j);
        const std::string content(j.need("content").string());
        plan.push_back(p.is_regex ? make_regex_replace_decoder(p.text, content, j.where())
                                  : make_replace_decoder(p.text, content));
    } else if (type == "Strip") {
        constexpr std::int64_t kMany = std::int64_t(1) << 30;
        plan.push_back(make_strip_decoder(one_char(j.need("content")),
                                          std::size_t(j.need("start").integer(0, kMany)),
                                          std::size_t(j.need("stop").integer(0, kMany))));
    } else if (type == "Metaspace") {
        const MetaspaceOptions o = parse_metaspace(j);
        plan.push_back(make_metaspace_decoder(o.replacement, o.scheme != PrependScheme::kNever));
    } else if (type == "BPEDecoder") {
        plan.push_back(make_bpe_decoder(j.text("suffix", "</w>")));
    } else if (type == "WordPiece") {
        plan.push_back(make_wordpiece_decoder(j.text("prefix", "##"), j.flag("cleanup", true)));
    } else if (type == "CTC") {
        plan.push_back(make_ctc_decoder(j.text("pad_token", "<pad>"), j.text("word_delimiter_token", "|"),
                                        j.flag("cleanup", true)));
    } else {
        unknown(j, "a decoder", type);
    }
}

bool is_type(const JsonView& j, std::string_view type) {
    const auto t = j.find("type");
    return t && t->is_string() && t->string() == type;
}

}  // namespace

NormalizerPtr parse_normalizer(const JsonView& j) { return parse_normalizer_at(j, 0); }
PreTokenizerPtr parse_pre_tokenizer(const JsonView& j, bool raw_bytes) {
    return parse_pre_tokenizer_at(j, raw_bytes, 0);
}

bool ends_in_byte_level(const JsonView& j) {
    if (is_type(j, "ByteLevel")) return true;
    if (!is_type(j, "Sequence")) return false;
    std::size_t n = 0, n_plain = 0;
    bool last = false;
    j.need("pretokenizers").each([&](const JsonView& step, std::size_t) {
        last = is_type(step, "ByteLevel");
        ++n;
        n_plain += !last && !is_type(step, "Sequence");
    });
    return last && n_plain + 1 == n;
}

DecoderPlan parse_decoder(const JsonView& j) {
    DecoderPlan plan;
    parse_decoder_at(j, plan, 0);
    return plan;
}

}  // namespace llmgen
