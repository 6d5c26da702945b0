// The one-shot command and the text tools, by exit code and bytes of the real program.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "app/cli/io.h"
#include "base/mmap.h"
#include "tests/app/checkpoint.h"
#include "tests/app/process.h"
#include "tests/support.h"

namespace llmgen::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

using Arguments = std::vector<std::string>;

// The arguments with the tiny model and settings that answer the same each time.
Arguments tiny(Arguments arguments) {
    for (const char* word :
         {"--model", tiny_checkpoint().c_str(), "--device", "cpu", "--compute", "f32", "--threads", "1"})
        arguments.emplace_back(word);
    return arguments;
}
Arguments ask(Arguments more, const std::string& n = "12") {
    Arguments arguments = {"--prompt", "Hello", "--greedy", "--ignore-eos", "--max-new-tokens", n};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return tiny(arguments);
}
const RunWith kNoInput{.null_stdin = true};

struct CodeCase {
    const char* name;
    Arguments arguments;
    int code;
    const char* says;  // on stderr, or on stdout where the code is 0
};

class ExitCode : public testing::TestWithParam<CodeCase> {};

TEST_P(ExitCode, AndWhatItSays) {
    const Outcome outcome = run(GetParam().arguments, kNoInput);
    EXPECT_EQ(outcome.code, GetParam().code) << outcome.err;
    EXPECT_THAT(GetParam().code == 0 ? outcome.out : outcome.err, HasSubstr(GetParam().says));
    EXPECT_THAT(outcome.err, Not(HasSubstr("\x1b")));
    if (GetParam().code != 0) {
        EXPECT_EQ(outcome.out, "");
    }
}

