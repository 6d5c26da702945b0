// Incremental decoding: final text only, no half characters, the same as decoding all ids at once.
#include <unistd.h>

#include <chrono>
#include <random>

#include "base/utf8.h"
#include "support.h"
#include "tokenizer_toys.h"

namespace llmgen::test {
namespace {

using Ids = std::vector<int>;
using Strings = std::vector<std::string>;

/// Chunk after chunk, the flush at the end.
Strings chunks(const Tokenizer& t, const Ids& ids, bool skip = true) {
    Detokenizer d(t, skip);
    Strings out;
    for (int id : ids) out.push_back(d.push(id));
    out.push_back(d.flush());
    return out;
}

Tokenizer sentencepiece_like(const json& decoder) {
    json vocab = {{"<unk>", 0}, {"<s>", 1}};
    for (int b = 0; b < 256; ++b) vocab[fmt::format("<0x{:02X}>", b)] = 2 + b;
    int id = 258;
    for (const char* token : {"▁", "▁hi", "▁user", "私", "a", "hi"}) vocab[token] = id++;
    return load_json({{"added_tokens", json::array({added_token("<s>")})},
                      {"decoder", decoder},
                      {"model",
                       {{"type", "BPE"},
                        {"byte_fallback", true},
                        {"ignore_merges", true},
                        {"vocab", vocab},
                        {"merges", json::array()}}}});
}
json llama_decoder() {
    return {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
}
constexpr int kByte = 2, kSpace = 258, kHi = 259, kUser = 260, kWatashi = 261;

// C1
TEST(Detokenizer, HoldsBackHalfCharacters) {
    const Tokenizer t = load_json(byte_toy());
    EXPECT_EQ(chunks(t, {0xC3, 0xA9, 0xF0, 0x9F, 0xA4, 0x97}), (Strings{"", "é", "", "", "", "🤗", ""}));
}

// C2: what can no longer become a character is replaced at once, an unfinished tail at the end.
TEST(Detokenizer, InvalidBytesAndUnfinishedTails) {
    const Tokenizer t = load_json(byte_toy());
    EXPECT_EQ(chunks(t, {0xFF, 'A'}), (Strings{"\uFFFD", "A", ""}));
    EXPECT_EQ(chunks(t, {0xC3}), (Strings{"", "\uFFFD"}));
    EXPECT_EQ(chunks(t, {0xC3, 0xA9, 0xF0, 0x9F}), (Strings{"", "é", "", "", "\uFFFD"}));
    EXPECT_EQ(chunks(t, {0xF0, 0x9F, 0xA4, 'A'}), (Strings{"", "", "", "\uFFFDA", ""}));
    EXPECT_EQ(chunks(t, {0xED, 0xA0, 0x80}), (Strings{"", "\uFFFD\uFFFD", "\uFFFD", ""}));
    const Tokenizer s = sentencepiece_like(llama_decoder());
    EXPECT_EQ(s.decode(Ids{kByte + 0xF0, kByte + 0x9F}, true), "\uFFFD\uFFFD");
    EXPECT_EQ(s.decode(Ids{kByte + 0xE4, kByte + 0xBD, kByte + 0xA0, kByte + 0xE5}, true),
              "\uFFFD\uFFFD\uFFFD\uFFFD");
}

// Skipped tokens end neither a character nor a run of bytes; shown ones do.
TEST(Detokenizer, SkippedTokensAreNotThere) {
    const Tokenizer t = load_json(byte_toy({}, {added_token("<s>")}));
    EXPECT_EQ(chunks(t, {0xC3, 256, 0xA9}), (Strings{"", "", "é", ""}));
    EXPECT_EQ(chunks(t, {0xC3, 256, 0xA9}, false), (Strings{"", "\uFFFD<s>", "\uFFFD", ""}));
    const Tokenizer s = sentencepiece_like(llama_decoder());
    EXPECT_EQ(chunks(s, {kByte + 0xC3, 1, kByte + 0xA9, kHi}), (Strings{"", "", "", "é hi", ""}));
}

// C4
TEST(Detokenizer, StripsOneSpaceOfTheWholeText) {
    const Tokenizer t = sentencepiece_like(llama_decoder());
    EXPECT_EQ(chunks(t, {kHi, kUser}), (Strings{"hi", " user", ""}));
    EXPECT_EQ(chunks(t, {kSpace, kHi}), (Strings{"", " hi", ""}));
    EXPECT_EQ(chunks(t, {1, kSpace, kSpace, kHi}), (Strings{"", "", " ", " hi", ""}));
    EXPECT_EQ(load_json(byte_toy()).decode(Ids{' ', 'A'}, true), " A");
}

// C5: no clean-up of spaces; decoding gives back what was encoded.
TEST(Detokenizer, RoundTripOfBytes) {
    const Tokenizer t = load_json(byte_toy({"Ġ .", "Ġ !", "Ġ ,", "' s"}));
    for (const char* text :
         {"x != y", "import 'package", "a . b ? c ! d , e", " 'm  's n't", "\r\n\t", "é🤗你", "a\u00a0b"})
        EXPECT_EQ(t.decode(t.encode(text), false), text);
    std::mt19937 rng(3);
    for (int i = 0; i < 500; ++i) {
        std::string text;
        for (unsigned k = rng() % 20; k > 0; --k) {
            const char32_t c = rng() % 2 ? rng() % 0x250 : rng() % 0x110000;
            if (c < 0xD800 || c > 0xDFFF) utf8::append(text, c);
        }
        const Ids ids = t.encode(text);
        EXPECT_EQ(t.decode(ids, false), text);
        std::string joined;
        for (const std::string& chunk : chunks(t, ids)) {
            EXPECT_TRUE(utf8::is_valid(chunk));
            joined += chunk;
        }
        EXPECT_EQ(joined, text);
    }
}

// C6: the time of a token does not depend on how many came before.
TEST(Detokenizer, TimeIsLinear) {
    const Tokenizer bytes = load_json(byte_toy());
    const Tokenizer pieces = sentencepiece_like(llama_decoder());
    const auto seconds = [](const Tokenizer& t, const Ids& ids) {
        Detokenizer d(t, true);
        const auto start = std::chrono::steady_clock::now();
        for (int id : ids) d.push(id);
        d.flush();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    EXPECT_LT(seconds(bytes, Ids(300000, 'a')), 10);
    EXPECT_LT(seconds(bytes, Ids(300000, 0x80)), 10);
    EXPECT_LT(seconds(pieces, Ids(300000, kByte + 'a')), 10);  // one run, held to the end
    EXPECT_LT(seconds(pieces, Ids(300000, kByte + 0x80)), 10);
    EXPECT_LT(seconds(pieces, Ids(300000, kSpace)), 10);
}

// C8: the decoder is the file's, not a guess.
TEST(Detokenizer, TheFilesDecoderCounts) {
    EXPECT_EQ(sentencepiece_like(llama_decoder()).decode(Ids{kWatashi}, true), "私");
    EXPECT_EQ(sentencepiece_like(nullptr).decode(Ids{kHi, kWatashi}, true), "▁hi 私");
    EXPECT_EQ(sentencepiece_like({{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}})
                  .decode(Ids{kHi, kUser}, true),
              "hi user");
}

TEST(Detokenizer, UnknownIdsGiveNothing) {
    const Tokenizer t = load_json(byte_toy());
    EXPECT_EQ(t.decode(Ids{9999, 'A', -1, 2147483647, -2147483647 - 1}, true), "A");
    EXPECT_EQ(chunks(t, {0xC3, 9999, 0xA9}), (Strings{"", "", "é", ""}));
}

TEST(Detokenizer, IsAsNewAfterFlush) {
    const Tokenizer t = sentencepiece_like(llama_decoder());
    Detokenizer d(t, true);
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(d.push(kHi), "hi");
        EXPECT_EQ(d.push(kByte + 0xC3), "");
        EXPECT_EQ(d.flush(), "\uFFFD");
    }
    const Tokenizer w = sentencepiece_like({{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}});
    Detokenizer e(w, true);
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(e.push(kWatashi), "私");
        EXPECT_EQ(e.push(kWatashi), " 私");
        e.flush();
    }
}

// Each stage gives out what no continuation can change, and no less: checked against all continuations of a
// small alphabet.
TEST(Detokenizer, ChunksAreFinalAndComplete) {
    const json strip_both = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 2}};
    const json fused = {{"type", "Sequence"},
                        {"decoders",
                         {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                          {{"type", "ByteFallback"}},
                          {{"type", "Fuse"}},
                          strip_both}}};
    for (const json& decoder : {llama_decoder(), fused, json({{"type", "BPEDecoder"}, {"suffix", "hi"}}),
                                json({{"type", "ByteFallback"}}), json(nullptr)}) {
        const Tokenizer t = sentencepiece_like(decoder);
        const Ids alphabet = {kSpace, kHi, 262, kByte + 'a', kByte + 0xC3, kByte + 0xA9, kByte + 0xE4};
        std::mt19937 rng(11);
        for (int round = 0; round < 60; ++round) {
            Ids ids;
            for (unsigned n = 1 + rng() % 4; n > 0; --n) ids.push_back(alphabet[rng() % alphabet.size()]);
            std::string given;
            Detokenizer d(t, true);
            for (int id : ids) given += d.push(id);
            // The longest text that begins every continuation of up to two more ids.
            std::string common = t.decode(ids, true);
            const auto meet = [&](const std::string& other) {
                std::size_t n = 0;
                while (n < common.size() && n < other.size() && common[n] == other[n]) ++n;
                while (n > 0 && n < common.size() && (static_cast<unsigned char>(common[n]) & 0xC0) == 0x80)
                    --n;
                common.resize(n);
            };
            for (int a : alphabet) {
                Ids more = ids;
                more.push_back(a);
                meet(t.decode(more, true));
                for (int b : alphabet) {
                    more.push_back(b);
                    meet(t.decode(more, true));
                    more.pop_back();
                }
            }
            EXPECT_EQ(given, common) << decoder.dump() << " " << testing::PrintToString(ids);
        }
    }
}

}  // namespace
}  // namespace llmgen::test
