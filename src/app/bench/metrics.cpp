#include "app/bench/metrics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace llmgen::bench {

double RequestTimes::tpot_s() const {
    if (n_out() < 2) return 0;
    return (token_times_s.back() - token_times_s.front()) / (n_out() - 1);
}

std::vector<double> RequestTimes::itl_s() const {
    std::vector<double> gaps;
    for (std::size_t i = 1; i < token_times_s.size(); ++i)
        gaps.push_back(token_times_s[i] - token_times_s[i - 1]);
    return gaps;
}

double percentile(const std::vector<double>& sorted, double q) {
    CHECK(!sorted.empty());
    const double at = q * double(sorted.size() - 1);
    const std::size_t low = std::min(std::size_t(at), sorted.size() - 1);
    const std::size_t high = std::min(low + 1, sorted.size() - 1);
    return sorted[low] + (at - double(low)) * (sorted[high] - sorted[low]);
}

Summary summarize(std::vector<double> values) {
    Summary s;
    s.n = int(values.size());
    if (values.empty()) return s;
    std::sort(values.begin(), values.end());
    for (const double v : values) s.mean += v;
    s.mean /= s.n;
    double squares = 0;
    for (const double v : values) squares += (v - s.mean) * (v - s.mean);
    if (s.n > 1) s.stdev = std::sqrt(squares / (s.n - 1));
    s.min = values.front();
    s.median = percentile(values, 0.5);
    s.p90 = percentile(values, 0.9);
    s.p99 = percentile(values, 0.99);
    s.max = values.back();
    return s;
}

namespace {

double rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

using Interval = std::pair<double, double>;

// Time covered by at least one interval.
double length_of_union(std::vector<Interval> intervals) {
    std::sort(intervals.begin(), intervals.end());
    double length = 0, reached = 0;
    for (const auto& [begin, end] : intervals) {
        length += std::max(0.0, end - std::max(begin, reached));
        reached = std::max(reached, end);
    }
    return length;
}

struct Samples {
    std::vector<double> ttft, tpot, itl, e2e, queued;

    void add(const RequestTimes& r) {
        ttft.push_back(r.ttft_s());
        e2e.push_back(r.e2e_s());
        queued.push_back(r.queued_s);
        if (r.n_out() > 1) tpot.push_back(r.tpot_s());
        for (const double gap : r.itl_s()) itl.push_back(gap);
    }
    void fill(RunMetrics& m) const {
        m.ttft = summarize(ttft);
        m.tpot = summarize(tpot);
        m.itl = summarize(itl);
        m.e2e = summarize(e2e);
        m.queued = summarize(queued);
    }
};

}  // namespace

RunMetrics measure(const std::vector<RequestTimes>& requests) {
    CHECK(!requests.empty());
    RunMetrics m;
    Samples samples;
    double begin = requests.front().arrival_s, end = 0, in_flight = 0;
    long decoded = 0;
    std::vector<Interval> prefilling, decoding;
    for (const RequestTimes& r : requests) {
        CHECK(r.n_out() > 0);
        samples.add(r);
        begin = std::min(begin, r.arrival_s);
        end = std::max(end, r.arrival_s + r.e2e_s());
        in_flight += r.e2e_s();
        m.prompt_tokens += r.prompt_tokens;
        m.cached_tokens += r.cached_tokens;
        m.output_tokens += r.n_out();
        decoded += r.n_out() - 1;
        prefilling.emplace_back(r.arrival_s + r.queued_s, r.arrival_s + r.ttft_s());
        decoding.emplace_back(r.arrival_s + r.ttft_s(), r.arrival_s + r.e2e_s());
    }
    samples.fill(m);
    m.requests = int(requests.size());
    m.wall_s = end - begin;
    m.output_tokens_per_s = rate(double(m.output_tokens), m.wall_s);
    m.total_tokens_per_s = rate(double(m.output_tokens + m.prompt_tokens), m.wall_s);
    m.requests_per_s = rate(m.requests, m.wall_s);
    m.mean_concurrency = rate(in_flight, m.wall_s);
    m.prefill_tokens_per_s =
        rate(double(m.prompt_tokens - m.cached_tokens), length_of_union(std::move(prefilling)));
    double answering = 0;
    for (const auto& [first, last] : decoding) answering += last - first;
    const double any_answering = length_of_union(std::move(decoding));
    m.mean_decoding = rate(answering, any_answering);
    m.decode_tokens_per_s = rate(double(decoded), any_answering);
    return m;
}

PointMetrics pool(const std::vector<std::vector<RequestTimes>>& repetitions) {
    CHECK(!repetitions.empty());
    PointMetrics point;
    RunMetrics& all = point.pooled;
    Samples samples;
    std::vector<double> ttft, tpot, e2e, output, prefill, decode, total, requests, wall, concurrency,
        decoding;
    for (const auto& repetition : repetitions) {
        for (const RequestTimes& r : repetition) samples.add(r);
        const RunMetrics m = measure(repetition);
        ttft.push_back(m.ttft.median);
        if (m.tpot.n > 0) tpot.push_back(m.tpot.median);
        e2e.push_back(m.e2e.median);
        output.push_back(m.output_tokens_per_s);
        prefill.push_back(m.prefill_tokens_per_s);
        decode.push_back(m.decode_tokens_per_s);
        total.push_back(m.total_tokens_per_s);
        requests.push_back(m.requests_per_s);
        wall.push_back(m.wall_s);
        concurrency.push_back(m.mean_concurrency);
        decoding.push_back(m.mean_decoding);
        all.requests += m.requests;
        all.prompt_tokens += m.prompt_tokens;
        all.output_tokens += m.output_tokens;
        all.cached_tokens += m.cached_tokens;
    }
    samples.fill(all);
    point.ttft_medians = summarize(ttft);
    point.tpot_medians = summarize(tpot);
    point.e2e_medians = summarize(e2e);
    point.output_rates = summarize(output);
    point.prefill_rates = summarize(prefill);
    all.output_tokens_per_s = point.output_rates.mean;
    all.prefill_tokens_per_s = point.prefill_rates.mean;
    all.decode_tokens_per_s = summarize(decode).mean;
    all.total_tokens_per_s = summarize(total).mean;
    all.requests_per_s = summarize(requests).mean;
    all.wall_s = summarize(wall).mean;
    all.mean_concurrency = summarize(concurrency).mean;
    all.mean_decoding = summarize(decoding).mean;
    return point;
}

}  // namespace llmgen::bench
