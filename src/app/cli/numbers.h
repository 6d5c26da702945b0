// Values of flags: strict, with the flag's name in every message. "5x", "", "nan" and what is out of range
// throw UsageError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmgen/llmgen.h"

namespace llmgen::app {

std::int64_t parse_integer(const std::string& name,
                           std::string_view text,
                           std::int64_t low,
                           std::int64_t high);
std::uint64_t parse_unsigned(const std::string& name, std::string_view text);

/// An interval of the real numbers; `open_low` leaves `low` itself out.
struct RealRange {
    double low = -std::numeric_limits<double>::max();
    double high = std::numeric_limits<double>::max();
    bool open_low = false;
};
inline constexpr RealRange kTemperatureRange{.low = 0};
inline constexpr RealRange kShareRange{.low = 0, .high = 1};  // top-p, min-p
inline constexpr RealRange kPenaltyRange{.low = -Sampling::kLargestPenalty,
                                         .high = Sampling::kLargestPenalty};
inline constexpr RealRange kRepetitionRange{.low = 1 / Sampling::kLargestPenalty,
                                            .high = Sampling::kLargestPenalty};
double parse_real(const std::string& name, std::string_view text, const RealRange& range);

/// "1048576", "512K", "512M", "4GiB", "1.5G": powers of 1024, whatever the spelling.
std::size_t parse_size(const std::string& name, std::string_view text);

/// "1,2,3", "1 2 3", "[1, 2, 3]", over lines too.
std::vector<int> parse_ids(const std::string& name, std::string_view text);

/// "ID:BIAS"
std::pair<int, double> parse_bias(const std::string& name, std::string_view text);

/// Backslash escapes of --stop: \n \r \t \0 \\ \xHH (one byte) \uHHHH (two of them for what is beyond
/// U+FFFF). Any other backslash stays as it is. Half a pair, or a byte that begins no character, gives no
/// valid UTF-8.
std::string unescape(std::string_view text);

/// Number of edits (insert, delete, replace, swap of neighbours) between two words, for hints.
std::size_t edit_distance(std::string_view a, std::string_view b);

std::string human_bytes(double bytes);  // "1.5 GiB"

}  // namespace llmgen::app
