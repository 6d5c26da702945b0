// tiktoken's rank files: one token a line, "base64 rank", id = rank. Llama 3's original tokenizer.model is
// one.
//
// Two neighbours merge when their bytes together are a token, the lowest rank first: as pairs of ids, every
// way to cut a token into two tokens is a merge of that token's rank. A piece that is a token itself is taken
// whole.
#include <charconv>

#include "base/error.h"
#include "text/base64.h"
#include "text/bpe.h"
#include "text/quote.h"
#include "text/tokenizer_impl.h"

namespace llmgen {
namespace {

/// The next line of `text`, which loses it.
std::string_view take_line(std::string_view& text) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
}

struct Entry {
    std::string bytes;
    int rank;
};
std::optional<Entry> parse_line(std::string_view line) {
    const std::size_t space = line.find(' ');
    if (space == line.npos || space == 0) return std::nullopt;
    auto bytes = decode_base64(line.substr(0, space));
    int rank = -1;
    const std::string_view digits = line.substr(space + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (!bytes || bytes->empty() || error != std::errc() || end != digits.data() + digits.size() || rank < 0)
        return std::nullopt;
    return Entry{std::move(*bytes), rank};
}

/// Llama 3's control tokens, which its rank file doesn't hold: 256 of them after the ranks.
std::vector<AddedToken> llama3_tokens() {
    std::vector<std::string> names = {"<|begin_of_text|>", "<|end_of_text|>"};
    int reserved = 0;
    const auto reserve = [&](std::size_t up_to) {
        while (names.size() < up_to)
            names.push_back(fmt::format("<|reserved_special_token_{}|>", reserved++));
    };
    reserve(6);
    names.insert(names.end(), {"<|start_header_id|>", "<|end_header_id|>"});
    reserve(9);
    names.push_back("<|eot_id|>");
    reserve(256);
    std::vector<AddedToken> tokens;
    for (std::string& name : names) {
        AddedToken t;
        t.content = std::move(name);
        t.special = true;
        tokens.push_back(std::move(t));
    }
    return tokens;
}

}  // namespace

bool looks_like_tiktoken(std::string_view text) {
    std::string_view rest = text.substr(0, 4096);
    return parse_line(take_line(rest)).has_value();
}

void load_tiktoken(Tokenizer::Impl& impl, const std::string& name, std::string_view text) {
    Vocab vocab;
    vocab.reserve(text.size() / 16, text.size() / 2);
    int line_number = 0;
    for (std::string_view rest = text; !rest.empty();) {
        const std::string_view line = take_line(rest);
        ++line_number;
        if (line.empty()) continue;
        const std::optional<Entry> entry = parse_line(line);
        if (!entry) fail("{}: line {}: expected base64 and a rank, found {}", name, line_number, quote(line));
        if (entry->rank >= kMaxVocabSize)
            fail("{}: line {}: rank {} is too large", name, line_number, entry->rank);
        if (vocab.has(entry->rank)) fail("{}: line {}: rank {} stands twice", name, line_number, entry->rank);
        vocab.add(entry->bytes, entry->rank);
    }
    MergeTable merges;
    merges.reserve(std::size_t(vocab.size()) * 2);
    for (int id = 0; id < vocab.size(); ++id) {
        const std::string_view token = vocab.string(id);
        if (vocab.find(token) != id) continue;
        for (std::size_t cut = 1; cut < token.size(); ++cut) {
            const int left = vocab.find(token.substr(0, cut));
            const int right = left < 0 ? -1 : vocab.find(token.substr(cut));
            if (right >= 0) merges.add(left, right, std::uint32_t(id), id);
        }
    }
    if (vocab.count() == 128000) {
        impl.default_tokens = llama3_tokens();
        // Llama 3.1 took three of the reserved ones; both names are read.
        impl.aliases = {
            {"<|finetune_right_pad_id|>", 128004}, {"<|eom_id|>", 128008}, {"<|python_tag|>", 128010}};
        impl.bos = "<|begin_of_text|>";
        impl.eos = "<|end_of_text|>";
    }
    BpeOptions options;
    options.raw_bytes = options.ignore_merges = true;
    impl.raw_bytes = true;
    impl.model = std::make_unique<Bpe>(std::move(vocab), std::move(merges), std::move(options));
    std::vector<PreTokenizerPtr> steps;
    steps.push_back(make_regex_split(kLlama3Pattern, Behavior::kIsolated, false, name));
    impl.pre_tokenizer = make_sequence(std::move(steps));
    impl.decoder.push_back(make_byte_level_decoder());
    impl.is_model_file = true;
    impl.adds_bos = true;
}

}  // namespace llmgen