INSTANTIATE_TEST_SUITE_P(
    Table,
    ExitCode,
    testing::Values(
        CodeCase{"help", {"--help"}, 0, "Example"},
        CodeCase{"version", {"--version"}, 0, "llmgen 0."},
        CodeCase{"unknown_flag", {"--promt", "x"}, 2, "--prompt"},
        CodeCase{"unknown_flag_value", {"--temperatur=1"}, 2, "--temperature"},
        CodeCase{"unknown_command", {"tokenise"}, 2, "tokenize"},
        CodeCase{"bare_word", {"hello"}, 2, "--prompt"},
        CodeCase{"no_value", {"--prompt"}, 2, "--prompt needs a value"},
        CodeCase{"empty_prompt", {"--prompt", ""}, 2, "empty"},
        CodeCase{"empty_prompt_equals", {"--prompt="}, 2, "empty"},
        CodeCase{"nothing_on_stdin", {}, 2, "empty"},
        CodeCase{"temperature_nan", {"--prompt", "x", "--temperature", "nan"}, 2, "--temperature"},
        CodeCase{"temperature_negative", {"--prompt", "x", "--temperature", "-1"}, 2, "--temperature"},
        CodeCase{"top_p", {"--prompt", "x", "--top-p", "2.0"}, 2, "--top-p"},
        CodeCase{"top_k", {"--prompt", "x", "--top-k", "-2"}, 2, "--top-k"},
        CodeCase{"min_p", {"--prompt", "x", "--min-p", "-0.5"}, 2, "--min-p"},
        CodeCase{
            "repetition_penalty", {"--prompt", "x", "--repetition-penalty", "0"}, 2, "--repetition-penalty"},
        CodeCase{"max_negative", {"--prompt", "x", "--max-new-tokens", "-1"}, 2, "--max-new-tokens"},
        CodeCase{"max_too_large", {"--prompt", "x", "--max-new-tokens", "2147483648"}, 2, "--max-new-tokens"},
        CodeCase{"max_text", {"--prompt", "x", "--max-new-tokens", "5x"}, 2, "--max-new-tokens"},
        CodeCase{"seed", {"--prompt", "x", "--seed", "-3"}, 2, "--seed"},
        CodeCase{"device", {"--prompt", "x", "--device", "tpu"}, 2, "--device"},
        CodeCase{"compute", {"--prompt", "x", "--compute", "f8"}, 2, "--compute"},
        CodeCase{"kv_memory", {"--prompt", "x", "--kv-memory", "4Q"}, 2, "--kv-memory"},
        CodeCase{"stop_empty", {"--prompt", "x", "--stop", ""}, 2, "--stop"},
        CodeCase{
            "greedy_and_temperature", {"--prompt", "x", "--greedy", "--temperature", "1"}, 2, "--greedy"},
        CodeCase{"two_prompts", {"--prompt", "x", "--prompt-ids", "1"}, 2, "--prompt-ids"},
        CodeCase{"system_raw", {"--prompt", "x", "--raw", "--system", "y"}, 2, "--system"},
        CodeCase{"prompt_ids", {"--prompt-ids", "1,x"}, 2, "--prompt-ids"},
        CodeCase{"misplaced", {"--model", "x", "tokenize", "hi"}, 2, "after"},
        CodeCase{"extra_argument", {"tokenize", "a", "b"}, 2, "unexpected"},
        CodeCase{"flag_after_dashes", {"--", "--prompt"}, 2, "see llmgen --help"},
        CodeCase{"help_as_a_word", {"help"}, 2, "see llmgen --help"},
        CodeCase{"empty_model", {"--prompt", "x", "--model", ""}, 2, "--model: the name is empty"},
        CodeCase{"empty_trace", {"--prompt", "x", "--trace="}, 2, "--trace: the name is empty"},
        CodeCase{
            "repetition_far", {"--prompt", "x", "--repetition-penalty", "1e-300"}, 2, "--repetition-penalty"},
        CodeCase{"presence_far", {"--prompt", "x", "--presence-penalty", "-1e308"}, 2, "--presence-penalty"},
        CodeCase{"bias_far", {"--prompt", "x", "--logit-bias", "5:1e308"}, 2, "--logit-bias"},
        CodeCase{"chunk", {"--prompt", "x", "--prefill-chunk", "65537"}, 2, "it must be 1 to 65536"},
        CodeCase{"stop_bytes", {"--prompt", "x", "--stop", "\\xff"}, 2, "UTF-8"},
        CodeCase{"logprobs_nowhere", {"--prompt", "x", "--logprobs", "2"}, 2, "--json or --trace"},
        CodeCase{"hash_nowhere", {"--prompt", "x", "--trace-full-hash"}, 2, "--json or --trace"},
        CodeCase{"logprobs_chat", {"chat", "--logprobs", "2"}, 2, "--logprobs"},
        CodeCase{"template_raw", {"--prompt", "x", "--raw", "--chat-template", "y"}, 2, "--chat-template"},
        CodeCase{"set_messages", {"--prompt", "x", "--set", "messages=[]"}, 2, "--set messages"},
        CodeCase{"set_no_name", {"--prompt", "x", "--set", "a-b=1"}, 2, "a-b"},
        CodeCase{"no_model", {"--prompt", "x", "--model", "/nonexistent/model"}, 1, "/nonexistent/model"},
        CodeCase{"no_messages", {"--messages", "/nonexistent.json"}, 1, "/nonexistent.json"},
        CodeCase{"trace_folder", {"--prompt", "x", "--trace", "/nonexistent/t.json"}, 1, "--trace"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Weights, ReadInsteadOfMappedGiveTheSameAnswer) {
    const Outcome mapped = run(ask({}), kNoInput), read = run(ask({"--no-mmap"}), kNoInput);
    EXPECT_EQ(read.code, 0) << read.err;
    EXPECT_EQ(read.out, mapped.out);
}

TEST(Weights, AFileCutShortUnderTheProgramEndsItInALine) {
    TempDir dir;
    const std::string path = dir.file("model.safetensors", std::string(1 << 16, 'x'));
    EXPECT_EXIT(
        {
            app::end_in_a_line_without_the_file();
            const MappedFile file(path);
            (void)!::truncate(path.c_str(), 0);
            volatile std::byte first = file.bytes()[0];
            (void)first;
        },
        testing::ExitedWithCode(1), "llmgen: error: a file of the checkpoint got shorter.*--no-mmap");
}

TEST(Cli, StdoutIsTheAnswerAndANewline) {
    const Outcome text = run(ask({}), kNoInput);
    ASSERT_EQ(text.code, 0) << text.err;
    const Outcome record = run(ask({"--json"}), kNoInput);
    ASSERT_EQ(record.code, 0) << record.err;
    const json parsed = json::parse(record.out);
    EXPECT_EQ(text.out, parsed["output"]["text"].get<std::string>() + "\n");
    EXPECT_EQ(parsed["output"]["token_ids"].size(), 12u);
    EXPECT_EQ(parsed["finish_reason"], "max_new_tokens");
    EXPECT_FALSE(parsed["complete"].get<bool>());
    EXPECT_THAT(text.err, HasSubstr("may be incomplete"));
    EXPECT_EQ(std::count(text.err.begin(), text.err.end(), '\n'), 1) << text.err;
    EXPECT_THAT(text.err, Not(HasSubstr("\x1b")));
    EXPECT_EQ(run(ask({"-q"}), kNoInput).err, "");
}

TEST(Cli, EveryStreamModeGivesTheSameBytes) {
    const Outcome token = run(ask({"--stream", "token"}, "200"), kNoInput);
    for (const char* mode : {"word", "off"})
        EXPECT_EQ(run(ask({"--stream", mode}, "200"), kNoInput).out, token.out) << mode;
}

TEST(Cli, MaxNewTokensZeroComputesThePromptOnly) {
    const json record = json::parse(run(ask({"--json"}, "0"), kNoInput).out);
    EXPECT_EQ(record["output"]["text"], "");
    EXPECT_EQ(record["finish_reason"], "max_new_tokens");
    EXPECT_EQ(run(ask({}, "0"), kNoInput).out, "\n");
}

std::string formatted(const Arguments& arguments, const RunWith& setup) {
    Arguments all = tiny(arguments);
    for (const char* word : {"--json", "--max-new-tokens", "1"}) all.emplace_back(word);
    const Outcome outcome = run(all, setup);
    if (outcome.code != 0) return "exit " + std::to_string(outcome.code) + ": " + outcome.err;
    return json::parse(outcome.out)["prompt"]["formatted"];
}

TEST(Cli, PromptAndPipedInputAreJoined) {
    EXPECT_EQ(formatted({"--prompt", "Sum:"}, {.input = "a\nb\n"}),
              "<|user|>Sum:\n\na\nb<|end|><|assistant|>");
    EXPECT_EQ(formatted({"--prompt", "Sum:"}, kNoInput), "<|user|>Sum:<|end|><|assistant|>");
    EXPECT_EQ(formatted({}, {.input = "hi\r\n"}), "<|user|>hi<|end|><|assistant|>");
    EXPECT_EQ(formatted({"--prompt", "-"}, {.input = "hi\n"}), "<|user|>hi<|end|><|assistant|>");
    EXPECT_EQ(formatted({"--prompt", "hi", "--system", "be brief"}, kNoInput),
              "<|system|>be brief<|end|><|user|>hi<|end|><|assistant|>");
    EXPECT_EQ(formatted({"--raw", "--prompt", "hi"}, kNoInput), "hi");
    EXPECT_EQ(formatted({"--messages", "-"}, {.input = R"([{"role":"user","content":"x"}])"}),
              "<|user|>x<|end|><|assistant|>");
    TempDir dir;
    const std::string file = dir.file("m.json", R"({"messages":[{"role":"user","content":"y"}]})");
    EXPECT_EQ(formatted({"--messages", file}, kNoInput), "<|user|>y<|end|><|assistant|>");
}

TEST(Cli, AnOpenSilentPipeIsSaid) {
    Process process(ask({}), {.keep_stdin_open = true});
    EXPECT_TRUE(process.wait_for("waiting for standard input"));
    process.close_stdin();
    EXPECT_EQ(process.wait().code, 0);
}

TEST(Cli, InvalidUtf8BecomesReplacementCharacters) {
    EXPECT_EQ(formatted({"--prompt", "a\xff\xfe"}, kNoInput), "<|user|>a\uFFFD\uFFFD<|end|><|assistant|>");
    EXPECT_EQ(formatted({}, {.input = "\xc4\xe3"}), "<|user|>\uFFFD\uFFFD<|end|><|assistant|>");
    const Outcome outcome = run(ask({"--json"}, "300"), kNoInput);  // the tiny model writes broken UTF-8
    EXPECT_EQ(outcome.code, 0);
    EXPECT_TRUE(json::accept(outcome.out));
}

TEST(Cli, SpecialTokensInAUsersWordsStayText) {
    const auto ids = [](const Arguments& more) {
        Arguments arguments = tiny({"--prompt", "a<|end|>b", "--max-new-tokens", "1", "--json"});
        arguments.insert(arguments.end(), more.begin(), more.end());
        return json::parse(run(arguments, kNoInput).out)["prompt"]["token_ids"].get<std::vector<int>>();
    };
    const auto count = [](const std::vector<int>& ids) { return std::count(ids.begin(), ids.end(), 257); };
    EXPECT_EQ(count(ids({})), 1);
    EXPECT_EQ(count(ids({"--allow-special"})), 2);
    EXPECT_EQ(count(ids({"--raw"})), 1);
}

TEST(Cli, StopTextWithEscapes) {
    const std::string text = run(ask({"--raw"}, "64"), kNoInput).out;
    ASSERT_GT(text.size(), 4u);
    const json whole = json::parse(run(ask({"--raw", "--json"}, "64"), kNoInput).out);
    const std::string answer = whole["output"]["text"];
    std::string stop;  // the last character, escaped by hand
    std::size_t at = answer.size() - 1;
    while ((static_cast<unsigned char>(answer[at]) & 0xC0) == 0x80) --at;
    for (const char c : answer.substr(at)) {
        char hex[8];
        std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned char>(c));
        stop += hex;
    }
    const json record = json::parse(run(ask({"--raw", "--json", "--stop", stop}, "64"), kNoInput).out);
    EXPECT_EQ(record["finish_reason"], "stop_string");
    EXPECT_TRUE(record["complete"].get<bool>());
    EXPECT_EQ(record["output"]["text"], answer.substr(0, answer.find(answer.substr(at))));
}

TEST(Cli, InterruptEndsWith130AndTheTextSoFar) {
    Process process(tiny({"--prompt", "Hello", "--ignore-eos", "--greedy", "--raw"}), kNoInput);
    ASSERT_TRUE(process.wait_for_bytes(20));
    process.signal(SIGINT);
    const Outcome outcome = process.wait();
    EXPECT_EQ(outcome.code, 130);
    EXPECT_GT(outcome.out.size(), 10u);
    EXPECT_EQ(outcome.out.back(), '\n');
    EXPECT_THAT(outcome.err, HasSubstr("interrupted"));
}

TEST(Cli, AFailedWriteIsAFailure) {
    const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
    ASSERT_GE(full, 0);
    const Outcome outcome = run(ask({}), {.null_stdin = true, .stdout_fd = full});
    ::close(full);
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.err, HasSubstr("standard output"));
    int closed[2];
    ASSERT_EQ(::pipe2(closed, O_CLOEXEC), 0);
    ::close(closed[0]);
    EXPECT_EQ(run(ask({}), {.null_stdin = true, .stdout_fd = closed[1]}).code, 1);
    ::close(closed[1]);
}

