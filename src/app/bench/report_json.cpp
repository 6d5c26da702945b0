#include <fmt/format.h>

#include "app/bench/report_text.h"
#include "app/cli/json.h"

namespace llmgen::bench {
namespace {

using Json = nlohmann::ordered_json;

Json summary_json(const Summary& s) {
    if (s.n == 0) return nullptr;
    return {{"n", s.n},           {"mean", s.mean}, {"stdev", s.stdev}, {"min", s.min},
            {"median", s.median}, {"p90", s.p90},   {"p99", s.p99},     {"max", s.max}};
}

// Unknown is null, never 0: a reader must not take it for a measurement.
Json known(double value) { return value > 0 ? Json(value) : Json(nullptr); }

Json point_json(const Point& p) {
    Json out = {{"prompt_tokens", p.prompt_tokens}, {"new_tokens", p.new_tokens}, {"requests", p.requests}};
    if (p.rate > 0)
        out["rate_per_s"] = p.rate;
    else
        out["concurrency"] = p.concurrency;
    if (p.words > 0) out["words"] = p.words;
    return out;
}

Json metrics_json(const RunMetrics& m) {
    return {{"ttft_s", summary_json(m.ttft)},
            {"tpot_s", summary_json(m.tpot)},
            {"itl_s", summary_json(m.itl)},
            {"e2e_s", summary_json(m.e2e)},
            {"queued_s", summary_json(m.queued)},
            {"wall_s", m.wall_s},
            {"output_tokens_per_s", m.output_tokens_per_s},
            {"total_tokens_per_s", m.total_tokens_per_s},
            {"requests_per_s", m.requests_per_s},
            {"prefill_tokens_per_s", m.prefill_tokens_per_s},
            {"decode_tokens_per_s", m.decode_tokens_per_s},
            {"mean_concurrency", m.mean_concurrency},
            {"mean_decoding", m.mean_decoding},
            {"requests", m.requests},
            {"prompt_tokens", m.prompt_tokens},
            {"output_tokens", m.output_tokens},
            {"cached_tokens", m.cached_tokens}};
}

Json record_json(const Record& r, bool with_ids) {
    Json out = {{"arrival_s", r.times.arrival_s},
                {"queued_s", r.times.queued_s},
                {"prompt_tokens", r.times.prompt_tokens},
                {"cached_tokens", r.times.cached_tokens},
                {"output_tokens", r.times.n_out()},
                {"ttft_s", r.times.ttft_s()},
                {"tpot_s", r.times.tpot_s()},
                {"e2e_s", r.times.e2e_s()},
                {"token_times_s", r.times.token_times_s}};
    if (with_ids) out["token_ids"] = r.token_ids;
    return out;
}

Json records_json(const std::vector<Record>& records, bool with_ids) {
    Json out = Json::array();
    for (const Record& record : records) out.push_back(record_json(record, with_ids));
    return out;
}

Json run_json(const std::vector<Record>& records) {
    std::vector<RequestTimes> times;
    for (const Record& record : records) times.push_back(record.times);
    return metrics_json(measure(times));
}

Json about_json(const Study& study) {
    const EngineInfo& i = study.info;
    const Machine& m = study.machine;
    const StudySettings& s = study.settings;
    return {
        {"llmgen", version()},
        {"date", study.date},
        {"command", study.command},
        {"model",
         {{"path", i.model_path},
          {"architecture", i.architecture},
          {"dtype", i.dtype},
          {"checkpoint_sha256", i.checkpoint_sha256},
          {"parameters", i.parameters},
          {"weight_bytes", i.weight_bytes},
          {"kv_bytes_per_token", i.kv_bytes_per_token},
          {"dummy_weights", s.dummy_weights}}},
        {"device",
         {{"name", i.device},
          {"description", m.description},
          {"compute", i.compute},
          {"threads", i.threads},
          {"read_bytes_per_s", known(m.read_bytes_per_s)},
          {"matmul_flop_per_s", known(m.matmul_flop_per_s)},
          {"busy", m.busy}}},
        {"load",
         {{"seconds", i.load_seconds},
          {"bytes_per_s",
           i.load_seconds > 0 && !s.dummy_weights ? Json(double(i.weight_bytes) / i.load_seconds) : Json()}}},
        {"peak_memory_bytes", known(study.peak_memory_bytes)},
        {"energy", study.energy_source.empty() ? Json() : Json(study.energy_source)},
        {"settings",
         {{"repetitions", s.repetitions},
          {"warmup", s.warmup},
          {"seed", s.seed},
          {"sampling", "greedy"},
          {"ignore_eos", true},
          {"prefix_cache", s.prefix_cache},
          {"clock", "steady clock of the host, read when a token is on the host"}}}};
}

}  // namespace

nlohmann::ordered_json json_report(const Study& study, bool with_ids) {
    Json out = about_json(study);
    Json points = Json::array();
    for (const PointResult& r : study.points) {
        Json point = point_json(r.point);
        if (!r.refused.empty()) {
            point["refused"] = r.refused;
        } else {
            point["metrics"] = metrics_json(r.metrics.pooled);
            point["spread"] = {{"ttft_s", summary_json(r.metrics.ttft_medians)},
                               {"tpot_s", summary_json(r.metrics.tpot_medians)},
                               {"e2e_s", summary_json(r.metrics.e2e_medians)},
                               {"output_tokens_per_s", summary_json(r.metrics.output_rates)},
                               {"prefill_tokens_per_s", summary_json(r.metrics.prefill_rates)}};
            point["floor"] = {{"step_bytes", r.step_bytes},
                              {"limit_read_bytes_per_s", known(r.limits.read_bytes_per_s)},
                              {"limit_matmul_flop_per_s", known(r.limits.matmul_flop_per_s)},
                              {"unsteady", unsteady(r).empty() ? Json() : Json(unsteady(r))},
                              {"seconds", known(r.floor_s)},
                              {"reached", known(r.of_floor)},
                              {"read_bytes_per_s", known(r.read_bytes_per_s)},
                              {"prefill_flop_per_s", known(r.prefill_flop_per_s)},
                              {"of_matmul_peak", known(r.of_matmul_peak)}};
            point["joules_per_token"] = known(r.joules_per_token);
        }
        Json repetitions = Json::array();
        for (const auto& records : r.repetitions)
            repetitions.push_back({{"requests", records_json(records, with_ids)}});
        point["repetitions"] = std::move(repetitions);
        points.push_back(std::move(point));
    }
    out["points"] = std::move(points);
    out["notes"] = study.notes;
    Json claims = Json::array();
    for (const Claim& claim : study.claims) claims.push_back({{"text", claim.text}, {"holds", claim.holds}});
    out["claims"] = std::move(claims);
    return out;
}

std::string jsonl_report(const Study& study, bool with_ids) {
    const Json about = about_json(study);
    std::string out;
    for (const PointResult& r : study.points)
        for (std::size_t i = 0; i < r.repetitions.size(); ++i) {
            Json line = about;
            line["point"] = point_json(r.point);
            line["repetition"] = i + 1;
            if (r.refused.empty())
                line["metrics"] = run_json(r.repetitions[i]);
            else
                line["refused"] = r.refused;
            line["requests"] = records_json(r.repetitions[i], with_ids);
            out += app::dump(line) + "\n";
        }
    return out;
}

}  // namespace llmgen::bench
