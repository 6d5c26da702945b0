// Text to token ids and back, as the checkpoint's own tokenizer files say.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llmgen {

/// A half-open range of bytes in a text.
struct TextRange {
    std::size_t begin = 0;
    std::size_t end = 0;
};

struct EncodeOptions {
    /// Run the post-processor (adds BOS and the like), as transformers' add_special_tokens.
    bool add_special_tokens = true;
    /// Find the strings of special tokens ("<|eot_id|>") in the text. Off: they are ordinary characters
    /// (added tokens that aren't special are found all the same), as transformers' split_special_tokens.
    bool parse_special = true;
    /// Ranges of the text in which no special (control) token is ever found: where a user's words stand in a
    /// rendered chat. A match that touches one of them is ordinary text. Sorted, not overlapping.
    std::span<const TextRange> plain_ranges = {};
    /// Ids, ascending, of added tokens that aren't special but count as such within plain_ranges: some
    /// checkpoints mark the very tokens that begin a turn as ordinary ones.
    std::span<const int> control_ids = {};
};

/// Immutable once loaded, safe to use from many threads at once.
class Tokenizer {
public:
    /// `path` is a tokenizer.json, a sentencepiece or tiktoken `tokenizer.model`, or a checkpoint directory
    /// that holds one of them (tokenizer.json is preferred; added tokens of added_tokens.json and
    /// tokenizer_config.json join). Throws Error.
    static Tokenizer load(const std::filesystem::path& path);

    /// Ids of `text`. Invalid UTF-8 is read as U+FFFD, one per maximal invalid subpart.
    std::vector<int> encode(std::string_view text, const EncodeOptions& options = {}) const;

    /// Text of `ids`, valid UTF-8; ids outside the vocabulary give nothing. Equal to the concatenation of a
    /// Detokenizer's chunks.
    std::string decode(std::span<const int> ids, bool skip_special) const;

    /// Largest id + 1 over vocabulary and added tokens.
    int vocab_size() const;
    /// The string that stands for `id` in the vocabulary or the added tokens ("Ġhello"); empty where there is
    /// none.
    std::string token(int id) const;
    std::optional<int> id_of(std::string_view token) const;
    /// Whether `id` is an added token that skip_special leaves out.
    bool is_special(int id) const;
    /// Ids of the added tokens that aren't special, ascending.
    std::vector<int> ordinary_added_ids() const;

    /// From tokenizer_config.json / special_tokens_map.json; nullopt where absent or null.
    std::optional<std::string> bos_token() const;
    std::optional<std::string> eos_token() const;
    /// SHA-256 of the tokenizer's main file, in hexadecimal.
    const std::string& sha256() const;

    class Impl;

private:
    friend class Detokenizer;
    explicit Tokenizer(std::shared_ptr<const Impl> impl);
    std::shared_ptr<const Impl> impl_;
};

/// Ids in, final text out. A chunk is the longest text that no further id can change; chunks plus flush()
/// equal Tokenizer::decode of all ids. Amortised O(1) a token.
class Detokenizer {
public:
    Detokenizer(const Tokenizer& tokenizer, bool skip_special);
    ~Detokenizer();
    Detokenizer(Detokenizer&&) noexcept;
    Detokenizer& operator=(Detokenizer&&) noexcept;

    /// Text that became final with `id` (may be empty), valid UTF-8.
    std::string push(int id);
    /// What was held back; the detokenizer is then as new.
    std::string flush();

    class State;

private:
    std::shared_ptr<const Tokenizer::Impl> tokenizer_;
    std::unique_ptr<State> state_;
    bool skip_special_;
};

}  // namespace llmgen