// What there was nothing to measure of isn't there, rather than 0.
TEST(Cli, NoFigureThatWasNotMeasured) {
    const auto timing = [](const char* n) {
        return json::parse(run(ask({"--json"}, n), kNoInput).out)["timing"];
    };
    EXPECT_TRUE(timing("0")["ttft_s"].is_null());
    EXPECT_GT(timing("1")["ttft_s"].get<double>(), 0);
    EXPECT_TRUE(timing("1")["tpot_s"].is_null());
    EXPECT_TRUE(timing("1")["tokens_per_s"].is_null());
    EXPECT_GT(timing("2")["tpot_s"].get<double>(), 0);
    const std::string none = run(ask({"--stats", "--explain"}, "0"), kNoInput).err;
    EXPECT_THAT(none, Not(HasSubstr("first token")));
    EXPECT_THAT(none, Not(HasSubstr("tok/s")));
    const std::string one = run(ask({"--stats", "--explain"}, "1"), kNoInput).err;
    EXPECT_THAT(one, HasSubstr("answer       1 token\n"));
    EXPECT_THAT(one, HasSubstr("first token after"));
    EXPECT_THAT(one, Not(HasSubstr("TPOT")));
    EXPECT_THAT(one, Not(HasSubstr("Pace after it")));
    EXPECT_THAT(one, HasSubstr("1 token was asked for"));
}

