// The parts of a loaded tokenizer, and how they are put together.
//
//   text ─► added tokens (raw) ─► normalizer ─► added tokens (normalized) ─► pre-tokenizer ─► model ─►
//   post-processor ─► ids
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "llmgen/tokenizer.h"
#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/model.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"

namespace llmgen {

/// What one encode call works in.
struct EncodeScratch {
    ModelScratch model;
    PreText pre;
    std::vector<AddedTokenFinder::Part> parts, inner;
};

class Tokenizer::Impl {
public:
    // Filled by the loaders, then sealed; constant afterwards.
    NormalizerPtr normalizer;
    PreTokenizerPtr pre_tokenizer;
    std::unique_ptr<Model> model;
    std::unique_ptr<Model> inner_model;  // for text that does not begin the prompt; nullptr: the same
    PostProcessor post;
    DecoderPlan decoder;
    bool raw_bytes = false;      // the model's vocabulary holds bytes, not their alphabet
    bool sentencepiece = false;  // strings go to the decoder with a letter for their type in front
    std::string piece_kinds;     // sentencepiece: that letter, per id
    std::unordered_map<std::string, int> unspellable;  // raw_bytes: tokens outside the alphabet
    std::optional<std::string> bos, eos;
    bool is_model_file = false;  // tokenizer.model: no post-processor, but add_bos_token and add_eos_token
    bool adds_bos = false, adds_eos = false;
    std::vector<AddedToken> default_tokens;            // taken if no others are added
    std::vector<std::pair<std::string, int>> aliases;  // more strings for default tokens
    std::string sha256;

    /// As the reference's add_tokens: the id is the model's if it knows the string, else the next free one.
    void add_token(AddedToken token);
    /// Makes the finders; call once, when all tokens are in.
    void seal();

    std::vector<int> encode(std::string_view text, const EncodeOptions& options) const;
    int vocab_size() const { return vocab_size_; }
    std::string token(int id) const;
    std::optional<int> id_of(std::string_view token) const;
    bool is_special(int id) const {
        return id >= 0 && std::size_t(id) < special_.size() && special_[std::size_t(id)];
    }
    std::vector<int> ordinary_added_ids() const {
        std::vector<int> ids;
        for (const auto& [id, index] : added_by_id_)
            if (!is_special(id)) ids.push_back(id);
        std::ranges::sort(ids);
        return ids;
    }
    bool known(int id) const { return added_by_id_.contains(id) || model->vocab().has(id); }
    /// What the decoder is given for `id`.
    std::string decoder_token(int id) const;
    std::size_t n_model_tokens() const { return model->vocab().count() + unspellable.size(); }

private:
    struct Ranges;
    void encode_text(std::string_view text,
                     std::size_t offset,
                     const EncodeOptions& options,
                     const Ranges& plain,
                     std::vector<int>& ids,
                     EncodeScratch& s) const;
    void encode_pieces(std::string_view text,
                       bool at_start,
                       std::size_t start_end,
                       std::vector<int>& ids,
                       EncodeScratch& s) const;
    std::optional<int> model_id(std::string_view token) const;
    std::string model_string(int id) const;
    std::unique_ptr<EncodeScratch> borrow() const;
    void give_back(std::unique_ptr<EncodeScratch> scratch) const;

    std::vector<AddedToken> tokens_;
    std::unordered_map<std::string, int> added_ids_;
    std::unordered_map<int, std::size_t> added_by_id_;  // index into tokens_
    AddedTokenFinder raw_finder_, normalized_finder_;
    std::vector<bool> special_;
    int vocab_size_ = 0, largest_added_ = -1;
    bool asks_for_start_ = false;

    mutable std::mutex mutex_;
    mutable std::vector<std::unique_ptr<EncodeScratch>> pool_;
};

/// The three kinds of files. `impl` is new; added tokens that the file itself names are in it afterwards.
void load_tokenizer_json(Tokenizer::Impl& impl, const std::string& name, std::string_view text);
void load_sentencepiece(Tokenizer::Impl& impl,
                        const std::string& name,
                        std::string_view bytes,
                        bool prefix_every_part);
void load_tiktoken(Tokenizer::Impl& impl, const std::string& name, std::string_view text);
bool looks_like_tiktoken(std::string_view text);
/// tokenizer_config.json, special_tokens_map.json, added_tokens.json of a checkpoint: bos, eos, more added
/// tokens.
void load_tokenizer_config(Tokenizer::Impl& impl, const std::filesystem::path& dir);
/// A tokenizer of any kind from the bytes of its file, for tests and fuzzing.
std::shared_ptr<Tokenizer::Impl> load_tokenizer_bytes(const std::string& name, std::string_view bytes);

}  // namespace llmgen
