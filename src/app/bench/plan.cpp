#include "app/bench/plan.h"

#include <algorithm>
#include <climits>
#include <random>

#include "app/cli/io.h"
#include "app/cli/numbers.h"
#include "base/error.h"

namespace llmgen::bench {
namespace {

using app::parse_integer;
using app::parse_real;
using app::printable;

std::vector<std::string_view> split(const std::string& name, std::string_view text) {
    std::vector<std::string_view> parts;
    while (true) {
        const std::size_t comma = text.find(',');
        parts.push_back(text.substr(0, comma));
        if (comma == std::string_view::npos) break;
        text.remove_prefix(comma + 1);
    }
    for (const std::string_view part : parts)
        if (part.empty()) fail_usage("{}: an empty place in the list; give 128,512 or 1..32", name);
    return parts;
}

constexpr const char* kWords[] = {
    "the",   "river",  "runs",   "past",    "an",    "old",     "mill",  "where",  "people", "used",
    "to",    "bring",  "grain",  "in",      "late",  "summer",  "and",   "wait",   "for",    "flour",
    "while", "their",  "horses", "drank",   "from",  "a",       "stone", "basin",  "under",  "lime",
    "trees", "today",  "its",    "wheel",   "turns", "only",    "when",  "school", "comes",  "by",
    "but",   "water",  "still",  "sounds",  "like",  "it",      "did",   "then",   "of",     "with",
    "small", "bridge", "town",   "letters", "about", "weather", "price", "bread",  "made",   "room",
};

std::uint64_t mix(std::uint64_t seed) {  // neighbouring seeds give unlike streams
    seed += 0x9E3779B97F4A7C15u;
    seed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9u;
    seed = (seed ^ (seed >> 27)) * 0x94D049BB133111EBu;
    return seed ^ (seed >> 31);
}

}  // namespace

std::vector<int> parse_list(const std::string& name, std::string_view text) {
    std::vector<int> out;
    for (const std::string_view part : split(name, text)) {
        const std::size_t dots = part.find("..");
        if (dots == std::string_view::npos) {
            out.push_back(int(parse_integer(name, part, 1, INT_MAX)));
            continue;
        }
        const std::int64_t low = parse_integer(name, part.substr(0, dots), 1, INT_MAX);
        const std::int64_t high = parse_integer(name, part.substr(dots + 2), low, INT_MAX);
        for (std::int64_t value = low; value < high; value *= 2) out.push_back(int(value));
        out.push_back(int(high));
    }
    return out;
}

std::vector<double> parse_rates(const std::string& name, std::string_view text) {
    std::vector<double> out;
    for (const std::string_view part : split(name, text))
        out.push_back(parse_real(name, part, {.low = 0, .high = 1e6, .open_low = true}));
    return out;
}

std::vector<Point> grid_points(const Grid& grid) {
    std::vector<Point> points;
    for (const int prompt : grid.prompt_tokens)
        for (const int fresh : grid.new_tokens) {
            Point point{.prompt_tokens = prompt, .new_tokens = fresh};
            for (const int concurrency : grid.concurrency) {
                point.concurrency = concurrency;
                point.requests = grid.requests > 0 ? grid.requests : concurrency;
                points.push_back(point);
            }
            for (const double rate : grid.rates) {
                point.concurrency = 1;
                point.rate = rate;
                point.requests = grid.requests > 0 ? grid.requests : 16;
                points.push_back(point);
            }
        }
    return points;
}

std::vector<Point> report_points(int max_context) {
    constexpr int kNew = 64;
    std::vector<Point> points;
    for (const int prompt : {32, 128, 512, 1500, 4000})
        if (prompt + kNew <= max_context) points.push_back({.prompt_tokens = prompt, .new_tokens = kNew});
    for (const int concurrency : {2, 4, 8, 16, 32})
        if (128 + kNew <= max_context)
            points.push_back({.prompt_tokens = 128,
                              .new_tokens = kNew,
                              .concurrency = concurrency,
                              .requests = concurrency});
    if (points.empty()) fail("a context of {} tokens is too small for the report's loads", max_context);
    return points;
}

std::string sweep_text(int words, std::uint64_t seed) {
    std::mt19937_64 random(mix(seed));
    std::string text;
    for (int i = 0; i < words; ++i) {
        if (i > 0) text += ' ';
        text += kWords[random() % std::size(kWords)];
    }
    return text;
}

std::vector<int> ordinary_ids(const EngineInfo& info, const Tokenizer* tokenizer) {
    std::vector<int> ids;
    for (int id = 0; id < info.vocab_size; ++id) {
        if (std::find(info.eos_token_ids.begin(), info.eos_token_ids.end(), id) != info.eos_token_ids.end())
            continue;
        if (tokenizer && (tokenizer->is_special(id) || tokenizer->token(id).empty())) continue;
        ids.push_back(id);
    }
    if (ids.empty())
        for (int id = 0; id < info.vocab_size; ++id) ids.push_back(id);
    return ids;
}

std::vector<int> random_prompt(const std::vector<int>& ordinary, int n, std::uint64_t seed) {
    CHECK(!ordinary.empty());
    std::mt19937_64 random(mix(seed));
    std::vector<int> ids;
    for (int i = 0; i < n; ++i) ids.push_back(ordinary[random() % ordinary.size()]);
    return ids;
}

}  // namespace llmgen::bench
