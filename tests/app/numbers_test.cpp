#include "app/cli/numbers.h"

#include <gtest/gtest.h>

#include "app/batch/item.h"
#include "app/batch/shard.h"
#include "app/cli/io.h"
#include "app/cli/json.h"
#include "app/cli/session.h"
#include "base/utf8.h"
#include "llmgen/error.h"

namespace llmgen::app {
namespace {

std::string usage_message(const std::function<void()>& body) {
    try {
        body();
    } catch (const UsageError& error) {
        return error.what();
    } catch (const Error& error) {
        return std::string("not a usage error: ") + error.what();
    }
    return "";
}

TEST(Numbers, IntegersAreWholeAndInRange) {
    EXPECT_EQ(parse_integer("--n", "0", 0, 10), 0);
    EXPECT_EQ(parse_integer("--n", "+7", 0, 10), 7);
    EXPECT_EQ(parse_integer("--n", "-1", -1, 10), -1);
    for (const char* bad : {"", " 5", "5x", "5.0", "1e3", "0x10", "nan", "--5", "+-5", "²"})
        EXPECT_NE(usage_message([&] { parse_integer("--n", bad, 0, 10); }).find("--n: "), std::string::npos)
            << bad;
    EXPECT_EQ(usage_message([] { parse_integer("--n", "2147483648", 0, 2147483647); }),
              "--n: 2147483648 is out of range, it must be 0 to 2147483647");
    EXPECT_NE(usage_message([] { parse_integer("--n", "99999999999999999999", 0, 10); }), "");
    EXPECT_EQ(parse_unsigned("--seed", "18446744073709551615"), 18446744073709551615ull);
    EXPECT_NE(usage_message([] { parse_unsigned("--seed", "18446744073709551616"); }), "");
    EXPECT_NE(usage_message([] { parse_unsigned("--seed", "-1"); }), "");
}

TEST(Numbers, RealsAreFiniteAndInRange) {
    EXPECT_EQ(parse_real("--t", "0.5", {}), 0.5);
    EXPECT_EQ(parse_real("--t", "1e-6", {.low = 0}), 1e-6);
    for (const char* bad : {"", "nan", "inf", "-inf", "0.5x", "1e999", ",5", "one"})
        EXPECT_NE(usage_message([&] { parse_real("--t", bad, {}); }).find("--t: "), std::string::npos) << bad;
    EXPECT_NE(usage_message([] { parse_real("--p", "1.0001", {.low = 0, .high = 1}); }), "");
    EXPECT_NE(usage_message([] { parse_real("--p", "-0.1", {.low = 0, .high = 1}); }), "");
    EXPECT_EQ(usage_message([] { parse_real("--r", "0", {.low = 0, .open_low = true}); }),
              "--r: 0 is out of range, it must be greater than 0");
}

TEST(Numbers, Sizes) {
    EXPECT_EQ(parse_size("--kv-memory", "512M"), std::size_t(512) << 20);
    EXPECT_EQ(parse_size("--kv-memory", "4GiB"), std::size_t(4) << 30);
    EXPECT_EQ(parse_size("--kv-memory", "1.5g"), std::size_t(3) << 29);
    EXPECT_EQ(parse_size("--kv-memory", "64 KB"), std::size_t(64) << 10);
    EXPECT_EQ(parse_size("--kv-memory", "1000"), 1000u);
    for (const char* bad : {"", "M", "5Q", "0", "-1M", "nan", "1e30G", "5 M B"})
        EXPECT_NE(usage_message([&] { parse_size("--kv-memory", bad); }).find("--kv-memory: "),
                  std::string::npos)
            << bad;
}

TEST(Numbers, IdsInEachSpelling) {
    const std::vector<int> want = {1, 2, 30};
    for (const char* text : {"1,2,30", "1 2 30", "[1, 2, 30]", " 1,\n2 ,30\n"})
        EXPECT_EQ(parse_ids("--ids", text), want) << text;
    EXPECT_TRUE(parse_ids("--ids", " ").empty());
    for (const char* bad : {"1,,2", "1,", ",1", "-1", "1;2", "[1,2", "2147483648"})
        EXPECT_NE(usage_message([&] { parse_ids("--ids", bad); }), "") << bad;
}

TEST(Numbers, EscapesOfStop) {
    EXPECT_EQ(unescape("a\\nb\\t\\\\n"), "a\nb\t\\n");
    EXPECT_EQ(unescape("\\x41\\u00e9"), "Aé");
    EXPECT_EQ(unescape("\\d \\x4 \\"), "\\d \\x4 \\");
    EXPECT_EQ(unescape("<\\ud83d\\ude00>"), "<\xf0\x9f\x98\x80>");  // as JSON writes it
    for (const char* half : {"\\ud83d", "\\ude00", "\\ud83dx", "\\ud83d\\u0041"})
        EXPECT_FALSE(utf8::is_valid(unescape(half))) << half;
}

TEST(Numbers, EditDistanceCountsASwapOnce) {
    EXPECT_EQ(edit_distance("--prompt", "--promt"), 1u);
    EXPECT_EQ(edit_distance("seed", "sede"), 1u);
    EXPECT_EQ(edit_distance("", "abc"), 3u);
}

TEST(Io, MessagesHoldNoControlCharacters) {
    EXPECT_EQ(printable("a\x1b[31mb\nc\xff"), "a\\x1b[31mb c\uFFFD");
    EXPECT_EQ(printable("\xc2\x9b"), "\\x9b");  // the one-byte CSI of 8-bit terminals
    EXPECT_EQ(without_final_newline("a\r\n"), "a");
    EXPECT_EQ(without_final_newline("a\n\n"), "a\n");
}

TEST(StreamHold, WordsAsTransformersShowsThem) {
    StreamHold hold(StreamHold::Mode::word);
    EXPECT_EQ(hold.push("Hel"), "");
    EXPECT_EQ(hold.push("lo wor"), "Hello ");
    EXPECT_EQ(hold.push("ld\n"), "world\n");
    EXPECT_EQ(hold.push("你"), "你");
    EXPECT_EQ(hold.push("end."), "");
    EXPECT_EQ(hold.flush(), "end.");
    StreamHold off(StreamHold::Mode::off);
    EXPECT_EQ(off.push("a b\n"), "");
    EXPECT_EQ(off.flush(), "a b\n");
}

TEST(JsonObject, KeepsTheTextOfItsValues) {
    const JsonObject object(
        R"( {"a" : 1.10, "b\u0041":{"z":[1,"}, \" "],"y":2} ,"c":"x, y", "a": 12345678901234567890123 } )",
        "test");
    EXPECT_EQ(object.raw("a"), "12345678901234567890123");  // the last of two, and not rounded
    EXPECT_EQ(object.raw("bA"), R"({"z":[1,"}, \" "],"y":2})");
    EXPECT_EQ(object.string("c"), "x, y");
    EXPECT_TRUE(JsonObject("{}", "test").members().empty());
}