TEST(Cli, StatsNameWhatDecided) {
    const std::string plain =
        run(tiny({"--prompt", "x", "--max-new-tokens", "1", "--stats", "--greedy"}), kNoInput).err;
    EXPECT_THAT(plain, HasSubstr("stops on     <|end|> (id 257)\n"));
    EXPECT_THAT(plain, HasSubstr("sampling     greedy (temperature 0)\n"));
    const std::string asked = run(ask({"--stats", "--stop-token-id", "97", "--stop", "ab",
                                       "--repetition-penalty", "1.5", "--logit-bias", "5:1", "--top-k", "5"},
                                      "1"),
                                  kNoInput)
                                  .err;
    EXPECT_THAT(asked, HasSubstr("stops on     \"a\" (id 97), \"ab\"\n"));  // --ignore-eos: not on 257
    EXPECT_THAT(asked, HasSubstr("greedy (temperature 0), repetition-penalty 1.5, logit-bias of 1 token\n"));
}

TEST(Cli, AnOlderTraceIsKeptUntilThereIsANewOne) {
    TempDir dir;
    const std::string path = dir.file("t.json", "an older and much longer record" + std::string(9999, '.'));
    EXPECT_EQ(run({"--prompt", "x", "--model", "/nonexistent/model", "--trace", path}, kNoInput).code, 1);
    EXPECT_THAT(slurp(path), testing::StartsWith("an older"));
    ASSERT_EQ(run(ask({"--trace", path}), kNoInput).code, 0);
    EXPECT_TRUE(json::accept(slurp(path)));
}

