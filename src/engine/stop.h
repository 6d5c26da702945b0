// Stop strings, found in the text, not in the ids: a model writes the same text in more than one way.
//
// The text so far is let out up to the longest end that could still become a stop string; that end is held
// back until the next token decides. The match that begins first wins, and nothing from its beginning on is
// ever let out.
//
//   stop "own fox":  "The quick br" | "own" held back | " fox" → stopped, the text is "The quick br"
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace llmgen {

class StopStrings {
public:
    /// None of them empty.
    explicit StopStrings(std::vector<std::string> stops);

    /// Takes new text, returns what became final. After a match it returns nothing more.
    std::string push(std::string_view text);
    /// The text has ended: what was held back was no stop string.
    std::string flush();
    /// The stop string that was found.
    const std::optional<std::string>& found() const { return found_; }

private:
    std::vector<std::string> stops_;
    std::string held_;
    std::optional<std::string> found_;
};

}  // namespace llmgen
