#include "app/cli/flags.h"

#include <algorithm>

#include "app/cli/io.h"
#include "base/error.h"
#include "base/utf8.h"

namespace llmgen::app {
namespace {

// The name to show in messages: the last of "-q,--quiet", which is the long one.
std::string shown_name(const std::string& names) { return names.substr(names.find_last_of(',') + 1); }

// An empty name is a variable of the shell that isn't set. It would mean the default model, or no trace.
void refuse_no_name(const std::string& type, const std::string& flag, const std::string& value) {
    const bool is_path = type.starts_with("FILE") || type.starts_with("DIR");
    if (is_path && value.empty()) fail_usage("{}: the name is empty", flag);
}

auto taker_of_text(auto& target, const std::string& type) {
    return [&target, type](const std::string& name, const std::string& value) {
        refuse_no_name(type, name, value);
        target = value;
    };
}

std::vector<std::string> split_choices(const std::string& choices) {
    return CLI::detail::split(choices, '|');
}

}  // namespace

Flags& Flags::group(const std::string& title) {
    group_ = title;
    return *this;
}

CLI::Option* Flags::flag(const std::string& names, bool& target, const std::string& text) {
    return app_
        .add_flag_callback(
            names, [&target] { target = true; }, text)
        ->group(group_);
}

CLI::Option* Flags::flag_off(const std::string& names, bool& target, const std::string& text) {
    return app_
        .add_flag_callback(
            names, [&target] { target = false; }, text)
        ->group(group_);
}

CLI::Option* Flags::custom(const std::string& names,
                           const std::string& type,
                           const std::string& text,
                           std::function<void(const std::string& name, const std::string& value)> take) {
    const std::string name = shown_name(names);
    return app_
        .add_option(
            names,
            [name, take = std::move(take)](const CLI::results_t& values) {
                take(name, values.back());
                return true;
            },
            text)
        ->type_name(type)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
        ->group(group_);
}

CLI::Option* Flags::text(const std::string& names,
                         std::string& target,
                         const std::string& type,
                         const std::string& text) {
    return custom(names, type, text, taker_of_text(target, type));
}

CLI::Option* Flags::text(const std::string& names,
                         std::optional<std::string>& target,
                         const std::string& type,
                         const std::string& text) {
    return custom(names, type, text, taker_of_text(target, type));
}

CLI::Option* Flags::repeated(const std::string& names,
                             const std::string& type,
                             const std::string& text,
                             std::function<void(const std::string& name, const std::string& value)> take) {
    const std::string name = shown_name(names);
    return app_
        .add_option(
            names,
            [name, take = std::move(take)](const CLI::results_t& values) {
                for (const std::string& value : values) take(name, value);
                return true;
            },
            text)
        ->type_name(type)
        ->expected(1, CLI::detail::expected_max_vector_size)
        ->allow_extra_args(false)  // one value for each time the flag is given
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->group(group_);
}

CLI::Option* Flags::list(const std::string& names,
                         std::vector<std::string>& target,
                         const std::string& type,
                         const std::string& text) {
    return repeated(names, type, text,
                    [&target](const std::string&, const std::string& value) { target.push_back(value); });
}

CLI::Option* Flags::choice(const std::string& names,
                           std::string& target,
                           const std::string& choices,
                           const std::string& text) {
    return custom(names, choices, text,
                  [&target, choices](const std::string& name, const std::string& value) {
                      const auto known = split_choices(choices);
                      if (std::find(known.begin(), known.end(), value) == known.end())
                          fail_usage("{}: \"{}\" is not one of {}", name, printable(value), choices);
                      target = value;
                  });
}

CLI::Option* Flags::integer(
    const std::string& names, int& target, int low, int high, const std::string& text) {
    return custom(names, "N", text, [&target, low, high](const std::string& name, const std::string& value) {
        target = int(parse_integer(name, value, low, high));
    });
}

CLI::Option* Flags::integer(
    const std::string& names, std::optional<int>& target, int low, int high, const std::string& text) {
    return custom(names, "N", text, [&target, low, high](const std::string& name, const std::string& value) {
        target = int(parse_integer(name, value, low, high));
    });
}

CLI::Option* Flags::real(const std::string& names,
                         std::optional<double>& target,
                         const RealRange& range,
                         const std::string& text) {
    return custom(names, "X", text, [&target, range](const std::string& name, const std::string& value) {
        target = parse_real(name, value, range);
    });
}

}  // namespace llmgen::app
