// What the stages of decoders share.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "text/decoder.h"

namespace llmgen {

/// A stage that looks at whole tokens only.
class WholeTokens : public DecodeStage {
public:
    void append(std::string_view text) final { token_ += text; }
    void end_token() final {
        token(token_);
        token_.clear();
    }
    void flush() override { next_->flush(); }

protected:
    virtual void token(std::string& text) = 0;

private:
    std::string token_;
};

/// All occurrences of `needle`, from the left.
void replace_all(std::string& text, std::string_view needle, std::string_view content);

/// A step whose stage is made by copying a prototype's arguments.
template <typename Make>
class Step final : public DecoderStep {
public:
    explicit Step(Make make) : make_(std::move(make)) {}
    std::unique_ptr<DecodeStage> stage() const override { return make_(); }

private:
    Make make_;
};
template <typename Make>
std::shared_ptr<const DecoderStep> step(Make make) {
    return std::make_shared<Step<Make>>(std::move(make));
}

}  // namespace llmgen
