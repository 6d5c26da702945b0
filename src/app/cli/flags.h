// Option definitions, one line each. Parsing, ranges, help, completion and the man page all come from these.
//
// Every value arrives as text and is checked here, so that a message always names the flag. The type shown in
// the help steers completion: "a|b|c" is a choice, FILE and DIR complete paths. A flag given twice: the last
// counts (repeated() and list() collect).
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/cli/numbers.h"

namespace llmgen::app {

class Flags {
public:
    explicit Flags(CLI::App& app) : app_(app) {}
    /// The heading under which the following options stand in the help.
    Flags& group(const std::string& title);

    CLI::Option* flag(const std::string& names, bool& target, const std::string& text);
    /// The flag clears `target`: "--no-…".
    CLI::Option* flag_off(const std::string& names, bool& target, const std::string& text);
    CLI::Option* text(const std::string& names,
                      std::string& target,
                      const std::string& type,
                      const std::string& text);
    CLI::Option* text(const std::string& names,
                      std::optional<std::string>& target,
                      const std::string& type,
                      const std::string& text);
    CLI::Option* list(const std::string& names,
                      std::vector<std::string>& target,
                      const std::string& type,
                      const std::string& text);
    CLI::Option* choice(const std::string& names,
                        std::string& target,
                        const std::string& choices,
                        const std::string& text);
    CLI::Option* integer(const std::string& names, int& target, int low, int high, const std::string& text);
    CLI::Option* integer(
        const std::string& names, std::optional<int>& target, int low, int high, const std::string& text);
    CLI::Option* real(const std::string& names,
                      std::optional<double>& target,
                      const RealRange& range,
                      const std::string& text);
    CLI::Option* custom(const std::string& names,
                        const std::string& type,
                        const std::string& text,
                        std::function<void(const std::string& name, const std::string& value)> take);
    CLI::Option* repeated(const std::string& names,
                          const std::string& type,
                          const std::string& text,
                          std::function<void(const std::string& name, const std::string& value)> take);

private:
    CLI::App& app_;
    std::string group_ = "Options";
};

}  // namespace llmgen::app
