// Decoders: the strings of ids back to text, step by step and at once.
//
// A chain of stages; each takes tokens, one after the other, and hands on what no later token can change. A
// stage may hand on one token in parts (Fuse makes a single token of all), so text arrives by append() and a
// token ends by end_token(). What the last stage is given is final. At the end of the ids flush() runs down
// the chain.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace llmgen {

class DecodeStage {
public:
    virtual ~DecodeStage() = default;
    virtual void append(std::string_view text) = 0;
    virtual void end_token() = 0;
    /// More text will follow in this token or a later one, and its first character is none of ASCII.
    virtual void foresee_wide() {}
    /// No token follows; passes it on.
    virtual void flush() = 0;
    void connect(DecodeStage* next) { next_ = next; }

protected:
    void give(std::string_view token) {
        next_->append(token);
        next_->end_token();
    }
    DecodeStage* next_ = nullptr;
};

/// What is needed to make the stages of one detokenizer.
class DecoderStep {
public:
    virtual ~DecoderStep() = default;
    virtual std::unique_ptr<DecodeStage> stage() const = 0;
};
using DecoderPlan = std::vector<std::shared_ptr<const DecoderStep>>;

std::shared_ptr<const DecoderStep> make_byte_level_decoder();
std::shared_ptr<const DecoderStep> make_byte_fallback_decoder();
std::shared_ptr<const DecoderStep> make_fuse_decoder();
std::shared_ptr<const DecoderStep> make_replace_decoder(const std::string& needle,
                                                        const std::string& content);
std::shared_ptr<const DecoderStep> make_regex_replace_decoder(std::string_view pattern,
                                                              std::string content,
                                                              const std::string& where);
std::shared_ptr<const DecoderStep> make_strip_decoder(const std::string& content,
                                                      std::size_t start,
                                                      std::size_t stop);
std::shared_ptr<const DecoderStep> make_metaspace_decoder(const std::string& replacement, bool drops_first);
std::shared_ptr<const DecoderStep> make_bpe_decoder(const std::string& suffix);
std::shared_ptr<const DecoderStep> make_wordpiece_decoder(const std::string& prefix, bool cleanup);
std::shared_ptr<const DecoderStep> make_ctc_decoder(const std::string& pad,
                                                    const std::string& word_delimiter,
                                                    bool cleanup);
/// No decoder at all: tokens joined by spaces.
std::shared_ptr<const DecoderStep> make_join_decoder();
/// sentencepiece's own decoding; the flags are of its normalizer_spec.
struct SentencepieceDecoding {
    bool add_dummy_prefix = true, remove_extra_whitespaces = true;
};
std::shared_ptr<const DecoderStep> make_sentencepiece_decoder(SentencepieceDecoding options);

/// The stages of a plan, connected, with the text that became final.
class DecodeChain {
public:
    explicit DecodeChain(const DecoderPlan& plan);
    void push(std::string_view token);
    void flush();
    std::string take() { return std::exchange(sink_.text, {}); }

private:
    struct Sink final : DecodeStage {
        void append(std::string_view t) override { text += t; }
        void end_token() override {}
        void flush() override {}
        std::string text;
    };
    Sink sink_;
    std::vector<std::unique_ptr<DecodeStage>> stages_;
};

}  // namespace llmgen
