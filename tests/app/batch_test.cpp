// llmgen batch: every line answered once, in its place, whatever happens to the process.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/app/checkpoint.h"
#include "tests/app/process.h"
#include "tests/support.h"

namespace llmgen::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

using Arguments = std::vector<std::string>;

Arguments batch(Arguments arguments) {
    arguments.insert(arguments.begin(), "batch");
    for (const char* word : {"--model", tiny_checkpoint().c_str(), "--device", "cpu", "--compute", "f32",
                             "--threads", "1", "--max-context", "512"})
        arguments.emplace_back(word);
    return arguments;
}

std::vector<json> read_lines(const std::string& path) {
    std::ifstream file(path);
    std::vector<json> out;
    for (std::string line; std::getline(file, line);) out.push_back(json::parse(line));
    return out;
}

TEST(Batch, EveryLineIsAnsweredInItsPlace) {
    TempDir dir;
    const std::string in =
        dir.file("in.jsonl",
                 "\xEF\xBB\xBF{\"prompt\":\"a\",\"max_new_tokens\":2}\r\n"
                 "\n"
                 "{\"id\":\"x\",\"prompt\":\"b\",\"max_new_tokens\":3,\"seed\":5,\"temperature\":1}\n"
                 "{bad\n"
                 "{\"id\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"\xC3\xA9\xFF\"}],\"max_new_"
                 "tokens\":0}\n"
                 "{\"id\":7,\"prompt\":\"\"}\n"
                 "{\"id\":\"long\",\"raw\":true,\"prompt\":\"" +
                     std::string(600, 'x') +
                     "\"}\n"
                     "{\"custom_id\":\"c\",\"method\":\"POST\",\"url\":\"/v1/chat/"
                     "completions\",\"body\":{\"model\":\"m\",\"messages\":"
                     "[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":4}}\n"
                     "{\"id\":\"huge\",\"token_ids\":[1,99999]}\n"
                     "{\"id\":\"last\",\"token_ids\":[104,105],\"max_new_tokens\":1,\"ignore_eos\":true}");
    const Outcome outcome = run(batch({in, "-o", dir.at("out.jsonl"), "--greedy"}));
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("failed"));
    const std::vector<json> out = read_lines(dir.at("out.jsonl"));
    ASSERT_EQ(out.size(), 9u);
    const std::vector<json> ids = {0, "x", 2, "x", 7, "long", "batch_req_8", "huge", "last"};
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i]["id"], ids[i]) << i;
    for (const std::size_t bad : {2u, 4u, 5u, 7u}) EXPECT_TRUE(out[bad].contains("error")) << bad;
    EXPECT_THAT(out[4]["error"]["message"].get<std::string>(), HasSubstr("empty prompt"));
    EXPECT_EQ(out[3]["output"]["text"], "");
    EXPECT_EQ(out[6]["custom_id"], "c");
    EXPECT_EQ(out[6]["response"]["status_code"], 200);
    EXPECT_LE(out[6]["response"]["body"]["usage"]["completion_tokens"].get<int>(), 4);
    EXPECT_EQ(out[8]["output"]["token_ids"].size(), 1u);
    EXPECT_EQ(out[8]["line"], 10);
}

TEST(Batch, TheSameIdsAsAlone) {
    TempDir dir;
    std::string text;
    for (int i = 0; i < 24; ++i)
        text += json{{"id", i},
                     {"prompt", std::string(std::size_t(i % 5) * 7 + 1, char('a' + i))},
                     {"max_new_tokens", 5 + i},
                     {"seed", i},
                     {"temperature", i % 3 * 0.7}}
                    .dump() +
                "\n";
    const std::string in = dir.file("in.jsonl", text);
    ASSERT_EQ(run(batch({in, "-o", dir.at("many.jsonl")})).code, 0);
    ASSERT_EQ(run(batch({in, "-o", dir.at("one.jsonl"), "--concurrency", "1", "--no-prefix-cache"})).code, 0);
    ASSERT_EQ(run(batch({in, "-o", dir.at("free.jsonl"), "--unordered", "--prefill-chunk", "3"})).code, 0);
    const auto many = read_lines(dir.at("many.jsonl")), one = read_lines(dir.at("one.jsonl"));
    auto free = read_lines(dir.at("free.jsonl"));
    std::sort(free.begin(), free.end(), [](const json& a, const json& b) { return a["line"] < b["line"]; });
    ASSERT_EQ(many.size(), 24u);
    ASSERT_EQ(free.size(), 24u);
    for (std::size_t i = 0; i < many.size(); ++i) {
        EXPECT_EQ(many[i]["output"]["token_ids"], one[i]["output"]["token_ids"]) << i;
        EXPECT_EQ(many[i]["output"]["token_ids"], free[i]["output"]["token_ids"]) << i;
    }
}

