// Oniguruma's pattern syntax to a tree; regex.cpp turns the tree into a program.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/unicode.h"

namespace llmgen::regex_syntax {

enum class Kind {
    kEmpty,
    kSet,  // one character of sets[set]
    kConcat,
    kAlternate,
    kAtomic,  // (?>…)
    kAhead,
    kNotAhead,
    kBehind,
    kNotBehind,
    kRepeat,
    kTextStart,    // \A
    kTextEnd,      // \z
    kTextEndLine,  // \Z
    kLineStart,    // ^
    kLineEnd,      // $
    kWordEdge,     // \b
    kNotWordEdge,  // \B
    kSearchStart,  // \G
};
enum class Greed { kGreedy, kLazy, kPossessive };
inline constexpr int kUnbounded = -1;

struct Node {
    Kind kind = Kind::kEmpty;
    int set = -1;
    int min = 0, max = 0;
    Greed greed = Greed::kGreedy;
    char32_t letter = 0;  // a set that is one literal character under (?i), in lower case
    std::vector<Node> children;
};

struct Tree {
    Node root;
    std::vector<unicode::CodeSet> sets;
    int line_feed = -1, word = -1;  // sets that the assertions need, -1 where none does
};

/// Throws Error, begun by `where`.
Tree parse(std::string_view pattern, const std::string& where);

}  // namespace llmgen::regex_syntax
