// What users of other engines met with tokenizers, each as a small test, and what makes a file an Error.
#include "llmgen/tokenizer.h"

#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/mmap.h"
#include "support.h"
#include "tokenizer_toys.h"

namespace llmgen::test {
namespace {

using Ids = std::vector<int>;
using Strings = std::vector<std::string>;

// B1: a whole pre-token in the vocabulary is taken before any merge, if ignore_merges says so.
TEST(Tokenizer, IgnoreMerges) {
    json j = byte_toy({"a b"});
    j["model"]["vocab"]["Ġabc"] = 257;
    EXPECT_EQ(strings(load_json(j), " abc"), (Strings{"Ġ", "ab", "c"}));
    j["model"]["ignore_merges"] = true;
    EXPECT_EQ(strings(load_json(j), " abc"), (Strings{"Ġabc"}));
}

// B2: merges as strings and as pairs; a vocabulary that needs merges and has none is an Error.
TEST(Tokenizer, MergesInBothForms) {
    json j = byte_toy({"a b", "ab c"});
    const Tokenizer as_strings = load_json(j);
    j["model"]["merges"] = json::parse(R"([["a", "b"], ["ab", "c"]])");
    const Tokenizer as_pairs = load_json(j);
    for (const char* text : {"abc", "aabcab", "xabx"})
        EXPECT_EQ(as_strings.encode(text), as_pairs.encode(text));
    EXPECT_EQ(as_pairs.encode("abc"), Ids{257});
    j["model"]["merges"] = json::array();
    EXPECT_NE(error_of(j).find("there are no merges"), std::string::npos) << error_of(j);
}

// B4, B5: the borders of Llama 3's pattern.
TEST(Tokenizer, Llama3Borders) {
    json j = byte_toy();
    j["model"]["ignore_merges"] = true;
    int id = 256;
    for (const char* word : {"123", "45", "'LL", "Ġdon", "'t", "Ġb", "ĠĠĠ", "ĊĊ", "Ġx", "foo", "!!!ĊĊ", "bar",
                             "ĠĠĊ", "čĊčĊ", "Âłb", "à¤¨à¤®à¤¸", "à¥įà¤¤", "à¥ĩ"})
        j["model"]["vocab"][word] = id++;
    const Tokenizer t = load_json(j);
    EXPECT_EQ(strings(t, "12345 6"), (Strings{"123", "45", "Ġ", "6"}));
    EXPECT_EQ(strings(t, "I'LL don't"), (Strings{"I", "'LL", "Ġdon", "'t"}));
    EXPECT_EQ(strings(t, "a  b"), (Strings{"a", "Ġ", "Ġb"}));
    EXPECT_EQ(strings(t, "a   "), (Strings{"a", "ĠĠĠ"}));
    EXPECT_EQ(strings(t, "\n\n x"), (Strings{"ĊĊ", "Ġx"}));
    EXPECT_EQ(strings(t, "foo!!!\n\nbar"), (Strings{"foo", "!!!ĊĊ", "bar"}));
    EXPECT_EQ(strings(t, "  \n  x"), (Strings{"ĠĠĊ", "Ġ", "Ġx"}));
    EXPECT_EQ(strings(t, "x\r\n\r\ny"), (Strings{"x", "čĊčĊ", "y"}));
    EXPECT_EQ(strings(t, "a\u00a0b"), (Strings{"a", "Âłb"}));
    EXPECT_EQ(strings(t, "नमस्ते"), (Strings{"à¤¨à¤®à¤¸", "à¥įà¤¤", "à¥ĩ"}));
}

// B6, B7: any text of one kind of character, in linear time and without recursion.
TEST(Tokenizer, LongRunsOfOneCharacter) {
    const Tokenizer t =
        load_json(byte_toy({"a a", "aa aa", "aaaa aaaa", "x x", "Ġ Ġ", "ĠĠ ĠĠ", "Ċ Ċ", "! !"}));
    for (const char* unit : {"a", "x", " ", "\n", "7", "!", "你", "\u0301", "\t", "é"}) {
        std::string text;
        while (text.size() < (1U << 20)) text += unit;
        const auto start = std::chrono::steady_clock::now();
        const std::vector<int> ids = t.encode(text);
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        EXPECT_EQ(t.decode(ids, false), text);
        EXPECT_LT(seconds.count(), 20)
            << unit;  // sanitizers and a busy machine included; quadratic would be hours
    }
    EXPECT_EQ(t.encode("aaaaaaaaaaaaa"), (Ids{258, 257, 'a'}));
}

// B8: flags of added tokens.
TEST(Tokenizer, AddedTokenFlags) {
    const Tokenizer strip = load_json(
        byte_toy({}, {added_token("<l>", {{"lstrip", true}}), added_token("<r>", {{"rstrip", true}})}));
    EXPECT_EQ(strip.encode("a  <l> b"), (Ids{'a', 256, ' ', 'b'}));
    EXPECT_EQ(strip.encode("a  <r>  b"), (Ids{'a', ' ', ' ', 257, 'b'}));
    EXPECT_EQ(strip.encode("a\u3000\n<l>"), (Ids{'a', 256}));
    const Tokenizer word = load_json(byte_toy({}, {added_token("cat", {{"single_word", true}})}));
    EXPECT_EQ(word.encode("cat concat cat."), (Ids{256, ' ', 'c', 'o', 'n', 'c', 'a', 't', ' ', 256, '.'}));
    for (const char* text : {"_cat", "cat1", "écat", "你cat", "cat\u0301"})
        EXPECT_EQ(word.encode(text).size(), std::string(text).size()) << text;
    EXPECT_EQ(load_json(byte_toy({}, {added_token("<a>"), added_token("<a><b>")})).encode("x<a><b>y"),
              (Ids{'x', 257, 'y'}));
    EXPECT_EQ(load_json(byte_toy({}, {added_token("<a><b>"), added_token("<a>")})).encode("x<a><b>y"),
              (Ids{'x', 256, 'y'}));
}

TEST(Tokenizer, NormalizedAddedTokens) {
    json j = byte_toy({}, {added_token("YES", {{"normalized", true}})});
    j["normalizer"] = {{"type", "Lowercase"}};
    EXPECT_EQ(load_json(j).encode("YES yes"), (Ids{256, ' ', 256}));
    j["added_tokens"] = json::array({added_token("Yes")});
    EXPECT_EQ(load_json(j).encode("YES Yes"), (Ids{'y', 'e', 's', ' ', 256}));
}

// The ids in the file are comments: the reference counts.
TEST(Tokenizer, AddedTokensTakeTheNextFreeId) {
    const Tokenizer t =
        load_json(byte_toy({}, {added_token("<x>", {{"id", 900}}), added_token("<y>", {{"id", 5}})}));
    EXPECT_EQ(t.encode("<x><y>"), (Ids{256, 257}));
    EXPECT_EQ(t.vocab_size(), 258);
}

// B10: what a user wrote never becomes a control token.
TEST(Tokenizer, PlainRanges) {
    const Tokenizer t = load_json(byte_toy(
        {}, {added_token("<|eot|>"), added_token("<think>", {{"special", false}}), added_token("<|e")}));
    const std::string text = "<|eot|>a<|eot|>b<|eot|>";
    EncodeOptions options;
    const TextRange user[] = {{7, 16}};  // "a<|eot|>b"
    options.plain_ranges = user;
    EXPECT_EQ(t.encode(text, options), (Ids{256, 'a', '<', '|', 'e', 'o', 't', '|', '>', 'b', 256}));
    EXPECT_EQ(t.decode(t.encode(text, options), false), text);
    const TextRange edge[] = {
        {3, 4}};  // one byte inside the first token is enough; the longest that is left is taken
    options.plain_ranges = edge;
    EXPECT_EQ(t.encode("<|eot|>", options), (Ids{258, 'o', 't', '|', '>'}));
    const TextRange whole[] = {{0, 7}};
    options.plain_ranges = whole;
    EXPECT_EQ(t.encode("<think>", options), Ids{257});  // no control token
    const TextRange empty[] = {{3, 3}};
    options.plain_ranges = empty;
    EXPECT_EQ(t.encode("<|eot|>", options), Ids{256});
    options = {};
    options.parse_special = false;
    EXPECT_EQ(t.encode("<|eot|><think>", options), (Ids{'<', '|', 'e', 'o', 't', '|', '>', 257}));
}

// A token that the user's words and the template's make together is none either; words still merge over the
// border.
TEST(Tokenizer, PlainRangesDoNotCutTheText) {
    const Tokenizer t = load_json(byte_toy({"a b", "ab c"}, {added_token("<|x|>")}));
    EncodeOptions options;
    const TextRange user[] = {{1, 2}};
    options.plain_ranges = user;
    EXPECT_EQ(t.encode("abc", options), Ids{257});
    const TextRange half[] = {{0, 2}};
    options.plain_ranges = half;
    EXPECT_EQ(t.encode("<|x|><|x|>", options), (Ids{'<', '|', 'x', '|', '>', 258}));
}

TEST(Tokenizer, PlainRangesWithNormalizedTokens) {
    json j = byte_toy({}, {added_token("<S>", {{"normalized", true}})});
    j["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFKC"}}, {{"type", "Lowercase"}}}}};
    const Tokenizer t = load_json(j);
    EncodeOptions options;
    const std::string text = "ﬁ<S>ﬁ<s>";  // the ligatures move all offsets
    const TextRange user[] = {{0, 6}};
    options.plain_ranges = user;
    EXPECT_EQ(t.encode(text, options), (Ids{'f', 'i', '<', 's', '>', 'f', 'i', 256}));
    EXPECT_EQ(t.encode(text), (Ids{'f', 'i', 256, 'f', 'i', 256}));
}