TEST(Cli, LimitsOfTheShellAreSaid) {
    const auto with_limit = [](const std::string& limit, const Arguments& arguments) {
        std::string command = "ulimit " + limit + "; exec " LLMGEN_BINARY;
        for (const std::string& word : arguments) command += " '" + word + "'";
        // 3: ctest may leave one open, which the least of the limits needs.
        FILE* pipe = ::popen(("exec 2>&1 </dev/null 3>&-; " + command).c_str(), "r");
        std::string text;
        for (int c; (c = std::fgetc(pipe)) != EOF;) text += char(c);
        const int status = ::pclose(pipe);
        return text + "exit " + std::to_string(WEXITSTATUS(status));
    };
    TempDir dir;
    const std::string large = with_limit("-f 0", ask({"-q", "--trace", dir.at("t.json")}));
    EXPECT_THAT(large, HasSubstr("File too large"));
    EXPECT_THAT(large, HasSubstr("exit 1"));
#if !defined(__SANITIZE_ADDRESS__)  // a sanitizer needs descriptors of its own
    EXPECT_THAT(with_limit("-n 4", ask({"-q"})), HasSubstr("out of descriptors"));
#endif
}

TEST(Cli, TraceHoldsTheRecord) {
    TempDir dir;
    ASSERT_EQ(run(ask({"--trace", dir.at("t.json"), "--explain"}), kNoInput).code, 0);
    const json record = json::parse(slurp(dir.at("t.json")));
    EXPECT_EQ(record["output"]["token_ids"].size(), 12u);
    EXPECT_EQ(record["steps"].size(), 12u);
    for (const char* key :
         {"id", "model", "tokenizer_sha256", "prompt", "sampling", "limit", "output", "cache", "timing",
          "device", "compute", "finish_reason", "finish_detail", "complete"})
        EXPECT_TRUE(record.contains(key)) << key;
}

TEST(Cli, StatsAndExplainGoToStderr) {
    const Outcome outcome = run(ask({"--stats", "--explain"}), kNoInput);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_EQ(outcome.out, run(ask({}), kNoInput).out);
    for (const char* word : {"prompt", "tok/s", "load", "first token", "greedy", "step 0 (prefill)",
                             "step 11", "chose", "Why it ended: max_new_tokens"})
        EXPECT_THAT(outcome.err, HasSubstr(word));
    EXPECT_THAT(outcome.err, Not(HasSubstr("\x1b")));
}

TEST(Cli, ProgressOnATerminalOnly) {
    const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    Terminal terminal(ask({}), {.stdout_fd = null});
    EXPECT_EQ(terminal.wait(), 0);
    ::close(null);
    EXPECT_THAT(terminal.screen(), HasSubstr("loading"));
    EXPECT_THAT(terminal.screen(), HasSubstr("reading the prompt"));
}

TEST(Cli, WithoutATemplateOnlyRawWorks) {
    TempDir dir;
    write_tiny_checkpoint(dir.path(), {.with_template = false});
    const Arguments base = {"--model", dir.path().string(), "--prompt", "x", "--max-new-tokens",
                            "2",       "--device",          "cpu"};
    const Outcome chat = run(base, kNoInput);
    EXPECT_EQ(chat.code, 1);
    EXPECT_THAT(chat.err, HasSubstr("--chat-template"));
    Arguments raw = base;
    raw.emplace_back("--raw");
    EXPECT_EQ(run(raw, kNoInput).code, 0);
    Arguments given = base;
    given.emplace_back("--chat-template");
    given.push_back(dir.file("t.jinja", kTemplate));
    EXPECT_EQ(run(given, kNoInput).code, 0);
}

