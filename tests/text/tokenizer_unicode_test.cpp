// Our Unicode tables against the reference's classes.
#include "text/unicode.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "support.h"
#include "text/normalizer.h"

namespace llmgen::test {
namespace {

using unicode::CodeSet;

CodeSet with_flag(std::uint16_t flag) {
    std::vector<CodeSet::Range> ranges;
    for (std::uint32_t c = 0; c <= unicode::kMaxCodePoint; ++c)
        if (unicode::flags()[c] & flag) ranges.emplace_back(c, c);
    return CodeSet(std::move(ranges));
}

TEST(TokenizerUnicode, ClassesAreTheReferences) {
    SKIP_WITHOUT(shared("cases/unicode_classes.json"));
    std::ifstream in(shared("cases/unicode_classes.json"));
    int n = 0;
    const auto classes = nlohmann::json::parse(in);
    for (const auto& [name, spec] : classes.items()) {
        std::vector<CodeSet::Range> ranges;
        for (const auto& r : spec["ranges"])
            ranges.emplace_back(r[0].get<std::uint32_t>(), r[1].get<std::uint32_t>());
        CodeSet ours;
        if (name.starts_with("\\p{"))
            ours = unicode::property(name.substr(3, name.size() - 4)).value();
        else if (name == "\\d")
            ours = unicode::posix_class("digit").value();
        else if (name == "\\s")
            ours = unicode::posix_class("space").value();
        else if (name == "Digits pre-tokenizer")
            ours = with_flag(unicode::kIsNumeric);
        else if (name == "Punctuation pre-tokenizer")
            ours = with_flag(unicode::kIsPunctuation);
        else if (name == "StripAccents normalizer")
            ours = with_flag(unicode::kIsAccent);
        else
            ours = with_flag(unicode::kIsSpace);
        EXPECT_EQ(ours, CodeSet(std::move(ranges))) << name;
        ++n;
    }
    EXPECT_EQ(n, 17);
}

TEST(TokenizerUnicode, FlagsAgreeWithTheClasses) {
    EXPECT_EQ(with_flag(unicode::kIsLetter), unicode::property("L"));
    EXPECT_EQ(with_flag(unicode::kIsNumber), unicode::property("N"));
    EXPECT_EQ(with_flag(unicode::kIsMark), unicode::property("Mark"));
}

TEST(TokenizerUnicode, SetsOfCodePoints) {
    const CodeSet a({{10, 20}, {30, 40}, {21, 25}});
    EXPECT_EQ(a.ranges(), (std::vector<CodeSet::Range>{{10, 25}, {30, 40}}));
    EXPECT_EQ(~~a, a);
    EXPECT_EQ((a & CodeSet::of(20, 35)), CodeSet({{20, 25}, {30, 35}}));
    EXPECT_TRUE(a.contains(10) && a.contains(40) && !a.contains(26) && !a.contains(0) && !a.contains(41));
    EXPECT_EQ(unicode::case_closure(CodeSet::of('s', 's')),
              CodeSet({{'S', 'S'}, {'s', 's'}, {0x17F, 0x17F}}));
    EXPECT_FALSE(unicode::property("Klingon"));
}

TEST(TokenizerUnicode, NormalForms) {
    const auto form = [](NormalForm f, const char* text) {
        NormalText t;
        t.text = text;
        make_normal_form(f)->apply(t);
        return t.text;
    };
    EXPECT_EQ(form(NormalForm::kNfc, "e\u0301\u0323 \u1FE3 \u212B \uF900 \u1100\u1161\u11A8"),
              "\u1EB9\u0301 \u03B0 \u00C5 \u8C48 \uAC01");
    EXPECT_EQ(form(NormalForm::kNfd, "\u1EC7 \uAC01 \u0344"),
              "e\u0323\u0302 \u1100\u1161\u11A8 \u0308\u0301");
    EXPECT_EQ(form(NormalForm::kNfkc, "\u1FCE \uFB01 \u3392 x\u00B2"), " \u0313\u0301 fi MHz x2");
    EXPECT_EQ(form(NormalForm::kNfkd, "\uFB01\u00E9"), "fie\u0301");
    EXPECT_EQ(form(NormalForm::kNfc, "\u0958 \u32FF \u00E9"),
              "\u0915\u093C \u32FF \u00E9");  // not composed; unknown to Unicode 9
    EXPECT_EQ(form(NormalForm::kNfkc, "\u32FF"), "\u32FF");
}

// A long run of marks in falling order is what makes a naive reordering quadratic.
TEST(TokenizerUnicode, NormalFormsOfManyMarksTakeLinearithmicTime) {
    NormalText t;
    t.text = "a";
    for (int i = 0; i < 200000; ++i) t.text += i % 2 ? "\u0301" : "\u0323";
    make_normal_form(NormalForm::kNfc)->apply(t);
    EXPECT_TRUE(t.text.starts_with("\u1EA1\u0323\u0323")) << t.text.substr(0, 12);
}

}  // namespace
}  // namespace llmgen::test
