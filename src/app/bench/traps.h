// One run, reported three ways: right, and with the two mistakes that most published figures have.
#pragma once

#include <string>
#include <vector>

#include "app/bench/study.h"

namespace llmgen::bench {

struct TrapRow {
    std::string name;  // "right", "prompt counted as output", "stopwatch without waiting"
    std::string how;   // the arithmetic, with this run's own figures
    double tokens_per_s = 0;
    bool right = false;
    std::string verdict;  // what is wrong, and what gives it away
};

/// From the first request of the point's last repetition.
std::vector<TrapRow> trap_rows(const PointResult& result, const Model& model, const Machine& machine);
std::string trap_table(const std::vector<TrapRow>& rows);

}  // namespace llmgen::bench
