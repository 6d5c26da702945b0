// `llmgen --prompt …`: one answer, streamed.
//
// Where the prompt comes from:
//   --prompt TEXT              the text; with something piped in, the text, an empty line, and what was piped
//   --prompt - | piped stdin   stdin, without its final newline
//   --messages FILE            a whole conversation
//   --prompt-ids               ids, as they are
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "app/cli/command.h"
#include "app/cli/flags.h"
#include "app/cli/io.h"
#include "app/cli/json.h"
#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/session.h"
#include "base/error.h"
#include "base/utf8.h"

namespace llmgen::app {
namespace {

// Whether stdin is something that was piped in on purpose: a pipe, a socket or a file; not a terminal, not
// /dev/null.
bool stdin_is_piped() {
    struct stat status {};
    return ::fstat(0, &status) == 0 &&
           (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) || S_ISREG(status.st_mode));
}

// A pipe that nobody closes would make us wait for ever without a word.
std::string read_piped(bool quiet) {
    pollfd p{0, POLLIN, 0};
    if (!quiet && ::poll(&p, 1, 1000) == 0)
        say("waiting for standard input, which is added to the prompt; </dev/null leaves it out");
    return std::string(without_final_newline(read_all(0, "standard input")));
}

class Generate : public Command {
public:
    explicit Generate(CLI::App& root) : Command(&root) {
        Flags flags(root);
        flags.group("Prompt");
        flags.text("-p,--prompt", prompt_, "TEXT",
                   "the prompt; - reads stdin; what is piped in is added to it");
        flags.text("--system", system_, "TEXT", "system message before the prompt");
        flags.text("--messages", messages_, "FILE",
                   "a conversation: JSON array of {\"role\", \"content\"} (- for stdin)");
        flags.text("--prompt-ids", prompt_ids_, "IDS|@FILE", "token ids, 1,2,3, instead of text");
        flags.flag("--raw", raw_, "no chat template: the model continues the text");
        variables_.add_to(flags);
        generation_.add_to(flags);
        flags.group("Output");
        flags.choice("--stream", stream_, "token|word|off",
                     "show text as it comes, by the word, or at the end");
        flags.flag("--json", json_, "print the record of the run instead of the text");
        flags.text("--trace", trace_, "FILE", "write the record of the run to FILE");
        flags.flag("--trace-full-hash", engine_.engine.full_checkpoint_hash,
                   "hash all bytes of the checkpoint for it");
        flags.flag("--stats", stats_, "time, pace, floor and settings, on stderr");
        flags.flag("--verbose", stats_, "the same as --stats");
        flags.flag("--explain", explain_, "a line for each step of the loop, on stderr");
        engine_.add_to(flags);
    }

    int run(Context& context) override {
        Request request = generation_.request();
        fill_prompt(request);
        request.explain = explain_;
        Trace trace(trace_);
        Engine engine = open_engine(engine_.options(), engine_.quiet);

        if (!engine_.quiet && !variables_.is_empty())
            if (const auto used = template_of(engine, engine_.options())) variables_.warn_of_unread(*used);

        StreamHold hold(json_ ? StreamHold::Mode::off : StreamHold::parse(stream_));
        Progress progress(!engine_.quiet && is_capable_terminal(2), engine_.engine.prefill_chunk);
        const Result result = run_request(engine, std::move(request), context.interrupts, progress,
                                          [&](const std::string& text) {
                                              const std::string shown = hold.push(text);
                                              if (!shown.empty()) write_stdout(shown);
                                          });
        const bool record_wanted = json_ || !trace_.empty();
        const std::string record =
            record_wanted ? to_json(result, engine.info(), engine.tokenizer()) + "\n" : "";
        write_stdout(json_ ? record : hold.flush() + "\n");
        trace.write(record);
        report(result, engine);
        if (result.finish_reason == FinishReason::error)
            fail("{}", result.error.empty() ? "the request failed" : result.error);
        if (result.finish_reason == FinishReason::cancelled)
            return context.interrupts.exit_code() ? context.interrupts.exit_code() : kFailed;
        return kDone;
    }

private:
    // Opened before any work, so that a wrong path costs no time; written once, and an older record is kept
    // until then.
    class Trace {
    public:
        explicit Trace(const std::string& path) : path_(path) {
            if (path.empty()) return;
            fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
            if (fd_ < 0) fail("--trace {}: {}", printable(path), std::strerror(errno));
        }
        ~Trace() {
            if (fd_ >= 0) ::close(fd_);
        }
        Trace(const Trace&) = delete;
        void write(const std::string& text) {
            if (fd_ < 0) return;
            if (::ftruncate(fd_, 0) != 0 && errno != EINVAL)  // EINVAL: a terminal or a pipe
                fail("--trace {}: {}", printable(path_), std::strerror(errno));
            write_all(fd_, text, printable(path_));
        }

