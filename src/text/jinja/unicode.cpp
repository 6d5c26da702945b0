#include "text/jinja/unicode.h"

#include <algorithm>

namespace llmgen::jinja::unicode {
namespace {

bool contains(const Range* table, std::size_t size, char32_t c) {
    const Range* r = std::lower_bound(table, table + size, c,
                                      [](const Range& range, char32_t value) { return range.last < value; });
    return r != table + size && r->first <= c;
}

struct CaseTable {
    const CaseRun* runs;
    std::size_t runs_size;
    const CaseString* strings;
    std::size_t strings_size;
};

CaseTable table(Case to) {
    switch (to) {
        case Case::lower:
            return {kToLower_runs, kToLower_runs_size, kToLower_strings, kToLower_strings_size};
        case Case::upper:
            return {kToUpper_runs, kToUpper_runs_size, kToUpper_strings, kToUpper_strings_size};
        case Case::title:
            return {kToTitle_runs, kToTitle_runs_size, kToTitle_strings, kToTitle_strings_size};
        case Case::fold:
            break;
    }
    return {kCaseFold_runs, kCaseFold_runs_size, kCaseFold_strings, kCaseFold_strings_size};
}

}  // namespace

bool is_printable(char32_t c) { return c < 0x7F ? c >= 0x20 : contains(kPrintable, kPrintable_size, c); }
bool is_space(char32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
    return contains(kSpace, kSpace_size, c);
}
bool is_alpha(char32_t c) { return contains(kAlpha, kAlpha_size, c); }
bool is_decimal(char32_t c) { return contains(kDecimal, kDecimal_size, c); }
bool is_digit(char32_t c) { return contains(kDigit, kDigit_size, c); }
bool is_numeric(char32_t c) { return contains(kNumeric, kNumeric_size, c); }
bool is_lower(char32_t c) { return contains(kLower, kLower_size, c); }
bool is_upper(char32_t c) { return contains(kUpper, kUpper_size, c); }
bool is_title(char32_t c) { return contains(kTitle, kTitle_size, c); }
bool is_id_start(char32_t c) { return contains(kIdStart, kIdStart_size, c); }
bool is_id_continue(char32_t c) { return contains(kIdContinue, kIdContinue_size, c); }
bool is_case_ignorable(char32_t c) { return contains(kCaseIgnorable, kCaseIgnorable_size, c); }
bool is_cased(char32_t c) { return contains(kCased, kCased_size, c); }

bool is_line_break(char32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

std::u32string map_case(char32_t c, Case to) {
    if (c < 0x80) {  // the common case, and the same for all four
        const bool to_lower = to == Case::lower || to == Case::fold;
        if (to_lower && c >= 'A' && c <= 'Z') return {c + 32};
        if (!to_lower && c >= 'a' && c <= 'z') return {c - 32};
        return {c};
    }
    const CaseTable t = table(to);
    const CaseString* s =
        std::lower_bound(t.strings, t.strings + t.strings_size, c,
                         [](const CaseString& x, char32_t value) { return x.from < value; });
    if (s != t.strings + t.strings_size && s->from == c) {
        std::u32string out;
        for (const char32_t x : s->to)
            if (x) out += x;
        return out;
    }
    const CaseRun* r = std::lower_bound(t.runs, t.runs + t.runs_size, c,
                                        [](const CaseRun& x, char32_t value) { return x.last < value; });
    if (r != t.runs + t.runs_size && r->first <= c && (c - r->first) % char32_t(r->stride) == 0)
        return {char32_t(std::int64_t(c) + r->distance)};
    return {c};
}

int decimal_value(char32_t c) {
    const Range* r = std::lower_bound(kDecimal, kDecimal + kDecimal_size, c,
                                      [](const Range& range, char32_t value) { return range.last < value; });
    return r != kDecimal + kDecimal_size && r->first <= c ? int((c - r->first) % 10) : -1;
}

}  // namespace llmgen::jinja::unicode
