// A whole benchmark: its points, what came back, the floor beside each figure, and what was refused.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/bench/load.h"
#include "app/bench/plan.h"
#include "app/bench/roofline.h"

namespace llmgen::bench {

struct StudySettings {
    int repetitions = 5;
    int warmup = 1;  // repetitions of each point that are run first and not counted
    std::uint64_t seed = 1;
    bool prefix_cache = false;
    bool dummy_weights = false;
    std::vector<std::vector<int>> prompts;  // given ones, taken in turn; empty = made by `prompt_of`
};

struct PointResult {
    Point point;
    std::vector<std::vector<Record>> repetitions;
    PointMetrics metrics;
    Machine before, after;          // the limits, measured right before and after; unknown: the study's count
    Machine limits;                 // those that the floor and the percentages stand beside
    double step_bytes = 0;          // of one decode step, at the middle of the answers
    double floor_s = 0;             // of it; 0 = bandwidth unknown
    double of_floor = 0;            // floor / measured TPOT; 0 = unknown
    double read_bytes_per_s = 0;    // that decoding reached
    double prefill_flop_per_s = 0;  // that the prompt reached, by the model's own count
    double of_matmul_peak = 0;      // 0 = unknown
    double joules_per_token = 0;    // output tokens; 0 = the machine doesn't tell
    std::vector<std::string> refused;  // why a figure can't be; not empty: the figures are not to be quoted
};

struct Claim {
    std::string text;
    bool holds = false;
};

struct Study {
    EngineInfo info;
    Machine machine;
    StudySettings settings;
    std::string command, date;
    double peak_memory_bytes = 0;  // of the process
    std::string energy_source;     // "RAPL", "NVML"; "" where the machine doesn't tell
    std::vector<PointResult> points;
    std::vector<std::string> notes;  // loads that were left out, and why
    std::vector<Claim> claims;       // of the sweep
    bool refused() const;
};

/// The prompt of request `index` in repetition `repetition` (warm-up: negative) of a point.
using PromptOf = std::function<std::vector<int>(const Point&, int repetition, int index)>;

/// As every measured one: greedy, and exactly `new_tokens` long.
Request measured_request(std::vector<int> prompt, int new_tokens);

/// Runs a point: warm-up, then repetitions. Throws Error where an answer isn't what was asked for.
/// `energy_j` reads a joule counter (nullopt: none); `on_step` is told of each repetition.
PointResult run_point(const Point& point,
                      const StudySettings& settings,
                      const Serve& serve,
                      const PromptOf& prompt_of,
                      const std::function<std::optional<double>()>& energy_j,
                      const std::function<void(const std::string&)>& on_step);

/// Metrics, floor and plausibility of what `result.repetitions` holds. Floor and percentages are by the
/// limits around this load, the better of before and after; a figure is only refused by `machine`, the best
/// ever seen.
void judge(PointResult& result, const Model& model, const Machine& machine);

/// "" where the limits before and after a load agree, else one line: a machine that others share has paces,
/// and of a load that met two of them no percentage is exact.
std::string unsteady(const PointResult& result);

/// The lesson's two claims: TTFT grows with the prompt, TPOT hardly. Points with a refused figure are left
/// out: nothing follows from them.
std::vector<Claim> sweep_claims(const std::vector<PointResult>& points);

}  // namespace llmgen::bench