    private:
        std::string path_;
        int fd_ = -1;
    };

    void refuse_contradictions() const {
        const int sources =
            int(prompt_.has_value()) + int(messages_.has_value()) + int(prompt_ids_.has_value());
        if (sources > 1) fail_usage("--prompt, --messages and --prompt-ids: give one of them");
        if (!system_.empty() && (raw_ || messages_ || prompt_ids_))
            fail_usage(
                "--system needs the chat template: it doesn't go with --raw, --messages or --prompt-ids");
        if (raw_ && messages_) fail_usage("--raw has no conversation: it doesn't go with --messages");
        if ((raw_ || prompt_ids_) && (!variables_.tools_file.empty() || !variables_.variables.empty()))
            fail_usage(
                "--tools and --set are for the chat template: they don't go with --raw or --prompt-ids");
        if ((raw_ || prompt_ids_) && !engine_.chat_template_file.empty())
            fail_usage("--chat-template doesn't go with --raw or --prompt-ids, which use none");
        const bool record_wanted = json_ || !trace_.empty();
        if (generation_.logprobs && !record_wanted)
            fail_usage("--logprobs stand in the record of the run: give --json or --trace FILE too");
        if (engine_.engine.full_checkpoint_hash && !record_wanted)
            fail_usage("--trace-full-hash stands in the record of the run: give --json or --trace FILE too");
    }

    std::string prompt_text() const {
        std::string text;
        if (!prompt_) {
            if (is_terminal(0))
                fail_usage(
                    "no prompt; try: llmgen --prompt \"What is the capital of France?\" (or llmgen --help)");
            text = without_final_newline(read_all(0, "standard input"));
        } else if (*prompt_ == "-") {
            text = without_final_newline(read_all(0, "standard input"));
        } else {
            text = *prompt_;
            if (text.empty() && !raw_) fail_usage("--prompt: the prompt is empty");
            const std::string piped = stdin_is_piped() ? read_piped(engine_.quiet) : "";
            if (!piped.empty()) text += (text.empty() ? "" : "\n\n") + piped;
        }
        // An empty raw prompt is the BOS token where the tokenizer has one: the engine knows.
        if (text.empty() && !raw_) fail_usage("the prompt is empty: nothing came from standard input");
        return utf8::repair(text);
    }

    void fill_prompt(Request& request) const {
        refuse_contradictions();
        if (prompt_ids_) {
            request.prompt = ids_from_flag("--prompt-ids", *prompt_ids_);
            return;
        }
        if (messages_) {
            Chat chat{messages_from_json(read_input(*messages_),
                                         *messages_ == "-" ? "standard input" : printable(*messages_))};
            variables_.fill(chat.input);
            request.prompt = std::move(chat);
            return;
        }
        std::string text = prompt_text();
        if (raw_) {
            request.prompt = RawText{std::move(text)};
            return;
        }
        Chat chat = Chat::user(text, utf8::repair(system_));
        variables_.fill(chat.input);
        request.prompt = std::move(chat);
    }

    void report(const Result& result, const Engine& engine) const {
        const std::string note = incomplete_note(result);
        if (!note.empty() && !engine_.quiet) say("{}", note);
        if (explain_) write_stderr(explain_report(result, engine.info(), engine.tokenizer()));
        if (stats_)
            write_stderr(stats_report(result, engine.info(), engine.tokenizer(), generation_,
                                      measured_read_bandwidth(engine.info())));
    }

    EngineFlags engine_;
    GenerationFlags generation_;
    TemplateFlags variables_;
    std::optional<std::string> prompt_, messages_, prompt_ids_;
    std::string system_, trace_, stream_ = "token";
    bool raw_ = false, json_ = false, stats_ = false, explain_ = false;
};

}  // namespace

std::unique_ptr<Command> make_generate(CLI::App& root) { return std::make_unique<Generate>(root); }

}  // namespace llmgen::app
