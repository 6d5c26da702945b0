#include "app/bench/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "base/error.h"

namespace llmgen::bench {
namespace {

double joules_now(const std::function<std::optional<double>()>& energy_j) {
    constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
    return energy_j ? energy_j().value_or(kUnknown) : kUnknown;
}

Machine limits_around(const PointResult& result, const Machine& machine) {
    Machine limits = best_of(result.before, result.after);
    if (limits.read_bytes_per_s <= 0) limits.read_bytes_per_s = machine.read_bytes_per_s;
    if (limits.matmul_flop_per_s <= 0) limits.matmul_flop_per_s = machine.matmul_flop_per_s;
    return limits;
}

}  // namespace

bool Study::refused() const {
    return std::any_of(points.begin(), points.end(), [](const PointResult& p) { return !p.refused.empty(); });
}

Request measured_request(std::vector<int> prompt, int new_tokens) {
    Request request;
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.max_new_tokens = new_tokens;
    request.ignore_eos = true;
    return request;
}

PointResult run_point(const Point& point,
                      const StudySettings& settings,
                      const Serve& serve,
                      const PromptOf& prompt_of,
                      const std::function<std::optional<double>()>& energy_j,
                      const std::function<void(const std::string&)>& on_step) {
    PointResult out;
    out.point = point;
    double joules = 0;
    long tokens = 0;
    for (int repetition = -settings.warmup; repetition < settings.repetitions; ++repetition) {
        if (on_step)
            on_step(repetition < 0 ? "warm-up"
                                   : fmt::format("run {} of {}", repetition + 1, settings.repetitions));
        std::vector<Request> requests;
        for (int i = 0; i < point.requests; ++i) {
            requests.push_back(measured_request(prompt_of(point, repetition, i), point.new_tokens));
        }
        const Serve checked = [&](Request request, double& submit_s) {
            Result result = serve(std::move(request), submit_s);
            if (result.finish_reason != FinishReason::error)
                expect_exact(result, point.prompt_tokens, point.new_tokens, settings.prefix_cache);
            return result;
        };
        const Load load{.concurrency = point.concurrency,
                        .rate = point.rate,
                        .seed = settings.seed + std::uint64_t(repetition + settings.warmup)};
        const double before = joules_now(energy_j);
        std::vector<Record> records = drive(std::move(requests), load, checked);
        const double after = joules_now(energy_j);
        if (repetition < 0) continue;
        if (after >= before) {  // false where the counter doesn't tell
            joules += after - before;
            tokens += long(point.requests) * point.new_tokens;
        }
        out.repetitions.push_back(std::move(records));
    }
    if (tokens > 0) out.joules_per_token = joules / double(tokens);
    return out;
}

void judge(PointResult& result, const Model& model, const Machine& machine) {
    result.refused.clear();
    std::vector<std::vector<RequestTimes>> times;
    for (const auto& repetition : result.repetitions) {
        times.emplace_back();
        for (const Record& record : repetition) times.back().push_back(record.times);
    }
    result.metrics = pool(times);
    const RunMetrics& m = result.metrics.pooled;
    const Point& p = result.point;
    // What a step really had to read for: requests whose prompts take long are seldom all answering at once.
    const bool alone = p.rate == 0 && std::min(p.concurrency, p.requests) == 1;
    const double batch = std::max(1.0, m.mean_decoding);
    const double context = p.prompt_tokens + 0.5 * p.new_tokens;
    result.step_bytes = step_bytes(model, batch, context);
    result.limits = limits_around(result, machine);
    result.floor_s = decode_floor_s(model, result.limits, batch, context);
    if (m.tpot.n > 0 && result.floor_s > m.tpot.median) {  // the machine had a better pace in between
        result.limits.read_bytes_per_s = machine.read_bytes_per_s;
        result.floor_s = decode_floor_s(model, machine, batch, context);
    }
    if (m.tpot.n > 0 && m.tpot.median > 0) {
        result.of_floor = result.floor_s / m.tpot.median;
        result.read_bytes_per_s = result.step_bytes / m.tpot.median;
        // The fastest request counts: a median could hide one impossible answer among many.
        const std::string why = implausible_decode(model, machine, batch, context, m.tpot.min);
        if (!why.empty()) result.refused.push_back(why);
    }
    if (alone && m.cached_tokens == 0) {  // else other requests' work lies within the TTFT
        const double seconds = m.ttft.median - m.queued.median;
        if (seconds > 0) result.prefill_flop_per_s = prefill_flop(model, p.prompt_tokens) / seconds;
        if (result.prefill_flop_per_s > result.limits.matmul_flop_per_s)
            result.limits.matmul_flop_per_s = machine.matmul_flop_per_s;
        if (result.limits.matmul_flop_per_s > 0)
            result.of_matmul_peak = result.prefill_flop_per_s / result.limits.matmul_flop_per_s;
        const std::string why =
            implausible_prefill(model, machine, p.prompt_tokens, m.ttft.min - m.queued.min);
        if (!why.empty()) result.refused.push_back(why);
    }
}

std::string unsteady(const PointResult& result) {
    constexpr double kSteady = 1.1;
    const Machine &before = result.before, &after = result.after;
    std::string changes;
    const auto note = [&](double was, double is, double unit, const char* what) {
        if (was <= 0 || is <= 0 || std::max(was / is, is / was) <= kSteady) return;
        changes += fmt::format("{}from {:.3g} to {:.3g} {}", changes.empty() ? "" : ", ", was / unit,
                               is / unit, what);
    };
    note(before.read_bytes_per_s, after.read_bytes_per_s, 1e9, "GB/s read");
    note(before.matmul_flop_per_s, after.matmul_flop_per_s, 1e12, "TFLOP/s matmul");
    return changes.empty() ? ""
                           : "the machine changed its pace meanwhile, " + changes +
                                 "; floor and percentages are by the better";
}

std::vector<Claim> sweep_claims(const std::vector<PointResult>& all) {
    std::vector<PointResult> points;
    std::copy_if(all.begin(), all.end(), std::back_inserter(points),
                 [](const PointResult& p) { return p.refused.empty(); });
    if (points.size() < 2) return {};
    const PointResult &first = points.front(), &last = points.back();
    const double longer = double(last.point.prompt_tokens) / first.point.prompt_tokens;
    const double ttft = last.metrics.pooled.ttft.median / first.metrics.pooled.ttft.median;
    const double tpot = last.metrics.pooled.tpot.median / first.metrics.pooled.tpot.median;
    bool rises = true;
    for (std::size_t i = 1; i < points.size(); ++i)
        // Short prompts cost one pass over the weights whatever their length: a tie within the noise is no
        // fall.
        rises =
            rises && points[i].metrics.pooled.ttft.median > 0.9 * points[i - 1].metrics.pooled.ttft.median;
    Claim grows, hardly;
    grows.holds = rises && ttft > 2;
    grows.text =
        fmt::format("TTFT grows with the prompt: {:.1f} times from {} to {} tokens ({:.0f} times as many)",
                    ttft, first.point.prompt_tokens, last.point.prompt_tokens, longer);
    // A small model with a long context has more keys and values to read than weights: that much is no fault.
    const double must = first.step_bytes > 0 ? last.step_bytes / first.step_bytes : 1;
    hardly.holds = tpot < std::max(2.0, 1.5 * must) && tpot - 1 < 0.1 * (ttft - 1);
    hardly.text = fmt::format("TPOT hardly: {:.2f} times", tpot);
    if (first.step_bytes > 0)
        hardly.text += fmt::format(" (the keys and values to read alone ask for {:.2f} times)", must);
    return {grows, hardly};
}

}  // namespace llmgen::bench
