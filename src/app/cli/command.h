// What a command of the program is: options on a CLI::App, and a run.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "app/cli/interrupt.h"

namespace llmgen::app {

/// Exit codes; others are 128 + signal.
enum Exit : int { kDone = 0, kFailed = 1, kUsage = 2 };

struct Context {
    Interrupts& interrupts;
    CLI::App& root;
};

class Command {
public:
    explicit Command(CLI::App* app) : app_(app) {}
    virtual ~Command() = default;
    Command(const Command&) = delete;
    /// The exit code. Throws UsageError (2) and Error (1).
    virtual int run(Context& context) = 0;
    CLI::App* app() const { return app_; }

protected:
    CLI::App* app_;
};

/// Adds `llmgen NAME` with its description and the example that ends its help.
CLI::App* add_subcommand(CLI::App& root,
                         const std::string& name,
                         const std::string& description,
                         const std::string& example);

std::unique_ptr<Command> make_generate(CLI::App& root);
std::unique_ptr<Command> make_tokenize(CLI::App& root);
std::unique_ptr<Command> make_detokenize(CLI::App& root);
std::unique_ptr<Command> make_render(CLI::App& root);
std::unique_ptr<Command> make_score(CLI::App& root);
std::unique_ptr<Command> make_inspect(CLI::App& root);
std::unique_ptr<Command> make_devices(CLI::App& root);
std::unique_ptr<Command> make_chat(CLI::App& root);
std::unique_ptr<Command> make_batch(CLI::App& root);
std::unique_ptr<Command> make_completion(CLI::App& root);
std::unique_ptr<Command> make_man(CLI::App& root);

/// Runs the program; never throws.
int run_cli(int argc, const char* const* argv);

/// The shell's completion script ("bash", "zsh", "fish") and the man page of a whole command tree.
std::string completion_script(const CLI::App& root, const std::string& shell);
std::string man_page(const CLI::App& root);

}  // namespace llmgen::app