json sentencepiece_toy() {
    json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
    for (int b = 0; b < 256; ++b) vocab[fmt::format("<0x{:02X}>", b)] = 3 + b;
    int id = 259;
    for (const char* token : {"▁", "u", "s", "e", "r", "h", "i", "▁u", "▁h", "se", "ser", "▁user", "▁hi",
                              "▁▁", "user", "us", "hi"})
        vocab[token] = id++;
    const json replace = {{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}};
    return {{"added_tokens", {added_token("<unk>"), added_token("<s>"), added_token("</s>")}},
            {"normalizer", nullptr},
            {"pre_tokenizer", nullptr},
            {"post_processor", nullptr},
            {"decoder",
             {{"type", "Sequence"},
              {"decoders",
               {replace,
                {{"type", "ByteFallback"}},
                {{"type", "Fuse"}},
                {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
            {"model",
             {{"type", "BPE"},
              {"unk_token", "<unk>"},
              {"fuse_unk", true},
              {"byte_fallback", true},
              {"vocab", vocab},
              {"merges", {"s e", "se r", "▁ u", "▁u ser", "▁ h", "▁h i", "▁ ▁", "u ser", "h i"}}}}};
}

// B11: where the space in front goes, for each of the four ways to say it.
TEST(Tokenizer, PrefixSpace) {
    json j = sentencepiece_toy();
    j["normalizer"] = {{"type", "Sequence"},
                       {"normalizers",
                        {{{"type", "Prepend"}, {"prepend", "▁"}},
                         {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}};
    const Tokenizer legacy = load_json(j);
    EXPECT_EQ(strings(legacy, "user"), (Strings{"▁user"}));
    EXPECT_EQ(strings(legacy, " user"), (Strings{"▁", "▁user"}));
    EXPECT_EQ(strings(legacy, "<s>user"), (Strings{"<s>", "▁user"}));
    EXPECT_EQ(strings(legacy, "hi<s>user"), (Strings{"▁hi", "<s>", "▁user"}));
    EXPECT_EQ(strings(legacy, ""), Strings{});
    j["normalizer"] = nullptr;
    const auto metaspace = [&](const char* scheme) {
        j["pre_tokenizer"] = {
            {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", false}};
        return load_json(j);
    };
    const Tokenizer first = metaspace("first"), always = metaspace("always"), never = metaspace("never");
    EXPECT_EQ(strings(first, "hi<s>user"), (Strings{"▁hi", "<s>", "user"}));
    EXPECT_EQ(strings(first, "<s>user"), (Strings{"<s>", "user"}));
    EXPECT_EQ(strings(first, " user"), (Strings{"▁user"}));
    EXPECT_EQ(strings(always, "hi<s>user"), (Strings{"▁hi", "<s>", "▁user"}));
    EXPECT_EQ(strings(never, "hi<s> user"), (Strings{"hi", "<s>", "▁user"}));
    for (const Tokenizer* t : {&first, &always, &never}) EXPECT_EQ(strings(*t, ""), Strings{});
}

// B12: bytes for what has no piece, and only for that.
TEST(Tokenizer, ByteFallback) {
    json j = sentencepiece_toy();
    const Tokenizer t = load_json(j);
    EXPECT_EQ(strings(t, "🤗"), (Strings{"<0xF0>", "<0x9F>", "<0xA4>", "<0x97>"}));
    EXPECT_EQ(strings(t, "<0x41>").size(), 6U);  // typed by a user: six characters, six bytes
    EXPECT_EQ(t.decode(t.encode("<0x41>"), true), "<0x41>");
    j["model"]["byte_fallback"] = false;
    EXPECT_EQ(strings(load_json(j), "🤗🤗u"), (Strings{"<unk>", "u"}));
    j["model"]["fuse_unk"] = false;
    EXPECT_EQ(strings(load_json(j), "🤗🤗u"), (Strings{"<unk>", "<unk>", "u"}));
    j["model"]["unk_token"] = nullptr;
    EXPECT_EQ(strings(load_json(j), "h🤗i"), (Strings{"hi"}));  // the neighbours meet
}

// B14: each id that a file names is checked.
TEST(Tokenizer, IdsOutOfRangeAreErrors) {
    json j = with_bos(byte_toy({}, {added_token("<s>")}), "<s>", 1000000000);
    EXPECT_NE(error_of(j).find("post_processor.special_tokens"), std::string::npos) << error_of(j);
    j = with_bos(byte_toy({}, {added_token("<s>")}), "<s>", 257);
    EXPECT_NE(error_of(j).find("id 257 is neither in the vocabulary nor"), std::string::npos) << error_of(j);
    for (const json& id : {json(-1), json(1000000000), json("x"), json(1.5), json(nullptr)}) {
        j = byte_toy();
        j["model"]["vocab"]["a"] = id;
        EXPECT_NE(error_of(j).find("model.vocab: the id of \"a\""), std::string::npos) << error_of(j);
        j = byte_toy({}, {added_token("<s>", {{"id", id}})});
        EXPECT_NE(error_of(j).find("added_tokens[0]"), std::string::npos) << error_of(j);
    }
    j = byte_toy({"a b"});
    j["model"]["merges"] = {"a zz"};
    EXPECT_NE(error_of(j).find("model.merges: merge 0"), std::string::npos) << error_of(j);
}

// What is not known is an Error that names it.
TEST(Tokenizer, UnknownComponentsAreErrors) {
    const auto names = [](const char* key, const json& value, const std::string& expected) {
        json j = byte_toy();
        j[key] = value;
        const std::string error = error_of(j);
        EXPECT_NE(error.find("tokenizer.json: " + expected), std::string::npos) << error;
        EXPECT_EQ(error.find('\n'), error.npos);
    };
    names("normalizer", {{"type", "Rot13"}}, "normalizer: a normalizer of type \"Rot13\"");
    names("pre_tokenizer",
          {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Whitespace"}}, {{"type", "Zap"}}}}},
          "pre_tokenizer.pretokenizers[1]: a pre-tokenizer of type \"Zap\"");
    names("decoder", {{"type", "Nope"}}, "decoder: a decoder of type \"Nope\"");
    names("post_processor", {{"type", "Nope"}}, "post_processor: a post-processor of type \"Nope\"");
    names("model", {{"type", "WordLevel"}, {"vocab", json::object()}},
          "model: a model of type \"WordLevel\"");
    names("pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "(a)\\1"}}}, {"behavior", "Isolated"}},
          "pre_tokenizer: pattern");
    names("pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Sideways"}},
          "pre_tokenizer: behavior \"Sideways\"");
    names("pre_tokenizer", 7, "pre_tokenizer: expected an object");
    json deep = {{"type", "Whitespace"}};
    for (int i = 0; i < 200; ++i) deep = {{"type", "Sequence"}, {"pretokenizers", {deep}}};
    names("pre_tokenizer", deep, "pre_tokenizer");
}

TEST(Tokenizer, FilesThatAreNoTokenizers) {
    const TempDir dir("bad");
    const auto error = [&](const std::filesystem::path& path) -> std::string {
        try {
            Tokenizer::load(path);
        } catch (const Error& e) {
            EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
            EXPECT_NE(std::string(e.what()).find(path.filename().string()), std::string::npos) << e.what();
            return e.what();
        }
        return "";
    };
    EXPECT_NE(error(dir.write("tokenizer.json",
                              "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"))
                  .find("Git LFS pointer"),
              std::string::npos);
    EXPECT_NE(error(dir.write("tokenizer.model",
                              "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"))
                  .find("Git LFS pointer"),
              std::string::npos);
    EXPECT_NE(error(dir.write("tokenizer.json", "{\"model\": ")).find("not valid JSON"), std::string::npos);
    EXPECT_NE(error(dir.write("tokenizer.json", "{}")).find("\"model\" is missing"), std::string::npos);
    EXPECT_NE(error(dir.write("tokenizer.json", "{\"a\":\"\xff\"}")).find("not valid JSON"),
              std::string::npos);
    EXPECT_NE(error(dir.write("tokenizer.model", "hello there")).find("neither a sentencepiece model nor"),
              std::string::npos);
    EXPECT_NE(error(dir.write("tokenizer.json", "no JSON")).find("tokenizer.json: not valid JSON"),
              std::string::npos);
    EXPECT_NE(error(dir.write("tokenizer.model", "")).find("tokenizer.model: is empty"), std::string::npos);
    EXPECT_NE(error(dir.write("tokenizer.model", "YQ== 0\nYg== 0\n")).find("line 2: rank 0 stands twice"),
              std::string::npos);
    EXPECT_NE(error(dir.write("tokenizer.model", "YQ== 0\n?? 1\n")).find("line 2: expected base64"),
              std::string::npos);
    EXPECT_NE(error(dir.path() / "absent.json"), "");
    const TempDir empty("empty");
    EXPECT_NE(error(empty.path()).find("neither tokenizer.json nor tokenizer.model"), std::string::npos);
}

// B16: an empty prompt is what the post-processor makes of nothing.
TEST(Tokenizer, EmptyText) {
    EXPECT_EQ(load_json(byte_toy()).encode(""), Ids{});
    const Tokenizer t = load_json(with_bos(byte_toy({}, {added_token("<s>")}), "<s>", 256));
    EXPECT_EQ(t.encode(""), Ids{256});
    EXPECT_EQ(t.encode("<s>a"), (Ids{256, 256, 'a'}));  // the reference doubles it too
    EncodeOptions options;
    options.add_special_tokens = false;
    EXPECT_EQ(t.encode("<s>a", options), (Ids{256, 'a'}));
}

// B17: invalid UTF-8 is U+FFFD, one for each maximal invalid part, and plain ranges move with it.
TEST(Tokenizer, InvalidUtf8) {
    const Tokenizer t = load_json(byte_toy({}, {added_token("<s>")}));
    const Ids mark = {0xEF, 0xBF, 0xBD};
    const auto bytes = [](const Tokenizer& tok, std::string_view s) { return tok.encode(s); };
    EXPECT_EQ(bytes(t, "\xff\xfe"), (Ids{0xEF, 0xBF, 0xBD, 0xEF, 0xBF, 0xBD}));
    EXPECT_EQ(bytes(t, "\xF0\x9F\xA4"), mark);
    EXPECT_EQ(bytes(t, std::string_view("a\0b", 3)), (Ids{'a', 0, 'b'}));
    EncodeOptions options;
    const TextRange user[] = {{0, 4}};
    options.plain_ranges = user;
    EXPECT_EQ(t.encode("\xff<s><s>", options), (Ids{0xEF, 0xBF, 0xBD, '<', 's', '>', 256}));
}

// B18
TEST(Tokenizer, Nfc) {
    json j = byte_toy();
    j["normalizer"] = {{"type", "NFC"}};
    EXPECT_EQ(load_json(j).encode("e\u0301"), (Ids{0xC3, 0xA9}));
}

// B19: a rank file named tokenizer.model, with what its checkpoint says beside it.
TEST(Tokenizer, TiktokenRanks) {
    const TempDir dir("tiktoken");
    std::string ranks;
    const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int b = 0; b < 256; ++b)
        ranks += fmt::format("{}{}== {}\n", digits[b >> 2], digits[(b & 3) << 4], b);
    ranks += "YWI= 256\nYWJj 257\n";  // ab, abc
    dir.write("tokenizer.model", ranks);
    const Tokenizer t = Tokenizer::load(dir.path());
    EXPECT_EQ(t.encode("abc ab"), (Ids{257, ' ', 256}));
    EXPECT_EQ(t.token(257), "abc");
    EXPECT_EQ(t.id_of("Ġ"), ' ');
    dir.write(
        "tokenizer_config.json",
        R"({"added_tokens_decoder": {"258": {"content": "<s>", "special": true}}, "bos_token": "<s>", "eos_token": null,
                                            "model_max_length": 1000000000000000019884624838656})");
    const Tokenizer with_config = Tokenizer::load(dir.path());
    EXPECT_EQ(with_config.encode("ab"), (Ids{258, 256}));
    EXPECT_EQ(with_config.bos_token(), "<s>");
    EXPECT_EQ(with_config.eos_token(), std::nullopt);
    EXPECT_TRUE(with_config.is_special(258));
    EXPECT_FALSE(with_config.is_special(256));
    EXPECT_FALSE(with_config.is_special(-1) || with_config.is_special(100000));
}

TEST(Tokenizer, CheckpointFilesJoin) {
    const TempDir dir("checkpoint");
    dir.write("tokenizer.json", byte_toy({}, {added_token("<s>")}).dump());
    dir.write("added_tokens.json", R"({"<extra>": 257, "<s>": 256})");
    dir.write("special_tokens_map.json", R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>"})");
    const Tokenizer t = Tokenizer::load(dir.path());
    EXPECT_EQ(t.encode("<extra><s>"), (Ids{257, 256}));
    EXPECT_EQ(t.bos_token(), "<s>");
    EXPECT_EQ(t.eos_token(), "</s>");
    EXPECT_EQ(t.sha256().size(), 64U);
    dir.write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "a"}}})");
    EXPECT_THROW(Tokenizer::load(dir.path()), Error);
    dir.write("tokenizer_config.json", R"({"bos_token": 5})");
    EXPECT_THROW(Tokenizer::load(dir.path()), Error);
}

// A checkpoint with only a sentencepiece model: its added tokens are found, its control pieces are not, BOS
// as it says.
TEST(Tokenizer, SentencepieceCheckpoint) {
    const TempDir dir("spm");
    std::filesystem::copy(data("text/tokenizers/spm_bpe.model"), dir.path() / "tokenizer.model");
    const Tokenizer bare = Tokenizer::load(dir.path());
    EXPECT_EQ(bare.encode("<s>")[0], *bare.id_of("<s>"));
    EXPECT_GT(bare.encode("<s>").size(), 2U);
    dir.write("tokenizer_config.json",
              R"({"add_bos_token": false, "add_eos_token": true, "bos_token": "<s>", "eos_token": "</s>",
        "added_tokens_decoder": {"1": {"content": "<s>", "special": true}, "420": {"content": "<tool>", "special": false}}})");
    const Tokenizer t = Tokenizer::load(dir.path());
    const int tool = *t.id_of("<tool>");
    EXPECT_GE(tool, bare.vocab_size());
    EXPECT_EQ(t.encode("<s><tool>"), (Ids{1, tool, 2}));
    EXPECT_EQ(t.decode(Ids{1, tool}, false), "<s><tool>");
    EXPECT_EQ(t.decode(Ids{1, tool}, true), "<tool>");
}

// What the library would end the program for, or read foreign memory.
TEST(Tokenizer, DamagedSentencepieceModels) {
    const TempDir dir("spm_bad");
    const std::string good = read_file(data("text/tokenizers/spm_unigram.model"));
    const auto error = [&](const std::string& bytes) -> std::string {
        try {
            Tokenizer::load(dir.write("tokenizer.model", bytes));
        } catch (const Error& e) {
            return e.what();
        }
        return "";
    };
    EXPECT_EQ(error(good), "");
    EXPECT_NE(error(good + std::string("\x0A\x05\x15\0\0\0\0", 7)).find("empty piece"), std::string::npos);
    EXPECT_NE(error(good + std::string("\x0A\x04\x0A\x02x\0", 6)).find("zero byte"), std::string::npos);
    EXPECT_NE(error(good + std::string("\x0A\x05\x0A\x03<s\xC2", 7)).find("not UTF-8"), std::string::npos);
    EXPECT_NE(error(good + std::string("\x1A\x0A\x12\x08\0\4\0\0abcd", 12)).find("precompiled_charsmap"),
              std::string::npos);
    EXPECT_NE(error(good.substr(0, good.size() - 3)).find("neither a sentencepiece model"),
              std::string::npos);
}

TEST(Tokenizer, ManyThreadsAtOnce) {
    const Tokenizer t = load_json(byte_toy({"a b", "ab c", "Ġ t", "h e", "Ġt he"}));
    std::string text;
    for (int i = 0; i < 500; ++i) text += "abc the word " + std::to_string(i) + "\n";
    const std::vector<int> expected = t.encode(text);
    std::vector<std::jthread> threads;
    std::vector<int> wrong(8, 0);
    for (int i = 0; i < 8; ++i)
        threads.emplace_back([&, i] {
            for (int k = 0; k < 20; ++k) wrong[std::size_t(i)] += t.encode(text) != expected;
        });
    threads.clear();
    EXPECT_EQ(wrong, std::vector<int>(8, 0));
}

TEST(Tokenizer, StringsOfIds) {
    const Tokenizer t = load_json(byte_toy({"a b"}, {added_token("<｜x｜>")}));
    EXPECT_EQ(t.token(32), "Ġ");
    EXPECT_EQ(t.token(256), "ab");
    EXPECT_EQ(t.token(257), "<｜x｜>");
    EXPECT_EQ(t.token(9999), "");
    EXPECT_EQ(t.token(-1), "");
    EXPECT_EQ(t.id_of("<｜x｜>"), 257);
    EXPECT_EQ(t.id_of("Ċ"), 10);
    EXPECT_EQ(t.id_of("\n"), std::nullopt);
    EXPECT_EQ(t.vocab_size(), 258);
}

}  // namespace
}  // namespace llmgen::test