TEST(Json, DeepNestingAndBadTextAreErrors) {
    EXPECT_THROW(parse_json(std::string(100000, '['), "test"), Error);
    EXPECT_THROW(parse_json("{\"a\":\"\\ud800\"}", "test"), Error);  // a lone surrogate
    EXPECT_THROW(parse_json("", "test"), Error);
    EXPECT_EQ(dump(Json("\xff")), "\"\uFFFD\"");
    // Python's splitlines and others end a line at these.
    EXPECT_EQ(dump(Json("a\xC2\x85\xE2\x80\xA8\xE2\x80\xA9z")), R"("a\u0085\u2028\u2029z")");
}

TEST(Json, Base64) {
    EXPECT_EQ(decode_base64("aGk=", "test"), "hi");
    EXPECT_EQ(decode_base64("aGk", "test"), "hi");
    EXPECT_EQ(decode_base64("", "test"), "");
    EXPECT_THROW(decode_base64("a*", "test"), Error);
    EXPECT_THROW(decode_base64("aGkaa", "test"), Error);
}

TEST(Shard, FromTextAndFromEachScheduler) {
    const auto with = [](std::map<std::string, std::string> values) {
        return [values](const std::string& name) {
            const auto it = values.find(name);
            return it == values.end() ? std::nullopt : std::optional(it->second);
        };
    };
    EXPECT_EQ(parse_shard("2/3", with({})).i, 2u);
    for (const char* bad : {"3/3", "-1/3", "1", "a/b", "1/0", "auto"})
        EXPECT_NE(usage_message([&] { parse_shard(bad, with({})); }), "") << bad;
    // Inside an array the task's own rank is 0 of 1 and must not win.
    const Shard array = parse_shard("auto", with({{"SLURM_ARRAY_TASK_ID", "5"},
                                                  {"SLURM_ARRAY_TASK_MIN", "4"},
                                                  {"SLURM_ARRAY_TASK_COUNT", "3"},
                                                  {"SLURM_PROCID", "0"},
                                                  {"SLURM_NTASKS", "1"}}));
    EXPECT_EQ(array.i, 1u);
    EXPECT_EQ(array.n, 3u);
    EXPECT_EQ(parse_shard("auto", with({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}})).i, 1u);
    EXPECT_EQ(parse_shard("auto", with({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}})).n,
              4u);
    EXPECT_NE(usage_message([&] {
                  parse_shard("auto", with({{"SLURM_ARRAY_TASK_ID", "9"},
                                            {"SLURM_ARRAY_TASK_MIN", "1"},
                                            {"SLURM_ARRAY_TASK_COUNT", "5"}}));
              }),
              "");
    EXPECT_EQ(shard_path("a-{shard}.jsonl", {1, 4}), "a-1-of-4.jsonl");
    EXPECT_NE(usage_message([] { shard_path("a.jsonl", {1, 4}); }), "");
}

