// llmgen batch: every line answered once, in its place, whatever happens to the process.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/mmap.h"
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

// A bad value is one line's fault: said in its place, and the others are answered.
TEST(Batch, BadValuesAreSaidInTheirLine) {
    TempDir dir;
    const std::vector<std::pair<std::string, std::string>> bad = {
        {R"("max_new_tokens":-1)", "max_new_tokens"},
        {R"("max_new_tokens":2147483648)", "max_new_tokens"},
        {R"("max_new_tokens":"5")", "max_new_tokens"},
        {R"("max_new_tokens":1.5)", "max_new_tokens"},
        {R"("temperature":-1)", "temperature"},
        {R"("temperature":"hot")", "temperature"},
        {R"("top_p":2)", "top_p"},
        {R"("min_p":-0.1)", "min_p"},
        {R"("top_k":-2)", "top_k"},
        {R"("repetition_penalty":0)", "repetition_penalty"},
        {R"("logit_bias":{"262":1})", "262"},
        {R"("logit_bias":{"-1":1})", "logit_bias"},
        {R"("stop_token_ids":[262])", "262"},
        {R"("stop":[""])", "stop"},
        {R"("token_ids":[1])", "one of"},
        {R"("max_tokens":3)", "max_new_tokens"},
        {R"("stop_sequences":["a"])", "stop"},
        {R"("n":2)", "must be 1"},
        {R"("response_format":{"type":"json_object"})", "response_format"},
        {R"("raw":true,"tools":[])", "tools"},
        {R"("raw":true,"system":"x")", "system"},
        {R"("presence_penalty":1e308)", "presence_penalty"},
        {R"("max_new_token":3)", "max_new_tokens"}};
    std::string text;
    for (const auto& [field, said] : bad)
        text += R"({"prompt":"a",)" + field + "}\n" + R"({"prompt":"a","max_new_tokens":1})" + "\n";
    const Outcome outcome = run(batch({dir.file("in.jsonl", text), "-o", dir.at("out.jsonl"), "--greedy"}));
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    const std::vector<json> out = read_lines(dir.at("out.jsonl"));
    ASSERT_EQ(out.size(), 2 * bad.size());
    for (std::size_t i = 0; i < bad.size(); ++i) {
        ASSERT_TRUE(out[2 * i].contains("error")) << bad[i].first;
        EXPECT_THAT(out[2 * i]["error"]["message"].get<std::string>(), HasSubstr(bad[i].second))
            << bad[i].first;
        EXPECT_FALSE(out[2 * i + 1].contains("error")) << out[2 * i + 1];
    }
}

TEST(Batch, WhatATemplateReadsReachesIt) {
    TempDir dir;
    const std::string jinja =
        dir.file("t.jinja", "{{ messages[0].content }}{{ more }}{{ documents|length if documents }}");
    const std::string in = dir.file(
        "in.jsonl", R"({"prompt":"a","chat_template_kwargs":{"more":"X"}})"
                    "\n"
                    R"({"prompt":"a","documents":[{"text":"1"},{"text":"2"}]})"
                    "\n"
                    R"({"messages":[{"role":"user","content":"b"}],"chat_template_kwargs":{"more":"Y"}})"
                    "\n"
                    R"({"messages":[{"role":"user","content":"b"}],"system":"lost"})"
                    "\n"
                    R"({"token_ids":[1],"chat_template_kwargs":{}})"
                    "\n"
                    R"({"token_ids":[1],"raw":true})");
    run(batch({in, "-o", dir.at("out.jsonl"), "--chat-template", jinja, "--max-new-tokens", "1"}));
    const std::vector<json> out = read_lines(dir.at("out.jsonl"));
    ASSERT_EQ(out.size(), 6u);
    EXPECT_EQ(out[0]["prompt"]["formatted"], "aX");
    EXPECT_EQ(out[1]["prompt"]["formatted"], "a2");
    EXPECT_EQ(out[2]["prompt"]["formatted"], "bY");
    for (const std::size_t i : {3u, 4u, 5u}) EXPECT_TRUE(out[i].contains("error")) << i;
}

