// Errors of the user's data and of the device, and CHECK for our own mistakes.
//
//   fail(...)        the user's file, prompt or flag: one line with what, where and what to do. Exit code 1.
//   fail_usage(...)  a flag or parameter that can't be right: exit code 2.
//   CHECK(cond)      our mistake: always on, prints the condition, the values and the place, then aborts.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

#include "llmgen/error.h"

namespace llmgen {

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
    throw Error(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void fail_usage(fmt::format_string<Args...> format, Args&&... args) {
    throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& detail);

}  // namespace llmgen

/// CHECK(cond) or CHECK(cond, "format {}", value): a broken invariant of ours. Never for input.
#define CHECK(condition, ...)                                                  \
    do {                                                                       \
        if (!(condition)) [[unlikely]]                                         \
            ::llmgen::check_failed(#condition, __FILE__, __LINE__,             \
                                   ::llmgen::detail::check_text(__VA_ARGS__)); \
    } while (false)

namespace llmgen::detail {
inline std::string check_text() { return {}; }
template <typename... Args>
std::string check_text(fmt::format_string<Args...> format, Args&&... args) {
    return fmt::format(format, std::forward<Args>(args)...);
}
}  // namespace llmgen::detail
