// A string that knows which of its bytes a user wrote: what the template language calls str.
//
//   bytes   "<|im_start|>user\nHi<|im_end|>"
//   user                ^^^^  ^^             ranges of bytes that came from messages, tools, documents or
//   variables
//
// Every operation of the interpreter builds its result from pieces of its operands, so the ranges follow the
// bytes through concatenation, slices, split, replace, case mapping, formatting and JSON. Immutable and cheap
// to copy.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "llmgen/tokenizer.h"

namespace llmgen::jinja {

/// What a template's fault is to the reference: "TypeError", "UndefinedError", … with its wording.
struct Failure {
    std::string type;
    std::string message;
    std::size_t offset = std::string::npos;  // in the template's text
};
[[noreturn]] void raise(std::string type, std::string message);

/// Bytes that one string may have: beyond, a template is at fault.
inline constexpr std::size_t kMaxText = std::size_t(16) << 20;

class Text {
public:
    Text() = default;
    explicit Text(std::string bytes, bool user = false);

    std::string_view view() const { return rep_ ? std::string_view(rep_->bytes) : std::string_view(); }
    std::size_t size() const { return rep_ ? rep_->bytes.size() : 0; }
    bool empty() const { return size() == 0; }
    /// Number of code points.
    std::size_t length() const { return rep_ ? rep_->length : 0; }
    bool is_ascii() const { return length() == size(); }
    /// Sorted, disjoint, not adjacent.
    const std::vector<TextRange>& user() const { return rep_ ? rep_->user : none(); }
    bool any_user() const { return rep_ && !rep_->user.empty(); }
    /// The bytes [begin, end), which must lie on character boundaries.
    Text slice(std::size_t begin, std::size_t end) const;
    /// Byte offset of code point `index` (size() at and past the end).
    std::size_t offset(std::size_t index) const;
    bool operator==(const Text& other) const { return view() == other.view(); }

private:
    friend class TextBuilder;
    struct Rep {
        std::string bytes;
        std::vector<TextRange> user;
        std::size_t length;
    };
    static const std::vector<TextRange>& none();
    std::shared_ptr<const Rep> rep_;
};

/// Collects pieces with their provenance.
class TextBuilder {
public:
    void append(const Text& text) { append(text, 0, text.size()); }
    void append(const Text& text, std::size_t begin, std::size_t end);
    void append(std::string_view bytes, bool user = false);
    void append(char32_t code_point, bool user);
    std::size_t size() const { return bytes_.size(); }
    std::string_view view() const { return bytes_; }
    Text finish();

private:
    void mark(std::size_t begin, std::size_t end);
    void check(std::size_t more) const {
        if (more > kMaxText || bytes_.size() + more > kMaxText) too_long();
    }
    [[noreturn]] static void too_long();
    std::string bytes_;
    std::vector<TextRange> user_;
};

/// One character of a text after another, with its provenance.
class TextReader {
public:
    explicit TextReader(const Text& text, std::size_t at = 0);
    bool done() const { return at_ >= bytes_.size(); }
    /// The next character; `user` then says where it came from.
    char32_t next();
    bool user() const { return user_; }
    std::size_t at() const { return at_; }

private:
    std::string_view bytes_;
    const std::vector<TextRange>& ranges_;
    std::size_t at_ = 0;
    std::size_t range_ = 0;
    bool user_ = false;
};

}  // namespace llmgen::jinja
