// Which loads are run: the grid of flags, the lesson's sweep, and the cross that the report page needs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llmgen/llmgen.h"

namespace llmgen::bench {

/// One load: `requests` prompts of `prompt_tokens` ids, `new_tokens` each.
struct Point {
    int prompt_tokens = 0;
    int new_tokens = 0;
    int concurrency = 1;
    double rate = 0;  // requests a second; 0 = closed loop of `concurrency` clients
    int requests = 1;
    int words = 0;  // of a sweep; else 0

    bool operator==(const Point&) const = default;
};

struct Grid {
    std::vector<int> prompt_tokens, new_tokens, concurrency;
    std::vector<double> rates;
    int requests = 0;  // of each repetition; 0 = as many as there are clients, or 16 at a rate
};

/// "128,512" and "1..32" (doubling: 1, 2, 4, … 32; the end always belongs to it). Throws UsageError.
std::vector<int> parse_list(const std::string& name, std::string_view text);
std::vector<double> parse_rates(const std::string& name, std::string_view text);

/// prompt × new × (concurrency, then rates), the prompt slowest.
std::vector<Point> grid_points(const Grid& grid);
/// Prompt lengths at one client and client counts at one prompt length, as far as `max_context` reaches.
std::vector<Point> report_points(int max_context);

constexpr int kSweepWords[] = {10, 100, 500, 1500, 8000};
constexpr int kSweepNewTokens = 50;

/// Ordinary English of `words` words, another for each `seed`; begins differently, so that no prefix is
/// shared.
std::string sweep_text(int words, std::uint64_t seed);

/// Ids that stand for ordinary text: not special, not an end.
std::vector<int> ordinary_ids(const EngineInfo& info, const Tokenizer* tokenizer);
/// `n` of them, drawn by `seed`.
std::vector<int> random_prompt(const std::vector<int>& ordinary, int n, std::uint64_t seed);

}  // namespace llmgen::bench
