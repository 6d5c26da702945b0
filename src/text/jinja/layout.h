// How a number or text is laid out: what both of Python's mini languages, "%5d" and "{:>5}", come down to.
#pragma once

#include "text/jinja/eval.h"

namespace llmgen::jinja {

inline constexpr std::int64_t kMaxWidth = 1 << 20;

struct Layout {
    std::string fill = " ";
    char align = '\0';  // < > ^ =
    char sign = '-';
    bool alternate = false;
    char grouping = '\0';  // , or _
    std::int64_t width = 0;
    std::int64_t precision = -1;
    char type = '\0';
};

/// `prefix` (sign, 0x) and `body` into the width.
Text pad(const Layout& l, const std::string& prefix, const Text& body, char default_align);
std::string sign_of(const Layout& l, bool negative);
Text format_float_value(const Layout& l, double d, bool user);

}  // namespace llmgen::jinja
