#include "engine/stop.h"

#include <gtest/gtest.h>

namespace llmgen {
namespace {

struct Outcome {
    std::string text, stop;
    bool operator==(const Outcome&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Outcome& o) { return out << o.text << " | " << o.stop; }

Outcome run(std::vector<std::string> stops, const std::vector<std::string>& pieces) {
    StopStrings stop(std::move(stops));
    Outcome outcome;
    for (const std::string& piece : pieces) outcome.text += stop.push(piece);
    outcome.text += stop.flush();
    outcome.stop = stop.found().value_or("");
    return outcome;
}

TEST(StopStrings, HoldsBackWhatCouldBecomeOne) {
    StopStrings stop({"own fox"});
    EXPECT_EQ(stop.push("The quick brown"), "The quick br");
    EXPECT_EQ(stop.push(" f"), "");
    EXPECT_EQ(stop.push("ox jumps"), "");
    EXPECT_EQ(stop.found(), "own fox");
    EXPECT_EQ(stop.push("more"), "");
    EXPECT_EQ(stop.flush(), "");
}

TEST(StopStrings, LetsGoWhenItWasNone) {
    StopStrings stop({"own fox"});
    EXPECT_EQ(stop.push("The br"), "The br");
    EXPECT_EQ(stop.push("own"), "");
    EXPECT_EQ(stop.push("ed"), "owned");
    EXPECT_EQ(stop.push("own f"), "");
    EXPECT_EQ(stop.flush(), "own f");
}

TEST(StopStrings, NothingAfterTheMatchInsideAPiece) {
    EXPECT_EQ(run({"five"}, {"one, two, three, four, ", "five, six"}),
              (Outcome{"one, two, three, four, ", "five"}));
}

TEST(StopStrings, EverySplitGivesTheSame) {
    const std::string text = "abcabxabcabcabd and on";
    for (const std::vector<std::string>& stops :
         {std::vector<std::string>{"abcabd"}, {"bx", "abcabc"}, {"n"}, {"zzz"}, {"d a", "d"}, {"abx", "b"}}) {
        const Outcome whole = run(stops, {text});
        for (std::size_t i = 0; i <= text.size(); ++i)
            for (std::size_t j = i; j <= text.size(); ++j)
                EXPECT_EQ(run(stops, {text.substr(0, i), text.substr(i, j - i), text.substr(j)}).text,
                          whole.text)
                    << i << " " << j;
        std::vector<std::string> single;
        for (const char c : text) single.emplace_back(1, c);
        EXPECT_EQ(run(stops, single).text, whole.text);
    }
}

TEST(StopStrings, TheEarliestMatchWins) {
    EXPECT_EQ(run({"lo w", "ell"}, {"hello world"}), (Outcome{"h", "ell"}));
    EXPECT_EQ(run({"hello", "he"}, {"oh hello"}), (Outcome{"oh ", "he"}));
}

TEST(StopStrings, NoneAtAll) { EXPECT_EQ(run({}, {"a", "b"}), (Outcome{"ab", ""})); }

}  // namespace
}  // namespace llmgen
