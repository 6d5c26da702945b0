// From token times to the figures that people quote. Pure arithmetic, so that each can be checked by hand.
//
//   arrival ── queued ──► first computed step ── prefill ──► t[0] ──► t[1] ──► … ──► t[n-1]
//   TTFT = t[0]                             the queue included, first token on the host
//   TPOT = (t[n-1] - t[0]) / (n - 1)        time per output token after the first
//   ITL  = t[i] - t[i-1]                    one value a gap; their mean is the TPOT, their tail is what jerks
//   E2E  = t[n-1]
//   output tok/s of a run = all sampled tokens / (last token of the run - first arrival); the prompt never
//   counts as output. Decode pace of one request = (n - 1) / (t[n-1] - t[0]).
//
// Traps: tokens are counted by sampled ids, never by chunks of text or by words; a request of one token has
// no TPOT (it is left out, not counted as 0).
#pragma once

#include <string>
#include <vector>

namespace llmgen::bench {

/// Of one request, seconds.
struct RequestTimes {
    double arrival_s = 0;               // since the run began
    double queued_s = 0;                // arrival to the first computed step
    std::vector<double> token_times_s;  // since arrival, on the host
    int prompt_tokens = 0;
    int cached_tokens = 0;

    int n_out() const { return int(token_times_s.size()); }
    double ttft_s() const { return token_times_s.front(); }
    double e2e_s() const { return token_times_s.back(); }
    double tpot_s() const;              // 0 where n_out() < 2
    std::vector<double> itl_s() const;  // n_out() - 1 values
};

/// A distribution in few figures.
struct Summary {
    int n = 0;
    double mean = 0, stdev = 0, min = 0, median = 0, p90 = 0, p99 = 0, max = 0;
};

/// Linear between the two nearest values, as numpy's default: percentile({1, 2, 3, 4}, 0.5) = 2.5.
/// `sorted` must not be empty; `q` in [0, 1].
double percentile(const std::vector<double>& sorted, double q);
/// The deviation is that of a sample (n - 1); 0 where n < 2. An empty list gives n = 0.
Summary summarize(std::vector<double> values);

/// What one repetition of one point gave.
struct RunMetrics {
    Summary ttft, tpot, itl, e2e, queued;  // seconds, over the run's requests (ITL: over all gaps)
    double wall_s = 0;                     // first arrival to last token
    int requests = 0;
    long prompt_tokens = 0, output_tokens = 0, cached_tokens = 0;
    double output_tokens_per_s = 0;  // output_tokens / wall
    double total_tokens_per_s = 0;   // (prompt + output) / wall
    double requests_per_s = 0;
    double prefill_tokens_per_s = 0;  // (prompt - cached) tokens / time in which any request prefills
    double decode_tokens_per_s = 0;   // tokens after each request's first / time in which any request decodes
    double mean_concurrency = 0;      // requests in flight, averaged over the wall time
    double mean_decoding = 0;  // requests between their first and last token, averaged over the time with any
};

/// `requests` must not be empty, each with one token at least.
RunMetrics measure(const std::vector<RequestTimes>& requests);

/// Every figure of several repetitions: summaries pooled over all requests, and the spread of the
/// repetitions' own figures, which is what a claim must beat.
struct PointMetrics {
    RunMetrics pooled;  // rates: means over the repetitions
    Summary ttft_medians, tpot_medians, output_rates, e2e_medians, prefill_rates;  // one value a repetition
};
PointMetrics pool(const std::vector<std::vector<RequestTimes>>& repetitions);

}  // namespace llmgen::bench