TEST(Batch, KilledAtAnyMomentAndResumed) {
    TempDir dir;
    constexpr int kLines = 1500;
    std::string text;
    int bad = 0;
    for (int i = 0; i < kLines; ++i) {
        const bool is_bad = i % 100 == 7;
        bad += is_bad;
        text += is_bad ? "{bad\n"
                       : json{{"id", "r" + std::to_string(i)},
                              {"prompt", std::to_string(i)},
                              {"max_new_tokens", i % 9 + 1}}
                                 .dump() +
                             "\n";
    }
    const std::string in = dir.file("in.jsonl", text);
    const Arguments arguments = batch({in, "-o", dir.at("out.jsonl"), "--resume", "--concurrency", "8"});
    std::mt19937 random(11);
    for (int kill = 0; kill < 12; ++kill) {
        Process process(arguments);
        std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 150));
        process.signal(kill % 4 == 3 ? SIGINT : SIGKILL);
        process.wait();
    }
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 1) << outcome.err;  // the bad lines of earlier runs count
    const std::vector<json> out = read_lines(dir.at("out.jsonl"));
    ASSERT_EQ(out.size(), std::size_t(kLines));
    int errors = 0;
    for (int i = 0; i < kLines; ++i) {
        ASSERT_EQ(out[std::size_t(i)]["line"], i + 1);
        errors += out[std::size_t(i)].contains("error");
    }
    EXPECT_EQ(errors, bad);
}

TEST(Batch, ATornLineIsDoneAgain) {
    TempDir dir;
    const std::string in =
        dir.file("in.jsonl", "{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n{\"prompt\":\"c\"}\n");
    const Arguments base = batch({in, "--greedy", "--max-new-tokens", "3", "-o", dir.at("out.jsonl")});
    ASSERT_EQ(run(base).code, 0);
    const std::string whole = slurp(dir.at("out.jsonl"));
    EXPECT_EQ(run(base).code, 1);  // it exists
    Arguments resume = base;
    resume.emplace_back("--resume");
    for (const std::size_t cut : {std::size_t(0), std::size_t(1), whole.find('\n'), whole.find('\n') + 1,
                                  whole.size() / 2, whole.size() - 1, whole.size()}) {
        std::ofstream(dir.at("out.jsonl"), std::ios::binary) << whole.substr(0, cut);
        EXPECT_EQ(run(resume).code, 0) << cut;
        const auto out = read_lines(dir.at("out.jsonl"));
        ASSERT_EQ(out.size(), 3u) << cut;
        for (int i = 0; i < 3; ++i) EXPECT_EQ(out[std::size_t(i)]["line"], i + 1);
    }
}

TEST(Batch, AnOutputOfSomethingElseIsLeftAlone) {
    TempDir dir;
    const std::string in = dir.file("in.jsonl", "{\"id\":\"a\",\"prompt\":\"a\"}\n");
    const std::string other = dir.file("other.jsonl", "{\"id\":\"z\",\"line\":1,\"output\":{}}\n");
    const std::string text = dir.file("text.txt", "my notes\nmore\n");
    const std::string longer =
        dir.file("longer.jsonl", "{\"id\":\"a\",\"line\":1}\n{\"id\":\"b\",\"line\":2}\n");
    for (const std::string& path : {other, text, longer}) {
        const std::string before = slurp(path);
        EXPECT_EQ(run(batch({in, "-o", path, "--resume"})).code, 1) << path;
        EXPECT_EQ(slurp(path), before);
    }
    EXPECT_EQ(run(batch({in, "-o", in, "--overwrite"})).code, 2);
    EXPECT_NE(slurp(in), "");
}

TEST(Batch, ShardsCoverEveryLineOnce) {
    TempDir dir;
    std::string text;
    for (int i = 0; i < 10; ++i)
        text += "{\"prompt\":\"" + std::to_string(i) + "\",\"max_new_tokens\":1}\n\n";
    const std::string in = dir.file("in.jsonl", text);
    std::vector<int> ids;
    for (const char* rank : {"0", "1", "2"}) {
        const Outcome outcome = run(batch({in, "-o", dir.at("o-{shard}.jsonl"), "--shard", "auto"}),
                                    {.environment = {{"SLURM_PROCID", rank}, {"SLURM_NTASKS", "3"}}});
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        for (const json& line : read_lines(dir.at(std::string("o-") + rank + "-of-3.jsonl")))
            ids.push_back(line["id"]);
    }
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(ids, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(Batch, AnswersAPipeThatStaysOpen) {
    Process process(batch({"-", "--concurrency", "2"}),
                    {.input = "{\"prompt\":\"a\",\"max_new_tokens\":1}\n", .keep_stdin_open = true});
    EXPECT_TRUE(process.wait_for("\n"));
    EXPECT_THAT(process.so_far().out, HasSubstr("\"id\":0"));
    process.signal(SIGINT);
    EXPECT_EQ(process.wait().code, 130);
}

TEST(Batch, GzipInput) {
    TempDir dir;
    dir.file("in.jsonl",
             "{\"prompt\":\"a\",\"max_new_tokens\":1}\n{\"prompt\":\"b\",\"max_new_tokens\":1}\n");
    if (std::system(("gzip " + dir.at("in.jsonl")).c_str()) != 0) GTEST_SKIP() << "needs gzip";
    const Outcome outcome = run(batch({dir.at("in.jsonl.gz"), "-q"}));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 2);
}

}  // namespace
}  // namespace llmgen::test