TEST(Cli, TooLongAPromptIsRefusedWithTheNumbers) {
    Arguments arguments = tiny({"--raw", "--prompt", std::string(40, 'x'), "--max-context", "32"});
    const Outcome outcome = run(arguments, kNoInput);
    EXPECT_NE(outcome.code, 0);
    EXPECT_THAT(outcome.err, HasSubstr("40"));
    EXPECT_THAT(outcome.err, HasSubstr("32"));
}

TEST(TextTools, TokenizeAndBack) {
    const std::string& dir = tiny_checkpoint();
    EXPECT_EQ(run({"tokenize", "--model", dir, "hi<|end|>"}, kNoInput).out, "104,105,257\n");
    EXPECT_EQ(run({"tokenize", "--model", dir, "--plain", "<"}, kNoInput).out, "60\n");
    EXPECT_EQ(run({"tokenize", "--model", dir, "--plain", "<|end|>"}, kNoInput).out,
              "60,124,101,110,100,124,62\n");
    EXPECT_EQ(run({"tokenize", "--tokenizer", dir + "/tokenizer.json"}, {.input = "a\n"}).out, "97,10\n");
    EXPECT_EQ(run({"detokenize", "--model", dir, "104,105,257"}, kNoInput).out, "hi<|end|>\n");
    EXPECT_EQ(run({"detokenize", "--model", dir, "--skip-special"}, {.input = "104,105,257\n"}).out, "hi\n");
    EXPECT_EQ(run({"detokenize", "--model", dir, "--json"}, {.input = ""}).out, "{\"text\":\"\"}\n");
}

TEST(TextTools, JsonLinesLoseNothing) {
    const std::string& dir = tiny_checkpoint();
    const Outcome tok =
        run({"tokenize", "--model", dir, "--jsonl"},
            {.input = "{\"text\":\"a\"}\n\n{bad\r\n{\"text_b64\":\"/w==\"}\n{\"txt\":1}\n{\"text\":\"z\"}"});
    EXPECT_EQ(tok.code, 1);
    std::istringstream lines(tok.out);
    std::vector<json> out;
    for (std::string line; std::getline(lines, line);) out.push_back(json::parse(line));
    ASSERT_EQ(out.size(), 5u);
    EXPECT_EQ(out[0]["ids"], json({97}));
    EXPECT_TRUE(out[1].contains("error"));
    EXPECT_EQ(out[2]["ids"], json({239, 191, 189}));  // U+FFFD
    EXPECT_TRUE(out[3].contains("error"));
    EXPECT_EQ(out[4]["ids"], json({122}));
    const Outcome chunks =
        run({"detokenize", "--model", dir, "--jsonl", "--chunks"}, {.input = "{\"ids\":[195,169,240]}\n"});
    EXPECT_EQ(chunks.out, "{\"chunks\":[\"\",\"é\",\"\"],\"flush\":\"\uFFFD\"}\n");
}

TEST(TextTools, WhatTheTemplateDoesNotReadIsSaid) {
    TempDir dir;
    const std::string tools = dir.file("tools.json", "[]");
    const Arguments given = {"--tools",       tools,   "--set",
                             "thinking=true", "--set", "add_generation_prompt=true"};
    const auto with = [&](Arguments arguments) {
        arguments.insert(arguments.end(), given.begin(), given.end());
        return arguments;
    };
    const std::string reads = dir.file("reads.jinja", "{{ tools|length }}{{ thinking }}");
    const std::string near = dir.file("near.jinja", "{{ my_tools }}{{ thinkings }}");
    const std::string messages = dir.file("m.json", R"([{"role":"user","content":"x"}])");
    const auto render = [&](const std::string& jinja) {
        return run(with({"render", "--messages", messages, "--chat-template", jinja}), kNoInput).err;
    };
    EXPECT_EQ(render(reads), "");
    EXPECT_THAT(render(near), HasSubstr("--tools: the chat template reads no tools"));
    EXPECT_THAT(render(near), HasSubstr("--set thinking: the chat template reads no such variable"));
    EXPECT_THAT(render(near), Not(HasSubstr("add_generation_prompt")));
    EXPECT_THAT(run(with(ask({})), kNoInput).err, HasSubstr("--tools: the chat template reads no tools"));
    EXPECT_EQ(run(with(ask({"-q"})), kNoInput).err, "");
}

