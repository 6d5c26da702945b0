// Decoders that put spaces between the words that tokens make: BPEDecoder, WordPiece, CTC, and none at all.
#include <algorithm>
#include <optional>

#include "text/decoder_stage.h"

namespace llmgen {
namespace {

/// The word-end suffix becomes a space, in the last token nothing: what the two have in common is final.
class BpeSuffix final : public WholeTokens {
public:
    explicit BpeSuffix(std::string suffix) : suffix_(std::move(suffix)) {}
    void flush() override {
        if (open_) {
            next_->append(if_last_);
            next_->end_token();
        }
        open_ = false;
        next_->flush();
    }

private:
    void token(std::string& text) override {
        if (open_) {
            next_->append(if_not_last_);
            next_->end_token();
        }
        open_ = true;
        if_last_ = if_not_last_ = text;
        replace_all(if_last_, suffix_, "");
        replace_all(if_not_last_, suffix_, " ");
        const auto [a, b] =
            std::mismatch(if_last_.begin(), if_last_.end(), if_not_last_.begin(), if_not_last_.end());
        const auto common = std::size_t(a - if_last_.begin());
        next_->append(std::string_view(if_last_).substr(0, common));
        if_last_.erase(0, common);
        if_not_last_.erase(0, common);
    }
    std::string suffix_, if_last_, if_not_last_;
    bool open_ = false;
};

void clean_up(std::string& text) {
    constexpr std::string_view kPairs[][2] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kPairs) replace_all(text, from, to);
}

class WordPiece final : public WholeTokens {
public:
    WordPiece(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
    void flush() override {
        first_ = true;
        next_->flush();
    }

private:
    void token(std::string& text) override {
        if (!first_) {
            if (text.starts_with(prefix_))
                text.erase(0, prefix_.size());
            else
                text.insert(0, " ");
        }
        first_ = false;
        if (cleanup_) clean_up(text);
        give(text);
    }
    std::string prefix_;
    bool cleanup_, first_ = true;
};

class Ctc final : public WholeTokens {
public:
    Ctc(std::string pad, std::string delimiter, bool cleanup)
        : pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleanup_(cleanup) {}
    void flush() override {
        previous_.reset();
        next_->flush();
    }

private:
    void token(std::string& text) override {
        if (previous_ == text) return;
        previous_ = text;
        replace_all(text, pad_, "");
        if (cleanup_) {
            clean_up(text);
            replace_all(text, delimiter_, " ");
        }
        if (!text.empty()) give(text);
    }
    std::string pad_, delimiter_;
    bool cleanup_;
    std::optional<std::string> previous_;
};

class Join final : public WholeTokens {
public:
    void flush() override {
        first_ = true;
        next_->flush();
    }

private:
    void token(std::string& text) override {
        if (!first_) text.insert(0, " ");
        first_ = false;
        give(text);
    }
    bool first_ = true;
};

}  // namespace

std::shared_ptr<const DecoderStep> make_bpe_decoder(const std::string& suffix) {
    return step([=] { return std::make_unique<BpeSuffix>(suffix); });
}
std::shared_ptr<const DecoderStep> make_wordpiece_decoder(const std::string& prefix, bool cleanup) {
    return step([=] { return std::make_unique<WordPiece>(prefix, cleanup); });
}
std::shared_ptr<const DecoderStep> make_ctc_decoder(const std::string& pad,
                                                    const std::string& word_delimiter,
                                                    bool cleanup) {
    return step([=] { return std::make_unique<Ctc>(pad, word_delimiter, cleanup); });
}
std::shared_ptr<const DecoderStep> make_join_decoder() {
    return step([] { return std::make_unique<Join>(); });
}

}  // namespace llmgen
