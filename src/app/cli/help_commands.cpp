// completion and man: both are printed from the option definitions, so that they can't fall behind.
#include <algorithm>

#include "app/cli/command.h"
#include "app/cli/io.h"
#include "base/error.h"
#include "llmgen/llmgen.h"

namespace llmgen::app {
namespace {

struct OptionInfo {
    std::vector<std::string> names;  // "--model", "-q"
    std::string type;                // "" for a flag
    std::string text;
    std::string group;
    std::vector<std::string> choices;
    bool path = false;
};

struct CommandInfo {
    std::string name;  // "" for the root
    std::string description;
    std::string footer;
    std::vector<OptionInfo> options;
    std::string positional;
};

CommandInfo describe(const CLI::App& app, bool root) {
    CommandInfo info{root ? "" : app.get_name(), app.get_description(), app.get_footer(), {}, ""};
    for (const CLI::Option* option : app.get_options()) {
        if (option->get_positional()) info.positional = option->get_name();
        OptionInfo o;
        for (const auto& name : option->get_snames()) o.names.push_back("-" + name);
        for (const auto& name : option->get_lnames()) o.names.push_back("--" + name);
        if (o.names.empty()) continue;
        o.text = option->get_description();
        o.group = option->get_group();
        if (option->get_items_expected_max() > 0) o.type = option->get_type_name();
        o.path = o.type == "FILE" || o.type.starts_with("DIR");
        if (!o.path && o.type.find('|') != std::string::npos)
            for (std::string choice : CLI::detail::split(o.type, '|'))
                o.choices.push_back(choice.substr(0, choice.find('[')));
        info.options.push_back(std::move(o));
    }
    return info;
}

std::vector<CommandInfo> describe_all(const CLI::App& root) {
    std::vector<CommandInfo> all{describe(root, true)};
    for (const CLI::App* app : root.get_subcommands([](const CLI::App*) { return true; }))
        all.push_back(describe(*app, false));
    return all;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
        text.replace(at, from.size(), to);
    return text;
}

std::string joined_names(const CommandInfo& command) {
    std::string out;
    for (const auto& option : command.options)
        for (const auto& name : option.names) out += (out.empty() ? "" : " ") + name;
    return out;
}

std::string command_names(const std::vector<CommandInfo>& all) {
    std::string out;
    for (const auto& command : all)
        if (!command.name.empty()) out += (out.empty() ? "" : " ") + command.name;
    return out;
}

std::string bash_script(const std::vector<CommandInfo>& all) {
    std::string out =
        "# bash completion of llmgen; made by `llmgen completion bash`\n_llmgen() {\n"
        "  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command= i\n"
        "  for ((i = 1; i < COMP_CWORD; i++)); do\n    case ${COMP_WORDS[i]} in\n";
    out += "      " + replaced(command_names(all), " ", "|") +
           ") command=${COMP_WORDS[i]}; break ;;\n      *) ;;\n    esac\n  done\n";
    out += "  case $command:$previous in\n";
    for (const auto& command : all)
        for (const auto& option : command.options) {
            if (option.type.empty()) continue;
            std::string pattern;
            for (const auto& name : option.names)
                pattern += (pattern.empty() ? "" : "|") + command.name + ":" + name;
            if (!option.choices.empty())
                out += fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$word\")); return ;;\n",
                                   pattern, fmt::join(option.choices, " "));
            else if (option.path)
                out += fmt::format("    {}) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", pattern);
            else
                out += fmt::format("    {}) return ;;\n", pattern);
        }
    out += "  esac\n  case $command in\n";
    for (const auto& command : all)
        out += fmt::format("    {}) COMPREPLY=($(compgen -W '{}{}' -- \"$word\")) ;;\n",
                           command.name.empty() ? "''" : command.name, joined_names(command),
                           command.name.empty() ? " " + command_names(all) : "");
    out +=
        "  esac\n  [[ $word == -* || -z $command ]] || COMPREPLY+=($(compgen -f -- \"$word\"))\n}\ncomplete "
        "-o filenames -F _llmgen llmgen\n";
    return out;
}

std::string zsh_script(const std::vector<CommandInfo>& all) {
    const auto quoted = [](std::string text) {
        text = replaced(replaced(replaced(replaced(text, "\\", "\\\\"), "[", "\\["), "]", "\\]"), ":", "\\:");
        return replaced(text, "'", "'\\''");
    };
    const auto arguments = [&](const CommandInfo& command) {
        std::string lines;
        for (const auto& option : command.options)
            for (const auto& name : option.names) {
                std::string action;
                if (!option.type.empty())
                    action = ":value:" + (option.choices.empty()
                                              ? std::string(option.path ? "_files" : " ")
                                              : fmt::format("({})", fmt::join(option.choices, " ")));
                lines += fmt::format("        '*{}[{}]{}' \\\n", name, quoted(option.text), action);
            }
        return lines;
    };
    std::string out =
        "#compdef llmgen\n# zsh completion of llmgen; made by `llmgen completion zsh`\n_llmgen() {\n  local "
        "-a commands\n  commands=(\n";
    for (const auto& command : all)
        if (!command.name.empty())
            out += fmt::format("    '{}:{}'\n", command.name, quoted(command.description));
    out += "  )\n  local command=${words[(r)(" + replaced(command_names(all), " ", "|") +
           ")]}\n  case $command in\n";
    for (const auto& command : all) {
        if (command.name.empty()) continue;
        out += "    " + command.name + ")\n      _arguments -s \\\n";
        out += arguments(command);
        out += "        '*:file:_files' ;;\n";
    }
    out += "    *)\n      _arguments -s \\\n";
    out += arguments(all.front());
    out += "        '1:command:{ _describe command commands }' ;;\n  esac\n}\n_llmgen \"$@\"\n";
    return out;
}

std::string fish_script(const std::vector<CommandInfo>& all) {
    const auto quoted = [](const std::string& text) {
        return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
    };
    const std::string names = command_names(all);
    std::string out = "# fish completion of llmgen; made by `llmgen completion fish`\n";
    for (const auto& command : all) {
        const std::string condition = command.name.empty() ? "not __fish_seen_subcommand_from " + names
                                                           : "__fish_seen_subcommand_from " + command.name;
        if (!command.name.empty())
            out += fmt::format("complete -c llmgen -f -n 'not __fish_seen_subcommand_from {}' -a {} -d {}\n",
                               names, command.name, quoted(command.description));
        for (const auto& option : command.options) {
            std::string line = "complete -c llmgen -n '" + condition + "'";
            for (const auto& name : option.names)
                line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
            if (!option.choices.empty())
                line += fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
            else if (option.path)
                line += " -r -F";
            else if (!option.type.empty())
                line += " -x";
            out += line + " -d " + quoted(option.text) + "\n";
        }
    }
    return out;
}

// troff reads a leading dot and quote as commands, and the backslash everywhere.
std::string troff(const std::string& text) {
    std::string out = replaced(replaced(text, "\\", "\\e"), "-", "\\-");
    if (out.starts_with(".") || out.starts_with("'")) out = "\\&" + out;
    return replaced(replaced(out, "\n.", "\n\\&."), "\n'", "\n\\&'");
}

std::string man_options(const CommandInfo& command) {
    std::string out, group;
    for (const auto& option : command.options) {
        if (option.group != group && option.group != "Options")
            out += ".PP\n.B " + troff(option.group) + "\n";
        group = option.group;
        std::string names;
        for (const auto& name : option.names)
            names += (names.empty() ? "\\fB" : ", \\fB") + troff(name) + "\\fR";
        out += ".TP\n" + names + (option.type.empty() ? "" : " \\fI" + troff(option.type) + "\\fR") + "\n" +
               troff(option.text) + "\n";
    }
    return out;
}

class Completion : public Command {
public:
    explicit Completion(CLI::App& root)
        : Command(add_subcommand(root,
                                 "completion",
                                 "A shell's completion script",
                                 "  source <(llmgen completion bash)\n"
                                 "  llmgen completion zsh > ~/.zfunc/_llmgen\n"
                                 "  llmgen completion fish > ~/.config/fish/completions/llmgen.fish")) {
        app_->add_option(
                "SHELL",
                [this](const CLI::results_t& values) {
                    shell_ = values.back();
                    return true;
                },
                "bash, zsh or fish")
            ->type_name("bash|zsh|fish")
            ->expected(1);
    }
    int run(Context& context) override {
        if (shell_.empty()) fail_usage("which shell? bash, zsh or fish");
        write_stdout(completion_script(context.root, shell_));
        return kDone;
    }

private:
    std::string shell_;
};

class Man : public Command {
public:
    explicit Man(CLI::App& root)
        : Command(add_subcommand(root, "man", "The manual page", "  llmgen man | man -l -")) {}
    int run(Context& context) override {
        write_stdout(man_page(context.root));
        return kDone;
    }
};

}  // namespace