// The OpenAI form: what was asked for is in the answer, and what can't be done is said.
TEST(Batch, TheOpenAiFormHasItsLogprobsAndSaysWhatItCannot) {
    TempDir dir;
    const auto line = [](const std::string& url, const std::string& body) {
        return R"({"custom_id":"c","method":"POST","url":"/v1/)" + url + R"(","body":{)" + body + "}}\n";
    };
    const std::string chat = R"("messages":[{"role":"user","content":"x"}],"max_tokens":3,"ignore_eos":true)";
    const std::vector<std::string> refused = {R"("n":2)",
                                              R"("response_format":{"type":"json_object"})",
                                              R"("tool_choice":"required")",
                                              R"("functions":[])",
                                              R"("top_logprobs":2)",
                                              R"("max_token":2)"};
    std::string text =
        line("chat/completions", chat + R"(,"logprobs":true,"top_logprobs":2)") +
        line("completions", R"("prompt":"ab","max_tokens":3,"logprobs":2,"ignore_eos":true)") +
        line("chat/completions", chat + R"(,"n":1,"response_format":{"type":"text"},"user":"me")");
    for (const std::string& field : refused) text += line("chat/completions", chat + "," + field);
    const Outcome outcome = run(batch({dir.file("in.jsonl", text), "-o", dir.at("out.jsonl"), "--greedy"}));
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    const std::vector<json> out = read_lines(dir.at("out.jsonl"));
    ASSERT_EQ(out.size(), 3 + refused.size());
    const json content = out[0]["response"]["body"]["choices"][0]["logprobs"]["content"];
    ASSERT_EQ(content.size(), 3u) << out[0];
    for (const json& token : content) {
        EXPECT_LE(token["logprob"].get<double>(), 0);
        ASSERT_EQ(token["top_logprobs"].size(), 2u);
        EXPECT_EQ(token["top_logprobs"][0]["token"], token["token"]);  // greedy
        EXPECT_TRUE(token["bytes"].is_null() || token["bytes"].is_array());
    }
    const json parts = out[1]["response"]["body"]["choices"][0]["logprobs"];
    EXPECT_EQ(parts["tokens"].size(), 3u);
    EXPECT_EQ(parts["token_logprobs"].size(), 3u);
    EXPECT_EQ(parts["top_logprobs"].size(), 3u);
    EXPECT_EQ(parts["text_offset"][0], 0);
    EXPECT_TRUE(out[2]["response"]["body"]["choices"][0]["logprobs"].is_null()) << out[2];
    for (std::size_t i = 3; i < out.size(); ++i) EXPECT_EQ(out[i]["response"]["status_code"], 400) << out[i];
}

TEST(Batch, AnIdThatLooksLikeTheirsIsOurs) {
    TempDir dir;
    std::string text;
    for (const int i : {9, 1, 2})
        text += R"({"id":"batch_req_)" + std::to_string(i) +
                R"(","prompt":"a","max_new_tokens":1})"
                "\n";
    const std::string in = dir.file("in.jsonl", text);
    ASSERT_EQ(run(batch({in, "-o", dir.at("out.jsonl")})).code, 0);
    const std::string whole = slurp(dir.at("out.jsonl"));
    const Outcome again = run(batch({in, "-o", dir.at("out.jsonl"), "--resume"}));
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_THAT(again.err, HasSubstr("3 were done before"));
    EXPECT_EQ(slurp(dir.at("out.jsonl")), whole);
}

TEST(Batch, DevicesAreNoFilesToKeep) {
    TempDir dir;
    const std::string in = dir.file("in.jsonl", R"({"prompt":"a","max_new_tokens":1})");
    for (int i = 0; i < 2; ++i) EXPECT_EQ(run(batch({in, "-o", "/dev/null"})).code, 0);
    EXPECT_EQ(run(batch({in, "-o", "/dev/null", "--resume"})).code, 1);
    const Outcome full = run(batch({in, "-o", "/dev/full"}));
    EXPECT_EQ(full.code, 1);
    EXPECT_THAT(full.err, HasSubstr("/dev/full"));
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

/// Peak memory of a process so far, in kB; 0 where it has ended.
long peak_kb(const Process& process) {
    std::ifstream status("/proc/" + std::to_string(process.pid()) + "/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmHWM:")) return std::stol(line.substr(6));
    return 0;
}

