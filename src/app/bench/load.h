// Sends requests at an engine the way users do, and keeps what came back.
//
//   closed loop   `concurrency` clients, each sends its next request when its last answer has ended
//   open loop     requests arrive by themselves: Poisson, `rate` a second, whatever is still running. Only
//                 this shows queueing: a closed loop slows its own clients down when the engine is slow.
//
// Traps: an answer that ended early (EOS, a full context) makes a throughput figure meaningless, so the
// number of tokens is checked against what was asked for and a difference is an error; a prompt found in the
// prefix cache makes TTFT meaningless, so prompts differ and cached tokens are an error unless asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "app/bench/metrics.h"
#include "llmgen/llmgen.h"

namespace llmgen::bench {

struct Load {
    int concurrency = 1;
    double rate = 0;  // requests a second; 0 = closed loop
    std::uint64_t seed = 0;
};

/// One answered request.
struct Record {
    RequestTimes times;
    double submit_s = 0;  // until submit() returned: what a stopwatch reads that doesn't wait
    std::vector<int> token_ids;
};

/// Answers one request; `submit_s` is set to the time until the work was handed over. From many threads.
using Serve = std::function<Result(Request, double& submit_s)>;
Serve serve_with(Engine& engine);

/// Arrival times of `n` requests, the first at 0: gaps are exponential with mean 1 / rate.
std::vector<double> poisson_arrivals(int n, double rate, std::uint64_t seed);

/// Runs all requests; records in their order. The first failure is thrown, after all have ended.
std::vector<Record> drive(std::vector<Request> requests, const Load& load, const Serve& serve);

/// Throws Error where the answer isn't exactly what was asked for.
void expect_exact(const Result& result, int prompt_tokens, int new_tokens, bool cache_allowed);

}  // namespace llmgen::bench