TEST(TextTools, Render) {
    const std::string& dir = tiny_checkpoint();
    const RunWith messages{.input = R"([{"role":"user","content":"x"}])"};
    EXPECT_EQ(run({"render", "--model", dir, "--messages", "-"}, messages).out,
              "<|user|>x<|end|><|assistant|>");
    EXPECT_EQ(run({"render", "--model", dir, "--messages", "-", "--no-generation-prompt"}, messages).out,
              "<|user|>x<|end|>");
    const Outcome alternate =
        run({"render", "--model", dir, "--messages", "-"},
            {.input = R"([{"role":"assistant","content":"x"},{"role":"assistant","content":"y"}])"});
    EXPECT_EQ(alternate.code, 1);
    EXPECT_THAT(alternate.err, HasSubstr("roles must alternate"));
    const Outcome lines = run(
        {"render", "--jsonl"},
        {.input =
             R"({"template_text":"{{ a }}{{ bos_token }}{{ messages[0]|tojson }}","messages":[{"role":"user","n":1.10,"b":2,"a":1}],"kwargs":{"a":"ü"},"bos_token":"<s>"})"
             "\n"
             R"({"template_text":"{{ messages.append(1) }}","messages":[]})"
             "\n"});
    EXPECT_EQ(lines.code, 1);
    const std::size_t newline = lines.out.find('\n');
    EXPECT_EQ(json::parse(lines.out.substr(0, newline))["text"],
              R"(ü<s>{"role": "user", "n": 1.1, "b": 2, "a": 1})");
    EXPECT_TRUE(json::parse(lines.out.substr(newline)).contains("error"));
    EXPECT_EQ(run({"render", "--chat-template", dir + "/none", "--messages", "-"}, messages).code, 1);
}

TEST(Score, LogprobsNllAndTheBest) {
    const Outcome outcome = run(tiny({"score", "--ids", "104,105,106", "--top", "2"}), kNoInput);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const json score = json::parse(outcome.out);
    EXPECT_EQ(score["ids"], json({104, 105, 106}));
    ASSERT_EQ(score["logprobs"].size(), 3u);
    EXPECT_TRUE(score["logprobs"][0].is_null());
    const double nll = -(score["logprobs"][1].get<double>() + score["logprobs"][2].get<double>()) / 2;
    EXPECT_NEAR(score["nll"].get<double>(), nll, 1e-9);
    EXPECT_NEAR(score["perplexity"].get<double>(), std::exp(nll), 1e-6);
    ASSERT_EQ(score["top"].size(), 3u);
    ASSERT_EQ(score["top"][2].size(), 2u);
    EXPECT_GE(score["top"][2][0]["logit"].get<double>(), score["top"][2][1]["logit"].get<double>());
    EXPECT_EQ(run(tiny({"score", "--ids", "104,9999"}), kNoInput).code != 0, true);
    const Outcome lines =
        run(tiny({"score", "--jsonl"}), {.input = "{\"id\":\"a\",\"text\":\"hi\"}\n{\"ids\":[]}\n"});
    EXPECT_EQ(lines.code, 1);
    EXPECT_EQ(std::count(lines.out.begin(), lines.out.end(), '\n'), 2);
}

TEST(Score, AnInterruptEndsWith130) {
    std::string text = "{\"text\":\"" + std::string(100'000, 'x') + "\"}\n";
    Process process(tiny({"score", "--jsonl"}),
                    {.input = "{\"ids\":[1,2]}\n" + text, .keep_stdin_open = true});
    ASSERT_TRUE(process.wait_for("perplexity"));
    process.signal(SIGINT);
    const Outcome outcome = process.wait();
    EXPECT_EQ(outcome.code, 130) << outcome.err;
    EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1);
}

