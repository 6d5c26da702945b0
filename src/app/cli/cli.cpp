// From argv to a command and its exit code: the one place where errors become messages and codes.
#include <algorithm>
#include <new>
#include <system_error>

#include "app/bench/bench_command.h"
#include "app/cli/command.h"
#include "app/cli/io.h"
#include "app/cli/numbers.h"
#include "base/error.h"
#include "llmgen/llmgen.h"

namespace llmgen::app {
namespace {

constexpr const char* kDescription = "A checkpoint directory and a prompt in, text out, token by token.";
constexpr const char* kFooter =
    "Example:\n"
    "  llmgen --prompt \"What is the capital of France?\"\n"
    "  git diff | llmgen --prompt \"Write a commit message for this change.\" --temperature 0\n"
    "\n"
    "The answer goes to stdout, all else to stderr. Exit codes: 0 done, 1 run-time failure, 2 usage,\n"
    "130 interrupted (the text so far is printed).\n"
    "\n"
    "Environment: LLMGEN_MODEL (default model), HF_HOME and HF_HUB_CACHE (where ORG/NAME is looked up),\n"
    "LLMGEN_NOW=2026-07-04T09:05:06 (the clock that chat templates see).";

// "--prompt=" with nothing after it: CLI11 would take the next argument as the value.
std::vector<std::string> arguments(int argc, const char* const* argv) {
    std::vector<std::string> out;
    bool options = true;
    for (int i = 1; i < argc; ++i) {
        std::string argument = argv[i];
        if (argument == "--") options = false;
        if (options && argument.size() > 3 && argument.starts_with("--") &&
            argument.find('=') == argument.size() - 1) {
            out.push_back(argument.substr(0, argument.size() - 1));
            out.emplace_back();
        } else {
            out.push_back(std::move(argument));
        }
    }
    return out;
}

const CLI::App* deepest(const CLI::App& app) {
    const auto chosen = app.get_subcommands();
    return chosen.empty() ? &app : deepest(*chosen.front());
}

// The known word nearest to what was typed, "" where none is near.
std::string closest(const CLI::App& app, const std::string& word) {
    std::vector<std::string> known;
    if (word.starts_with("-")) {
        for (const CLI::Option* option : app.get_options())
            for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    } else {
        for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
            known.push_back(command->get_name());
    }
    std::string best;
    std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
    for (const std::string& candidate : known) {
        std::size_t distance = edit_distance(word, candidate);
        if (candidate.starts_with(word) && word.size() > 3) distance = std::min<std::size_t>(distance, 1);
        if (distance < best_distance) {
            best = candidate;
            best_distance = distance;
        }
    }
    return best;
}

// Options of one command given before another: "llmgen --model X tokenize" would be dropped silently.
void refuse_misplaced(const CLI::App& root) {
    const auto chosen = root.get_subcommands();
    if (chosen.empty()) return;
    for (const CLI::Option* option : root.get_options())
        if (option->count() > 0)
            fail_usage("{} stands before {}; write it after: llmgen {} {} …", option->get_name(),
                       chosen.front()->get_name(), chosen.front()->get_name(), option->get_name());
}

void refuse_unknown(const CLI::App& root) {
    const CLI::App* app = deepest(root);
    std::vector<std::string> extras = root.remaining(true);
    extras.erase(std::remove(extras.begin(), extras.end(), "--"), extras.end());
    if (extras.empty()) return;
    std::string word = extras.front().substr(0, 200);
    if (word.starts_with("--")) word = word.substr(0, word.find('='));
    std::string hint = closest(*app, word);
    if (hint == word) hint.clear();  // a flag behind "--"
    const bool is_flag = word.starts_with("-") && word.size() > 1;
    const std::string help = app == &root ? "llmgen --help" : "llmgen " + app->get_name() + " --help";
    const std::string what = is_flag        ? "unknown flag"
                             : app == &root ? "unknown command"
                                            : "unexpected argument";
    const std::string way = !hint.empty()              ? "is " + hint + " meant?"
                            : app == &root && !is_flag ? "a prompt is given by --prompt \"…\"; see " + help
                                                       : "see " + help;
    fail_usage("{} {}; {}", what, printable(word), way);
}

int guarded(const std::function<int()>& body) {
    try {
        return body();
    } catch (const UsageError& error) {
        say("error: {}", error.what());
        return kUsage;
    } catch (const CLI::ArgumentMismatch& error) {  // "--seed: 1 required N missing"
        const std::string text = error.what();
        const std::size_t colon = text.find(": ");
        if (colon != std::string::npos && text.ends_with("missing"))
            say("error: {} needs a value", text.substr(0, colon));
        else
            say("error: {}", text);
        return kUsage;
    } catch (const CLI::ParseError& error) {
        say("error: {}", error.what());
        return kUsage;
    } catch (const std::bad_alloc&) {
        say("error: out of memory");
        return kFailed;
    } catch (const std::system_error& error) {  // of std::thread: its text alone doesn't say so
        if (error.code() != std::errc::resource_unavailable_try_again)
            say("error: {}", error.what());
        else
            say("error: no more threads can be started; a limit is reached: ulimit -u, or the container's");
        return kFailed;
    } catch (const std::exception& error) {
        say("error: {}", error.what());
        return kFailed;
    }
}

}  // namespace

CLI::App* add_subcommand(CLI::App& root,
                         const std::string& name,
                         const std::string& description,
                         const std::string& example) {
    CLI::App* app = root.add_subcommand(name, description);
    app->footer("Example:\n" + example);
    app->set_help_flag("-h,--help", "this text");
    app->allow_extras();  // refused by refuse_unknown, with a hint
    app->get_formatter()->column_width(32);
    return app;
}

int run_cli(int argc, const char* const* argv) {
    prepare_descriptors();
    end_in_a_line_without_the_file();
    return guarded([&] {
        Interrupts interrupts;
        CLI::App root(kDescription, "llmgen");
        root.footer(kFooter);
        root.set_help_flag("-h,--help", "this text");
        bool version_wanted = false;
        root.add_flag("--version", version_wanted, "the version of this program");
        root.allow_extras();
        root.get_formatter()->column_width(32);
        std::vector<std::unique_ptr<Command>> commands;
        commands.push_back(make_generate(root));
        commands.push_back(make_bench(root));
        for (const auto make : {make_chat, make_batch, make_tokenize, make_detokenize, make_render,
                                make_score, make_inspect, make_devices, make_completion, make_man})
            commands.push_back(make(root));

        std::vector<std::string> words = arguments(argc, argv);
        std::reverse(words.begin(), words.end());
        try {
            root.parse(words);
        } catch (const CLI::CallForHelp&) {
            const CLI::App* app = deepest(root);
            write_stdout(app->help(app == &root ? "" : "llmgen"));
            return int(kDone);
        }
        if (version_wanted) {
            write_stdout(fmt::format("llmgen {}\n", version()));
            return int(kDone);
        }
        refuse_misplaced(root);
        refuse_unknown(root);
        Context context{interrupts, root};
        const CLI::App* chosen = deepest(root);
        for (const auto& command : commands)
            if (command->app() == chosen) return command->run(context);
        fail("no such command");
    });
}

}  // namespace llmgen::app
