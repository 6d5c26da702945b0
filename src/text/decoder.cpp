#include "text/decoder.h"

#include <algorithm>
#include <optional>

#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/decoder_stage.h"
#include "text/regex.h"

namespace llmgen {

void replace_all(std::string& text, std::string_view needle, std::string_view content) {
    if (needle.empty()) return;
    std::string out;
    std::size_t done = 0;
    for (std::size_t at = text.find(needle); at != text.npos; at = text.find(needle, done)) {
        out.append(text, done, at - done).append(content);
        done = at + needle.size();
    }
    if (done == 0) return;
    text = out.append(text, done);
}

namespace {

constexpr std::string_view kReplacementText = "\uFFFD";

/// Bytes of all tokens, as UTF-8: all is final but an unfinished character at the end. One token comes out.
class ByteLevel final : public WholeTokens {
public:
    void flush() override {
        next_->append(utf8::repair(bytes_));
        bytes_.clear();
        next_->end_token();
        next_->flush();
    }

private:
    void token(std::string& text) override {
        const std::optional<std::string> bytes = alphabet_to_bytes(text);
        bytes_ += bytes ? *bytes : text;
        const std::size_t tail = utf8::incomplete_tail(bytes_);
        if (tail > 0 && tail == bytes_.size()) return next_->foresee_wide();
        const std::string_view ready = std::string_view(bytes_).substr(0, bytes_.size() - tail);
        next_->append(utf8::is_valid(ready) ? std::string(ready) : utf8::repair(ready));
        bytes_.erase(0, bytes_.size() - tail);
        if (tail > 0) next_->foresee_wide();
    }
    std::string bytes_;
};

std::optional<char> fallback_byte(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
    const auto digit = [](char c) {
        return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
    };
    const int high = token[3] == '+' ? 0 : digit(token[3]),
              low = digit(token[4]);  // Rust's parser takes a plus sign
    if (high < 0 || low < 0) return std::nullopt;
    return char(high * 16 + low);
}

/// A run of "<0xXX>" tokens is one text if all of it is UTF-8, else one U+FFFD for each byte.
class ByteFallback final : public WholeTokens {
public:
    void flush() override {
        end_run();
        next_->flush();
    }

private:
    void token(std::string& text) override {
        const std::optional<char> byte = fallback_byte(text);
        if (!byte) {
            end_run();
            return give(text);
        }
        if (hopeless_) return give(kReplacementText);
        run_ += *byte;
        if (static_cast<unsigned char>(run_[0]) >= 0x80) next_->foresee_wide();
        while (checked_ < run_.size()) {
            const utf8::Decoded d = utf8::decode(std::string_view(run_).substr(checked_));
            if (d.truncated) return;  // may still become a character
            if (!d.valid) return give_up();
            checked_ += std::size_t(d.length);
        }
    }
    void give_up() {
        for (std::size_t i = 0; i < run_.size(); ++i) give(kReplacementText);
        run_.clear();
        hopeless_ = true;
    }
    void end_run() {
        if (checked_ < run_.size())
            give_up();
        else if (!run_.empty())
            give(run_);
        run_.clear();
        checked_ = 0;
        hopeless_ = false;
    }
    std::string run_;
    std::size_t checked_ = 0;  // bytes of run_ that are whole characters
    bool hopeless_ = false;
};

class Fuse final : public DecodeStage {
public:
    void append(std::string_view text) override { next_->append(text); }
    void end_token() override {}
    void foresee_wide() override { next_->foresee_wide(); }
    void flush() override {
        next_->end_token();
        next_->flush();
    }
};

/// Holds back what could be the beginning of the needle, inside a token only.
class Replace final : public DecodeStage {
public:
    Replace(std::string needle, std::string content)
        : needle_(std::move(needle)), content_(std::move(content)) {}
    void append(std::string_view text) override {
        held_ += text;
        std::size_t done = 0;
        for (std::size_t at = held_.find(needle_); at != held_.npos; at = held_.find(needle_, done)) {
            next_->append(std::string_view(held_).substr(done, at - done));
            next_->append(content_);
            done = at + needle_.size();
        }
        std::size_t keep = std::min(needle_.size() - 1, held_.size() - done);
        while (keep > 0 &&
               !std::string_view(needle_).starts_with(std::string_view(held_).substr(held_.size() - keep)))
            --keep;
        next_->append(std::string_view(held_).substr(done, held_.size() - done - keep));
        held_.erase(0, held_.size() - keep);
    }
    void end_token() override {
        next_->append(held_);
        held_.clear();
        next_->end_token();
    }
    void flush() override { next_->flush(); }

private:
    std::string needle_, content_, held_;
};

class RegexReplace final : public WholeTokens {
public:
    RegexReplace(const Regex& regex, const std::string& content) : regex_(regex), content_(content) {}

private:
    void token(std::string& text) override {
        Regex::Subject subject(regex_, text);
        std::vector<Span> matches;
        subject.find_all({0, std::uint32_t(text.size())}, matches);
        std::string out;
        std::size_t done = 0;
        for (const Span m : matches) {
            out.append(text, done, m.begin - done).append(content_);
            done = m.end;
        }
        give(out.append(text, done));
    }
    const Regex& regex_;
    const std::string& content_;
};

/// Up to `start` times `content` at the front of each token and `stop` times at its end.
class Strip final : public DecodeStage {
public:
    Strip(std::string content, std::size_t start, std::size_t stop)
        : content_(std::move(content)), start_(start), stop_(stop), left_(start) {}
    void append(std::string_view text) override {
        while (left_ > 0 && text.starts_with(content_)) {
            text.remove_prefix(content_.size());
            --left_;
        }
        if (text.empty()) return;
        left_ = 0;
        std::size_t tail = 0;
        while (tail < stop_ && text.ends_with(content_)) {
            text.remove_suffix(content_.size());
            ++tail;
        }
        if (text.empty()) {  // all of it joins what is held
            held_ += tail;
            for (; held_ > stop_; --held_) next_->append(content_);
            return;
        }
        for (; held_ > 0; --held_) next_->append(content_);
        next_->append(text);
        held_ = tail;
    }
    void foresee_wide() override {
        if (static_cast<unsigned char>(content_[0]) >= 0x80) return;
        for (; held_ > 0; --held_) next_->append(content_);
        next_->foresee_wide();
    }
    void end_token() override {
        held_ = 0;
        left_ = start_;
        next_->end_token();
    }
    void flush() override { next_->flush(); }

private:
    std::string content_;
    std::size_t start_, stop_, left_, held_ = 0;
};

class Metaspace final : public DecodeStage {
public:
    Metaspace(std::string replacement, bool drops_first)
        : replacement_(std::move(replacement)), drop_(drops_first), drops_first_(drops_first) {}
    void append(std::string_view text) override {
        std::string out(text);
        replace_all(out, replacement_, drop_ ? "" : " ");
        next_->append(out);
    }
    void end_token() override {
        drop_ = false;
        next_->end_token();
    }
    void flush() override {
        drop_ = drops_first_;
        next_->flush();
    }

private:
    std::string replacement_;
    bool drop_, drops_first_;
};

/// Tokens come with a letter in front: b a byte, c a control piece, u the unknown piece, n any other, a an
/// added token. Bytes that are no UTF-8 give one U+FFFD each, characters among them stay.
class Sentencepiece final : public WholeTokens {
public:
    explicit Sentencepiece(SentencepieceDecoding options) : options_(options) {}
    void flush() override {
        bytes(true);
        at_start_ = true;
        space_seen_ = any_text_ = false;
        next_->flush();
    }

private:
    static constexpr std::string_view kSpace = "\u2581";
    void out(std::string_view text) {
        any_text_ = any_text_ || !text.empty();
        next_->append(text);
    }
    void bytes(bool ended) {
        while (!run_.empty()) {
            const utf8::Decoded d = utf8::decode(run_);
            if (d.truncated && !ended) return;
            out(d.valid ? std::string_view(run_).substr(0, std::size_t(d.length)) : kReplacementText);
            run_.erase(0, d.valid ? std::size_t(d.length) : 1);
        }
    }
    void token(std::string& text) override {
        const char kind = text.empty() ? 'c' : text[0];
        std::string_view piece = std::string_view(text).substr(text.empty() ? 0 : 1);
        if (kind == 'b') {
            run_ += piece;
            return bytes(false);
        }
        bytes(true);
        if (space_seen_ || any_text_) at_start_ = false;
        space_seen_ = false;
        if (kind == 'c') return;
        if (kind == 'u') return out(" \u2047 ");
        if (kind == 'a') return out(piece);
        if (at_start_ && (options_.add_dummy_prefix || options_.remove_extra_whitespaces) &&
            piece.starts_with(kSpace)) {
            piece.remove_prefix(kSpace.size());
            space_seen_ = !options_.remove_extra_whitespaces;
        }
        std::string surface(piece);
        replace_all(surface, kSpace, " ");
        out(surface);
    }
    SentencepieceDecoding options_;
    std::string run_;
    bool at_start_ = true, space_seen_ = false, any_text_ = false;
};

class RegexReplaceStep final : public DecoderStep {
public:
    RegexReplaceStep(std::string_view pattern, std::string content, const std::string& where)
        : regex_(pattern, where), content_(std::move(content)) {}
    std::unique_ptr<DecodeStage> stage() const override {
        return std::make_unique<RegexReplace>(regex_, content_);
    }

private:
    Regex regex_;
    std::string content_;
};

}  // namespace

std::shared_ptr<const DecoderStep> make_byte_level_decoder() {
    return step([] { return std::make_unique<ByteLevel>(); });
}
std::shared_ptr<const DecoderStep> make_byte_fallback_decoder() {
    return step([] { return std::make_unique<ByteFallback>(); });
}
std::shared_ptr<const DecoderStep> make_fuse_decoder() {
    return step([] { return std::make_unique<Fuse>(); });
}
std::shared_ptr<const DecoderStep> make_replace_decoder(const std::string& needle,
                                                        const std::string& content) {
    return step([=] { return std::make_unique<Replace>(needle, content); });
}
std::shared_ptr<const DecoderStep> make_regex_replace_decoder(std::string_view pattern,
                                                              std::string content,
                                                              const std::string& where) {
    return std::make_shared<RegexReplaceStep>(pattern, std::move(content), where);
}
std::shared_ptr<const DecoderStep> make_strip_decoder(const std::string& content,
                                                      std::size_t start,
                                                      std::size_t stop) {
    return step([=] { return std::make_unique<Strip>(content, start, stop); });
}
std::shared_ptr<const DecoderStep> make_metaspace_decoder(const std::string& replacement, bool drops_first) {
    return step([=] { return std::make_unique<Metaspace>(replacement, drops_first); });
}
std::shared_ptr<const DecoderStep> make_sentencepiece_decoder(SentencepieceDecoding options) {
    return step([=] { return std::make_unique<Sentencepiece>(options); });
}

DecodeChain::DecodeChain(const DecoderPlan& plan) {
    for (const auto& s : plan) stages_.push_back(s->stage());
    for (std::size_t i = 0; i < stages_.size(); ++i)
        stages_[i]->connect(i + 1 < stages_.size() ? stages_[i + 1].get()
                                                   : static_cast<DecodeStage*>(&sink_));
}

void DecodeChain::push(std::string_view token) {
    DecodeStage& first = stages_.empty() ? static_cast<DecodeStage&>(sink_) : *stages_.front();
    first.append(token);
    first.end_token();
}

void DecodeChain::flush() { (stages_.empty() ? static_cast<DecodeStage&>(sink_) : *stages_.front()).flush(); }

}  // namespace llmgen