TEST(Facts, InspectAndDevices) {
    const Outcome facts = run({"inspect", tiny_checkpoint(), "--json", "--bandwidth", "100"}, kNoInput);
    ASSERT_EQ(facts.code, 0) << facts.err;
    EXPECT_GT(json::parse(facts.out)["floor"]["ms_per_token"].get<double>(), 0);
    EXPECT_EQ(run({"inspect", tiny_checkpoint()}, kNoInput).code, 0);
    EXPECT_EQ(run({"inspect", "/nonexistent"}, kNoInput).code, 1);
    const Outcome devices = run({"devices", "--no-measure", "--json"}, kNoInput);
    ASSERT_EQ(devices.code, 0) << devices.err;
    EXPECT_TRUE(json::parse(devices.out).is_object());
    EXPECT_EQ(run({"devices", "--no-measure"}, kNoInput).code, 0);
}

TEST(Help, EveryCommandHasAnExample) {
    const std::string root = run({"--help"}, kNoInput).out;
    std::istringstream lines(root.substr(root.find("Subcommands:")));
    std::string line;
    std::getline(lines, line);
    int n = 0;
    while (std::getline(lines, line) && !line.empty()) {
        const std::string name = line.substr(2, line.find(' ', 2) - 2);
        const Outcome help = run({name, "--help"}, kNoInput);
        EXPECT_EQ(help.code, 0) << name;
        EXPECT_THAT(help.out, HasSubstr("Example:\n  ")) << name;
        EXPECT_THAT(help.out, HasSubstr("llmgen " + name)) << name;
        ++n;
    }
    EXPECT_GE(n, 10);
}

TEST(Help, CompletionAndManPageKnowEveryOption) {
    TempDir dir;
    const std::string script = run({"completion", "bash"}, kNoInput).out;
    const std::string file = dir.file("llmgen.bash", script);
    EXPECT_EQ(std::system(("bash -n " + file).c_str()), 0);
    const std::string probe =
        "bash -c 'source " + file +
        "; COMP_WORDS=(llmgen --device c); COMP_CWORD=2; _llmgen; test \"${COMPREPLY[*]}\" = \"cpu cuda\"'";
    EXPECT_EQ(std::system(probe.c_str()), 0);
    const std::string man = run({"man"}, kNoInput).out;
    for (const char* option :
         {"max-new-tokens", "repetition-penalty", "kv-memory", "resume", "skip-special"}) {
        EXPECT_THAT(script, HasSubstr(std::string("--") + option));
        for (const char* shell : {"zsh", "fish"})
            EXPECT_THAT(run({"completion", shell}, kNoInput).out, HasSubstr(option));
        std::string escaped = option;
        for (std::size_t at = 0; (at = escaped.find('-', at)) != std::string::npos; at += 2)
            escaped.replace(at, 1, "\\-");
        EXPECT_THAT(man, HasSubstr(escaped));
    }
    EXPECT_EQ(run({"completion", "tcsh"}, kNoInput).code, 2);
}

// The model that tools/quickstart fetches.
TEST(RealModel, KnowsTheCapitalOfFrance) {
    const char* home = std::getenv("HOME");
    const char* given = std::getenv("LLMGEN_SMOLLM2");
    const std::string dir =
        given ? given : std::string(home ? home : "") + "/.cache/llmgen/models/smollm2-135m-instruct";
    SKIP_WITHOUT(dir);
    const Outcome outcome =
        run({"--model", dir, "--prompt", "What is the capital of France?", "--greedy", "--device", "cpu"},
            kNoInput);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("Paris"));
    EXPECT_EQ(outcome.err, "");  // it ended by itself: nothing to say
}

// The reference material's own scripts, where it and Python are there.
int check(const std::string& script, const std::string& arguments) {
    return std::system(("LLMGEN=" LLMGEN_BINARY " python3 " + (shared("tools") / script).string() + " " +
                        arguments + " > /dev/null")
                           .c_str());
}

TEST(Shared, RenderCases) {
    SKIP_WITHOUT(shared("tools/check_render.py"));
    EXPECT_EQ(check("check_render.py", shared("cases/templates.jsonl").string()), 0);
}

TEST(Shared, TokenCases) {
    SKIP_WITHOUT(shared("tools/check_tokens.py"));
    EXPECT_EQ(check("check_tokens.py", shared("cases/tokenize.jsonl").string() + " " +
                                           shared("cases/detokenize.jsonl").string()),
              0);
}

TEST(Shared, TinyModels) {
    SKIP_WITHOUT(shared("tools/check_models.py"));
    EXPECT_EQ(check("check_models.py", (shared("data/tiny") / "*-*").string()), 0);
}

}  // namespace
}  // namespace llmgen::test