// 10,000 lines, each hundredth bad, killed 20 times at random; then the output is as if nothing had happened.
TEST(Batch, KilledAtAnyMomentAndResumed) {
    TempDir dir;
#ifdef __SANITIZE_ADDRESS__
    constexpr int kLines = 2000, kKills = 20;
#else
    constexpr int kLines = 10000, kKills = 20;
#endif
    std::string text;
    for (int i = 0; i < kLines; ++i)
        text += i % 100 == 7 ? "{bad\n"
                             : json{{"id", "r" + std::to_string(i)},
                                    {"token_ids", {40 + i % 50, 60 + i / 50 % 50}},
                                    {"max_new_tokens", i % 5 + 1}}
                                       .dump() +
                                   "\n";
    const std::string in = dir.file("in.jsonl", text);
    const Arguments arguments =
        batch({in, "-o", dir.at("out.jsonl"), "--resume", "--greedy", "--ignore-eos"});
    std::mt19937 random(11);
    const auto written = [&] {
        std::error_code none;
        const auto size = std::filesystem::file_size(dir.at("out.jsonl"), none);
        return none ? 0 : size;
    };
    for (int kill = 0; kill < kKills; ++kill) {
        Process process(arguments);
        // Some while it starts, the others after a random part of the work, at a random moment within a line.
        const auto until = written() + (kill % 4 == 3 ? 0 : random() % (kLines / 30) * 600);
        for (int i = 0; i < 60000 && written() < until; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::this_thread::sleep_for(std::chrono::microseconds(random() % (kill % 4 == 3 ? 60000 : 3000)));
        process.signal(SIGKILL);
        EXPECT_EQ(process.wait().code, -SIGKILL) << "it was done before kill " << kill;
    }
    EXPECT_GT(written(), 0u);
    const Outcome outcome = run(arguments, {.timeout_s = 400});
    EXPECT_EQ(outcome.code, 1) << outcome.err;  // the bad lines of earlier runs count
    std::printf("  %s", outcome.err.c_str());
    const std::string whole = slurp(dir.at("out.jsonl"));
    const std::vector<json> out = read_lines(dir.at("out.jsonl"));
    ASSERT_EQ(out.size(), std::size_t(kLines));
    for (int i = 0; i < kLines; ++i) {
        const json& line = out[std::size_t(i)];
        const bool bad = i % 100 == 7;
        ASSERT_EQ(line["line"], i + 1);
        ASSERT_EQ(line["id"], bad ? json(i) : json("r" + std::to_string(i)));
        ASSERT_EQ(line.contains("error"), bad);
        if (bad) continue;
        ASSERT_EQ(line["output"]["token_ids"].size(), std::size_t(i % 5 + 1));
    }
    EXPECT_EQ(run(arguments).code, 1);  // nothing is left to do, and nothing changes
    EXPECT_EQ(slurp(dir.at("out.jsonl")), whole);
}

// What is held is what is under way, not what was read or written.
TEST(Batch, PeakMemoryStaysFlat) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "skipped: the sanitizer holds freed memory back";
#endif
    TempDir dir;
    std::string text;
    for (int i = 0; i < 6000; ++i)
        text += json{{"token_ids", {40 + i % 50, 60 + i / 50}},
                     {"max_new_tokens", 2},
                     {"note", std::string(400, 'n')}}
                    .dump() +
                "\n";
    const std::string in = dir.file("in.jsonl", text);
    Process process(batch({in, "-o", dir.at("out.jsonl"), "--ignore-eos", "--kv-memory", "16MiB"}));
    std::vector<long> peaks;  // by tenths of the input
    for (int i = 0; i < 6000 && peaks.size() < 10; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        std::ifstream file(dir.at("out.jsonl"));
        const long lines = std::count(std::istreambuf_iterator<char>(file), {}, '\n');
        const long peak = peak_kb(process);
        if (peak == 0) break;
        if (lines >= long(peaks.size() + 1) * 550) peaks.push_back(peak);
    }
    EXPECT_EQ(process.wait().code, 0);
    ASSERT_GE(peaks.size(), 5u);
    for (const long peak : peaks) std::printf("  VmHWM %ld kB\n", peak);
    EXPECT_LE(peaks.back(), peaks[1] + 2048) << "from a fifth of the input to its end";
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

// Packed by `tool`, with a second part behind the first, as `cat a.gz b.gz` makes it.
void check_packed(const std::string& tool, const std::string& extension) {
    TempDir dir;
    const std::string lines =
        "{\"prompt\":\"a\",\"max_new_tokens\":1}\n{\"prompt\":\"b\",\"max_new_tokens\":1}\n";
    dir.file("in.jsonl", lines);
    const std::string in = dir.at("in.jsonl"), packed = in + extension;
    if (std::system((tool + " -c <" + in + " >" + packed + " 2>/dev/null").c_str()) != 0)
        GTEST_SKIP() << "needs " << tool;
    ASSERT_EQ(std::system((tool + " -c <" + in + " >>" + packed).c_str()), 0);
    const Outcome outcome = run(batch({packed, "-q"}));
    if (outcome.err.find("built without") != std::string::npos) GTEST_SKIP() << outcome.err;
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 4);

    const std::string all = read_file(packed);
    dir.file("short.jsonl" + extension, all.substr(0, all.size() - 6));
    const Outcome cut = run(batch({dir.at("short.jsonl" + extension), "-q"}));
    EXPECT_EQ(cut.code, 1);
    EXPECT_THAT(cut.err, HasSubstr("cut short"));
    dir.file("bad.jsonl" + extension, all.substr(0, 12) + "rubbish" + all.substr(12));
    const Outcome damaged = run(batch({dir.at("bad.jsonl" + extension), "-q"}));
    EXPECT_EQ(damaged.code, 1);
    EXPECT_THAT(damaged.err, HasSubstr("damaged"));
}

TEST(Batch, GzipInput) { check_packed("gzip", ".gz"); }
TEST(Batch, ZstdInput) { check_packed("zstd", ".zst"); }

}  // namespace
}  // namespace llmgen::test