std::string completion_script(const CLI::App& root, const std::string& shell) {
    const auto all = describe_all(root);
    if (shell == "bash") return bash_script(all);
    if (shell == "zsh") return zsh_script(all);
    if (shell == "fish") return fish_script(all);
    fail_usage("no completion for \"{}\"; there is bash, zsh and fish", printable(shell));
}

std::string man_page(const CLI::App& root) {
    const auto all = describe_all(root);
    std::string out = fmt::format(
        ".TH LLMGEN 1 \"\" \"llmgen {}\" \"User Commands\"\n.SH NAME\nllmgen \\- {}\n.SH SYNOPSIS\n",
        version(), troff(all.front().description));
    out += ".B llmgen\n\\fB\\-\\-prompt\\fR \\fITEXT\\fR [\\fIoptions\\fR]\n";
    for (const auto& command : all)
        if (!command.name.empty())
            out += ".br\n.B llmgen " + troff(command.name) + "\n[\\fIoptions\\fR]" +
                   (command.positional.empty() ? "" : " [\\fI" + troff(command.positional) + "\\fR]") + "\n";
    out += ".SH OPTIONS\n" + man_options(all.front());
    out += ".SH NOTES\n.nf\n" + troff(all.front().footer) + "\n.fi\n";
    for (const auto& command : all) {
        if (command.name.empty()) continue;
        std::string title = command.name;
        std::transform(title.begin(), title.end(), title.begin(),
                       [](unsigned char c) { return char(std::toupper(c)); });
        out += ".SH LLMGEN " + title + "\n" + troff(command.description) + ".\n" + man_options(command) +
               ".PP\n.nf\n" + troff(command.footer) + "\n.fi\n";
    }
    return out;
}

std::unique_ptr<Command> make_completion(CLI::App& root) { return std::make_unique<Completion>(root); }
std::unique_ptr<Command> make_man(CLI::App& root) { return std::make_unique<Man>(root); }

}  // namespace llmgen::app