TEST(BatchItem, SaysWhatIsWrongAndKeepsTheId) {
    const auto error = [](const std::string& text) { return parse_item(text, 3, 2, {}).error; };
    EXPECT_EQ(error(R"({"prompt":"a"})"), "");
    EXPECT_EQ(error(R"({"prompt":"a","category":"mine","expected":5})"), "");  // a user's own columns
    EXPECT_NE(error(R"({"prompt":"a","temprature":1})").find("temperature"), std::string::npos);
    EXPECT_NE(error(R"({"prompt":"a","messages":[]})"), "");
    EXPECT_NE(error(R"({"prompt":""})").find("empty prompt"), std::string::npos);
    EXPECT_NE(error(R"({})"), "");
    EXPECT_NE(error(R"([1])"), "");
    EXPECT_NE(error(R"({"prompt":"a","max_new_tokens":"5"})").find("max_new_tokens"), std::string::npos);
    EXPECT_NE(error(R"({"prompt":"a","max_new_tokens":2147483648})").find("max_new_tokens"),
              std::string::npos);
    EXPECT_NE(error(R"({"prompt":"a","max_new_tokens":-1})").find("max_new_tokens"), std::string::npos);
    EXPECT_NE(error(R"({"prompt":"a","top_p":2})").find("top_p"), std::string::npos);
    EXPECT_NE(error(R"({"prompt":"a","stop":""})").find("stop"), std::string::npos);
    EXPECT_NE(error(R"({"token_ids":[1,-2]})"), "");
    EXPECT_NE(error(R"({"token_ids":[18446744073709551615]})"), "");
    EXPECT_NE(error(R"({"messages":[{"content":"x"}]})").find("role"), std::string::npos);
    EXPECT_EQ(parse_item(R"({"id":"x","prompt":5})", 1, 0, {}).id, "x");
    EXPECT_EQ(parse_item("{", 9, 4, {}).id, 4);
    const BatchItem openai = parse_item(
        R"({"custom_id":"c","url":"/v1/completions","body":{"prompt":"p","max_tokens":3}})", 1, 0, {});
    EXPECT_TRUE(openai.openai);
    EXPECT_EQ(openai.error, "");
    EXPECT_EQ(openai.request.max_new_tokens, 3);
}

TEST(BatchItem, OutputLinesTellWhatTheyAnswer) {
    BatchItem item = parse_item(R"({"id":"a\",\"line\":77,\"error\":{","prompt":"p"})", 5, 4, {});
    std::string line = error_line(item, "broken\nin \xff two");
    ASSERT_TRUE(line.ends_with("}\n"));
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    line.pop_back();
    EXPECT_EQ(read_done_line(line).line, 5u);
    EXPECT_TRUE(read_done_line(line).failed);
    EXPECT_EQ(id_of_line(line), item.id);
    EXPECT_EQ(read_done_line(R"({"id":"batch_req_12","custom_id":"c","response":{},"error":null})").line,
              12u);
    EXPECT_FALSE(
        read_done_line(R"({"id":"batch_req_12","custom_id":"c","response":{},"error":null})").failed);
    EXPECT_EQ(read_done_line(R"({"id":"a","line":5,"output":)").line, 0u);  // torn
}

}  // namespace
}  // namespace llmgen::app
