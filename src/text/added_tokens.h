// Added tokens: strings that are found in the text before (or after) normalization and become one id.
//
// As in the reference: at each place the longest one that begins there is taken, from the left; one that
// fails single_word, or a special one that is not to be parsed, still uses up its characters. lstrip and
// rstrip then widen the match over white space, on the left not beyond the match before. The search never
// sees the widened end, so a second match can begin inside it, and is kept.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmgen/tokenizer.h"
#include "text/split_patterns.h"

namespace llmgen {

struct AddedToken {
    std::string content;
    int id = -1;
    bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;
};

class AddedTokenFinder {
public:
    struct Part {
        Span span;
        int id;  // -1: text
    };
    /// `pattern` is the token's content, normalized where the token is matched in normalized text.
    void add(const AddedToken& token, std::string_view pattern);
    bool empty() const { return tokens_.empty(); }

    /// Cuts `text` into tokens and what is between them. `is_plain(begin, end)`: no special token may be
    /// there, nor one of `control_ids`.
    template <typename F>
    void split(std::string_view text,
               bool parse_special,
               std::span<const int> control_ids,
               F is_plain,
               std::vector<Part>& parts) const;

private:
    struct Node {
        std::uint32_t first_child = 0, next_sibling = 0;
        std::int32_t token = -1;  // index into tokens_
        char byte = 0;
    };
    struct Token {
        int id;
        std::uint32_t length;
        bool single_word, lstrip, rstrip, special;
    };
    struct Match {
        const Token* token = nullptr;
        std::size_t end = 0;
    };
    const Node* child(const Node& node, char byte) const;
    /// Longest token at `at` that `allowed` takes.
    template <typename F>
    Match longest(std::string_view text, std::size_t at, F allowed) const;

    std::vector<Node> nodes_{Node{}};
    std::uint32_t roots_[256] = {};  // child of the root per byte; 0 = none
    std::vector<Token> tokens_;
};

/// Whether a word character (the reference's \w) ends `text` or begins it.
bool ends_with_word(std::string_view text);
bool starts_with_word(std::string_view text);
/// Bytes of white space at the end, at the start.
std::size_t space_at_end(std::string_view text);
std::size_t space_at_start(std::string_view text);

inline const AddedTokenFinder::Node* AddedTokenFinder::child(const Node& node, char byte) const {
    for (std::uint32_t i = node.first_child; i != 0; i = nodes_[i].next_sibling)
        if (nodes_[i].byte == byte) return &nodes_[i];
    return nullptr;
}

template <typename F>
AddedTokenFinder::Match AddedTokenFinder::longest(std::string_view text, std::size_t at, F allowed) const {
    Match best;
    const Node* node = &nodes_[roots_[static_cast<unsigned char>(text[at])]];
    for (std::size_t end = at + 1;; ++end) {
        if (node->token >= 0 && allowed(tokens_[std::size_t(node->token)], end))
            best = {&tokens_[std::size_t(node->token)], end};
        if (end == text.size()) break;
        node = child(*node, text[end]);
        if (node == nullptr) break;
    }
    return best;
}

template <typename F>
void AddedTokenFinder::split(std::string_view text,
                             bool parse_special,
                             std::span<const int> control_ids,
                             F is_plain,
                             std::vector<Part>& parts) const {
    std::size_t done = 0;
    for (std::size_t at = 0; at < text.size();) {
        if (roots_[static_cast<unsigned char>(text[at])] == 0) {
            ++at;
            continue;
        }
        const Match m = longest(text, at, [&](const Token& t, std::size_t end) {
            const bool control = t.special || std::ranges::binary_search(control_ids, t.id);
            return !control || !is_plain(at, end);
        });
        if (m.token == nullptr) {
            ++at;
            continue;
        }
        std::size_t begin = at, end = m.end;
        at = end;
        const Token& t = *m.token;
        if (t.special && !parse_special) continue;
        if (t.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end))))
            continue;
        if (t.lstrip) begin = std::max(done, begin - space_at_end(text.substr(0, begin)));
        if (t.rstrip) end += space_at_start(text.substr(end));
        if (done < begin) parts.push_back({{std::uint32_t(done), std::uint32_t(begin)}, -1});
        parts.push_back({{std::uint32_t(begin), std::uint32_t(end)}, t.id});
        done = end;
    }
    if (done < text.size()) parts.push_back({{std::uint32_t(done), std::uint32_t(text.size())}, -1});
}

}  // namespace llmgen
