// `llmgen chat`: turns on a terminal, or line by line from a pipe.
//
// A turn is a line; lines between """ and """ are one turn, and a backslash at the end joins the next line. A
// line that begins with / is a command and never reaches the model (// sends a line that begins with /).
// The answers go to stdout, everything else to stderr.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>

#include "app/chat/conversation.h"
#include "app/chat/editor.h"
#include "app/cli/command.h"
#include "app/cli/flags.h"
#include "app/cli/io.h"
#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/session.h"
#include "base/error.h"
#include "base/utf8.h"

namespace llmgen::app {
namespace {

constexpr const char* kHelp =
    "  /help              this text\n"
    "  /system [TEXT]     show or set the system message (/system none removes it)\n"
    "  /set [NAME VALUE]  show or set a sampling parameter: temperature, top_k, top_p, min_p, "
    "repetition_penalty,\n"
    "                     presence_penalty, frequency_penalty, seed, max_new_tokens (VALUE default: as at "
    "first)\n"
    "  /regen             answer the last message again\n"
    "  /clear             forget the conversation, keep the system message\n"
    "  /stats             time and pace of the last answer, and what came from the cache\n"
    "  /save FILE         write the conversation as messages JSON; /load FILE reads one\n"
    "  /exit              leave (also /bye, Ctrl-D)\n"
    "A message over several lines stands between \"\"\" and \"\"\", or has \\ at the end of its lines.\n"
    "Ctrl-C stops the answer. //… sends a message that begins with /.\n";

constexpr int kTerminated = 128 + SIGTERM;  // ends the session, where Ctrl-C ends an answer

std::string trimmed(const std::string& text) {
    const std::size_t begin = text.find_first_not_of(" \t");
    return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// "/set top-k 5" for a person, with the ranges of the flags.
void set_parameter(GenerationFlags& target,
                   const GenerationFlags& initial,
                   std::string name,
                   const std::string& value) {
    std::replace(name.begin(), name.end(), '-', '_');
    Sampling& s = target.sampling;
    const Sampling& first = initial.sampling;
    const bool reset = value == "default";
    const auto real = [&](std::optional<double>& field, const std::optional<double>& at_first,
                          const RealRange& range) {
        field = reset ? at_first : parse_real(name, value, range);
    };
    if (name == "temperature") {
        real(s.temperature, first.temperature, kTemperatureRange);
        target.greedy = reset && initial.greedy;
    } else if (name == "top_p")
        real(s.top_p, first.top_p, kShareRange);
    else if (name == "min_p")
        real(s.min_p, first.min_p, kShareRange);
    else if (name == "repetition_penalty")
        real(s.repetition_penalty, first.repetition_penalty, kRepetitionRange);
    else if (name == "presence_penalty")
        real(s.presence_penalty, first.presence_penalty, kPenaltyRange);
    else if (name == "frequency_penalty")
        real(s.frequency_penalty, first.frequency_penalty, kPenaltyRange);
    else if (name == "top_k")
        s.top_k = reset ? first.top_k : int(parse_integer(name, value, -1, INT_MAX));
    else if (name == "seed")
        s.seed = reset ? first.seed : parse_unsigned(name, value);
    else if (name == "max_new_tokens")
        target.max_new_tokens = reset ? initial.max_new_tokens : int(parse_integer(name, value, 1, INT_MAX));
    else
        fail("/set knows no \"{}\"; see /help", printable(name));
}

class ChatCommand : public Command {
public:
    explicit ChatCommand(CLI::App& root)
        : Command(
              add_subcommand(root,
                             "chat",
                             "A conversation on the terminal",
                             "  llmgen chat --system \"Answer in one sentence.\"\n"
                             "  printf 'Hi\\nAnd again?\\n' | llmgen chat            # turns line by line\n"
                             "\n"
                             "In the chat /help lists the commands. Ctrl-C stops an answer, Ctrl-D leaves. "
                             "Turns from a pipe: exit\n"
                             "code 1 where one of them could not be answered.")) {
        Flags flags(*app_);
        flags.group("Conversation");
        flags.text("--system", system_, "TEXT", "system message");
        flags.text("--messages", messages_, "FILE", "go on with a conversation that /save wrote");
        flags.flag_off("--no-history", history_, "don't keep what is typed for the next session");
        variables_.add_to(flags);
        flags.choice("--stream", stream_, "token|word|off",
                     "show text as it comes, by the word, or at the end");
        generation_.add_to(flags);
        engine_.add_to(flags);
    }

    int run(Context& context) override {
        generation_.request();  // contradictions show before the model is loaded
        if (generation_.logprobs)
            fail_usage("--logprobs stand in the record of a run, which a chat doesn't write");
        const EngineOptions options = engine_.options();
        const std::string saved = messages_.empty() ? "" : read_input(messages_);
        RenderInput variables;
        variables_.fill(variables);
        Engine engine = open_engine(options, engine_.quiet);
        const std::optional<ChatTemplate> chat_template = template_of(engine, options);
        if (chat_template && !engine_.quiet) variables_.warn_of_unread(*chat_template);
        Conversation conversation(engine.tokenizer(), chat_template, variables, generation_.allow_special);
        if (!messages_.empty()) conversation.from_text(saved, printable(messages_));
        if (!system_.empty()) conversation.set_system(utf8::repair(system_));
        Editor editor(history_ ? default_history_file() : "");
        Session session{context, engine, conversation, editor, generation_, generation_, {}, {}, false};
        if (editor.is_interactive() && !engine_.quiet)
            write_stderr(fmt::format("{} on {}. /help lists the commands, Ctrl-D leaves.\n",
                                     printable(engine.info().model_path), printable(engine.info().device)));
        return loop(session);
    }

private:
    struct Session {
        Context& context;
        Engine& engine;
        Conversation& conversation;
        Editor& editor;
        GenerationFlags parameters;
        const GenerationFlags& initial;
        std::optional<Result> last;
        std::optional<double> bandwidth;
        bool failed = false;  // a turn had no answer
    };
    enum class Next { go_on, leave };

    int loop(Session& s) {
        const bool interactive = s.editor.is_interactive();
        while (true) {
            s.context.interrupts.clear();
            s.context.interrupts.on_interrupt([&s] { s.editor.interrupt(); });
            const std::optional<std::string> turn = read_turn(s);
            s.context.interrupts.on_interrupt({});
            if (!turn) return leave(s);
            if (trimmed(*turn).empty()) continue;
            try {
                if (is_command(*turn)) {
                    if (command(s, trimmed(*turn)) == Next::leave) return leave(s);
                } else {
                    s.conversation.add_user(turn->starts_with("//") ? turn->substr(1) : *turn);
                    answer(s);
                }
            } catch (const StdoutFailed&) {
                throw;
            } catch (const Error& error) {
                say("{}", error.what());
                s.failed = s.failed || !is_command(*turn);
            }
            const int code = s.context.interrupts.exit_code();
            if (code != 0 && (!interactive || code == kTerminated)) return code;
        }
    }

    static bool is_command(const std::string& turn) {
        return turn.starts_with("/") && !turn.starts_with("//");
    }

    // At a terminal a person has read what went wrong; a script has the code.
    static int leave(const Session& s) {
        const int code = s.context.interrupts.exit_code();
        if (s.editor.is_interactive()) return code == kTerminated ? code : int(kDone);
        if (code != 0) return code;
        return s.failed ? kFailed : kDone;
    }

    // nullopt: leave.
    std::optional<std::string> read_turn(Session& s) {
        std::string text;
        bool block = false, joined = false;
        while (true) {
            const Editor::Input input = s.editor.read(block || joined ? "... " : ">>> ");
            if (input.event == Editor::Event::interrupted) {
                if (s.context.interrupts.exit_code() == kTerminated) return std::nullopt;
                s.context.interrupts.clear();
                if (input.text.empty() && text.empty() && !block) say("to leave: /exit or Ctrl-D");
                text.clear();
                block = joined = false;
                continue;
            }
            if (input.event == Editor::Event::end) {
                if (s.context.interrupts.exit_code() || (text.empty() && !block)) return std::nullopt;
                break;
            }
            std::string line = input.text;
            if (!block && !joined && line.starts_with("\"\"\"")) {
                block = true;
                line.erase(0, 3);
                if (line.empty()) continue;
            }
            if (block && line.ends_with("\"\"\"")) {
                line.erase(line.size() - 3);
                text += line;
                break;
            }
            if (block) {
                text += line + "\n";
                continue;
            }
            joined = line.ends_with("\\") && !line.starts_with("/");
            if (!joined) {
                text += line;
                break;
            }
            text += line.substr(0, line.size() - 1) + "\n";
        }
        if (block && text.ends_with("\n")) text.pop_back();
        s.editor.remember(text);
        return text;
    }

    // A failed write to stdout ends the chat; other errors end the turn.
    struct StdoutFailed : Error {
        using Error::Error;
    };
    static void show(const std::string& text) {
        try {
            if (!text.empty()) write_stdout(text);
        } catch (const Error& error) {
            throw StdoutFailed(error.what());
        }
    }

    void answer(Session& s) {
        Request request = s.parameters.request();
        try {
            std::vector<int> ids = s.conversation.next_prompt();
            if (const int most = s.engine.info().max_context;
                int(ids.size()) > most && s.conversation.turns() > 1)
                fail("the conversation has {} tokens, the context holds {}; /clear begins a new one",
                     ids.size(), most);
            request.prompt = std::move(ids);
            StreamHold hold(StreamHold::parse(stream_));
            Progress progress(!engine_.quiet && is_capable_terminal(2), engine_.engine.prefill_chunk);
            s.last = run_request(s.engine, std::move(request), s.context.interrupts, progress,
                                 [&](const std::string& text) { show(hold.push(text)); });
            show(hold.flush() + "\n");
        } catch (const Error&) {
            s.conversation.drop_user();  // the last turn can't be answered; the others still can
            throw;
        }
        if (s.last->finish_reason == FinishReason::error) {
            s.conversation.drop_user();
            fail("{}", s.last->error);
        }
        s.conversation.add_reply(*s.last);
        const std::string note = incomplete_note(*s.last);
        if (!note.empty() && !engine_.quiet) say("{}", note);
    }

    Next command(Session& s, const std::string& line) {
        const std::size_t space = line.find_first_of(" \t");
        const std::string name = line.substr(0, space);
        const std::string rest = space == std::string::npos ? "" : trimmed(line.substr(space));
        if (name == "/exit" || name == "/bye" || name == "/quit") return Next::leave;
        if (name == "/help" || name == "/?")
            write_stderr(kHelp);
        else if (name == "/system")
            system_command(s, rest);
        else if (name == "/set")
            set_command(s, rest);
        else if (name == "/regen")
            regenerate(s);
        else if (name == "/clear") {
            s.conversation.clear();
            s.last.reset();
            say("the conversation is forgotten");
        } else if (name == "/stats")
            stats(s);
        else if (name == "/save")
            save(s, rest);
        else if (name == "/load") {
            if (rest.empty()) fail("/load needs a file");
            s.conversation.from_text(read_input(rest), printable(rest));
            say("{}: a conversation of {} turns", rest, s.conversation.turns());
        } else
            fail("there is no {}; /help lists the commands, //… sends a message that begins with /",
                 printable(name));
        return Next::go_on;
    }

    static void system_command(Session& s, const std::string& text) {
        if (text.empty()) {
            const std::string now = s.conversation.system();
            say("{}", now.empty() ? "no system message" : "system message: " + now);
            return;
        }
        s.conversation.set_system(text == "none" ? "" : text);
        say("{}", text == "none" ? "no system message from now on" : "the system message is set");
    }

    static void set_command(Session& s, const std::string& rest) {
        if (rest.empty()) {
            const Sampling& p = s.parameters.sampling;
            const auto shown = [](const char* name, const auto& value) {
                return value ? fmt::format("  {} {}\n", name, *value) : fmt::format("  {} default\n", name);
            };
            write_stderr(shown("temperature", s.parameters.greedy ? std::optional(0.0) : p.temperature) +
                         shown("top_k", p.top_k) + shown("top_p", p.top_p) + shown("min_p", p.min_p) +
                         shown("repetition_penalty", p.repetition_penalty) +
                         shown("presence_penalty", p.presence_penalty) +
                         shown("frequency_penalty", p.frequency_penalty) + shown("seed", p.seed) +
                         shown("max_new_tokens", s.parameters.max_new_tokens));
            return;
        }
        const std::size_t space = rest.find_first_of(" \t=");
        if (space == std::string::npos) fail("/set NAME VALUE, for example /set temperature 0.7");
        set_parameter(s.parameters, s.initial, rest.substr(0, space), trimmed(rest.substr(space + 1)));
        say("{} is set", rest.substr(0, space));
    }

    void regenerate(Session& s) {
        const Json before = s.conversation.messages();
        if (!s.conversation.drop_reply()) fail("there is no answer to make again");
        try {
            answer(s);
        } catch (const Error&) {
            s.conversation.restore(before);
            throw;
        }
        if (s.conversation.messages().size() == before.size()) return;
        s.conversation.restore(before);  // interrupted before its first word
        say("the answer before stays");
    }

    static void stats(Session& s) {
        if (!s.last) fail("no answer yet");
        if (!s.bandwidth) s.bandwidth = measured_read_bandwidth(s.engine.info());
        write_stderr(
            stats_report(*s.last, s.engine.info(), s.engine.tokenizer(), s.parameters, *s.bandwidth));
        const int prompt = int(s.last->prompt_ids.size());
        write_stderr(
            fmt::format("{:<12} {} of {} prompt tokens came from the turns before, {} were computed\n",
                        "reuse", s.last->cached_tokens, prompt, prompt - s.last->cached_tokens));
    }

    static void save(Session& s, const std::string& path) {
        if (path.empty()) fail("/save needs a file");
        const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd < 0) fail("{}: {}", printable(path), std::strerror(errno));
        try {
            write_all(fd, s.conversation.to_text(), printable(path));
        } catch (...) {
            ::close(fd);
            throw;
        }
        ::close(fd);
        say("{}: {} turns", path, s.conversation.turns());
    }

    EngineFlags engine_;
    GenerationFlags generation_;
    TemplateFlags variables_;
    std::string system_, messages_, stream_ = "token";
    bool history_ = true;
};

}  // namespace

std::unique_ptr<Command> make_chat(CLI::App& root) { return std::make_unique<ChatCommand>(root); }

}  // namespace llmgen::app
