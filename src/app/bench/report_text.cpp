#include "app/bench/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "app/cli/numbers.h"
#include "base/utf8.h"

namespace llmgen::bench {
namespace {

constexpr const char* kRefused = "refused";

struct Column {
    std::string head, csv_name;
    bool timed = true;  // false: describes the load, stands even where figures are refused
    std::function<std::string(const PointResult&)> text;   // for the eyes
    std::function<std::string(const PointResult&)> plain;  // for CSV: base units, no rounding to speak of
};

std::string ms(double seconds) { return seconds > 0 ? fmt::format("{:.2f}", 1e3 * seconds) : "-"; }
std::string with_spread(const Summary& s, double scale) {
    if (s.n == 0) return "-";
    const int digits = scale * s.mean >= 1000 ? 0 : scale * s.mean >= 100 ? 1 : 2;
    if (s.n < 2) return fmt::format("{:.{}f}", scale * s.mean, digits);  // one repetition has no spread
    return fmt::format("{:.{}f} ±{:.{}f}", scale * s.mean, digits, scale * s.stdev, digits);
}
std::string percent(double part) { return part > 0 ? fmt::format("{:.0f} %", 100 * part) : "-"; }
std::string real(double value) { return value == 0 ? "" : fmt::format("{:.6g}", value); }

std::vector<Column> columns() {
    using R = const PointResult&;
    const auto number = [](auto get) { return [get](R r) { return fmt::format("{}", get(r.point)); }; };
    const auto pp = number([](const Point& p) { return p.prompt_tokens; });
    const auto tg = number([](const Point& p) { return p.new_tokens; });
    const auto n = number([](const Point& p) { return p.requests; });
    std::vector<Column> out = {
        {"PP", "prompt_tokens", false, pp, pp},
        {"TG", "new_tokens", false, tg, tg},
        {"B", "load", false, [](R r) { return load_name(r.point); }, [](R r) { return load_name(r.point); }},
        {"req", "requests", false, n, n},
    };
    const auto add = [&](const char* head, const char* name, auto text, auto value) {
        out.push_back({head, name, true, text, [value](R r) { return real(value(r)); }});
    };
    add(
        "TTFT ms", "ttft_s", [](R r) { return with_spread(r.metrics.ttft_medians, 1e3); },
        [](R r) { return r.metrics.pooled.ttft.median; });
    add(
        "S_PP tok/s", "prefill_tokens_per_s", [](R r) { return with_spread(r.metrics.prefill_rates, 1); },
        [](R r) { return r.metrics.pooled.prefill_tokens_per_s; });
    add(
        "TFLOP/s", "prefill_flop_per_s",
        [](R r) {
            return r.prefill_flop_per_s > 0 ? fmt::format("{:.3f}", r.prefill_flop_per_s / 1e12) : "-";
        },
        [](R r) { return r.prefill_flop_per_s; });
    add(
        "of peak", "of_matmul_peak", [](R r) { return percent(r.of_matmul_peak); },
        [](R r) { return r.of_matmul_peak; });
    add(
        "TPOT ms", "tpot_s", [](R r) { return with_spread(r.metrics.tpot_medians, 1e3); },
        [](R r) { return r.metrics.pooled.tpot.median; });
    add(
        "floor ms", "floor_s", [](R r) { return ms(r.floor_s); }, [](R r) { return r.floor_s; });
    add(
        "of floor", "of_floor", [](R r) { return percent(r.of_floor); }, [](R r) { return r.of_floor; });
    add(
        "S_TG tok/s", "decode_tokens_per_s",
        [](R r) { return fmt::format("{:.1f}", r.metrics.pooled.decode_tokens_per_s); },
        [](R r) { return r.metrics.pooled.decode_tokens_per_s; });
    add(
        "out tok/s", "output_tokens_per_s", [](R r) { return with_spread(r.metrics.output_rates, 1); },
        [](R r) { return r.metrics.pooled.output_tokens_per_s; });
    add(
        "all tok/s", "total_tokens_per_s",
        [](R r) { return fmt::format("{:.1f}", r.metrics.pooled.total_tokens_per_s); },
        [](R r) { return r.metrics.pooled.total_tokens_per_s; });
    add(
        "req/s", "requests_per_s", [](R r) { return fmt::format("{:.2f}", r.metrics.pooled.requests_per_s); },
        [](R r) { return r.metrics.pooled.requests_per_s; });
    return out;
}

using Cells = std::vector<std::vector<std::string>>;  // the first row is the head

Cells overview_cells(const Study& study) {
    const std::vector<Column> all = columns();
    const bool sweep = !study.points.empty() && study.points.front().point.words > 0;
    Cells cells(1);
    if (sweep) cells[0].push_back("words");
    for (const Column& column : all) cells[0].push_back(column.head);
    for (const PointResult& r : study.points) {
        cells.emplace_back();
        if (sweep) cells.back().push_back(fmt::format("{}", r.point.words));
        for (const Column& column : all)
            cells.back().push_back(column.timed && !r.refused.empty() ? kRefused : column.text(r));
    }
    return cells;
}

Cells latency_cells(const Study& study) {
    Cells cells = {{"PP", "TG", "B", "", "mean", "median", "p90", "p99", "min", "max", "n"}};
    for (const PointResult& r : study.points) {
        if (!r.refused.empty()) continue;
        const RunMetrics& m = r.metrics.pooled;
        std::vector<std::string> load = {fmt::format("{}", r.point.prompt_tokens),
                                         fmt::format("{}", r.point.new_tokens), load_name(r.point)};
        const auto row = [&](const char* name, const Summary& s) {
            if (s.n == 0) return;
            std::vector<std::string> cellsOfRow = load;
            for (std::string& cell : load) cell.clear();
            cellsOfRow.push_back(name);
            for (const double v : {s.mean, s.median, s.p90, s.p99, s.min, s.max})
                cellsOfRow.push_back(fmt::format("{:.2f}", 1e3 * v));
            cellsOfRow.push_back(fmt::format("{}", s.n));
            cells.push_back(std::move(cellsOfRow));
        };
        row("TTFT ms", m.ttft);
        row("TPOT ms", m.tpot);
        row("ITL ms", m.itl);
        row("E2E ms", m.e2e);
        if (m.queued.max > 1e-3) row("queue ms", m.queued);
    }
    return cells;
}

std::string aligned(const Cells& cells) {
    std::vector<std::size_t> widths(cells[0].size());
    for (const auto& row : cells)
        for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], utf8::length(row[c]));
    std::string out;
    for (const auto& row : cells) {
        for (std::size_t c = 0; c < row.size(); ++c)
            out += (c ? "  " : "") + std::string(widths[c] - utf8::length(row[c]), ' ') + row[c];
        out += '\n';
    }
    return out;
}

std::string markdown(const Cells& cells) {
    std::string out;
    for (std::size_t r = 0; r < cells.size(); ++r) {
        out += '|';
        for (const std::string& cell : cells[r]) out += " " + cell + " |";
        out += '\n';
        if (r > 0) continue;
        out += '|';
        for (std::size_t c = 0; c < cells[0].size(); ++c) out += "---:|";
        out += '\n';
    }
    return out;
}

std::string remarks(const Study& study, const std::string& bullet) {
    const auto shape = [](const Point& p) {
        return fmt::format("{} prompt, {} new, {}", p.prompt_tokens, p.new_tokens, load_name(p));
    };
    std::string out;
    for (const PointResult& r : study.points)
        for (const std::string& why : r.refused)
            out += fmt::format("{}refused, {}: {}\n", bullet, shape(r.point), why);
    for (const PointResult& r : study.points)
        if (const std::string why = unsteady(r); !why.empty())
            out += fmt::format("{}{}: {}\n", bullet, shape(r.point), why);
    for (const PointResult& r : study.points)
        if (r.joules_per_token > 0)
            out += fmt::format("{}energy, {}: {:.3f} J a new token\n", bullet, shape(r.point),
                               r.joules_per_token);
    for (const std::string& note : study.notes) out += bullet + note + "\n";
    for (const Claim& claim : study.claims)
        out += fmt::format("{}{}: {}\n", bullet, claim.holds ? "holds" : "DOES NOT HOLD", claim.text);
    return out;
}

}  // namespace

std::string duration(double seconds) {
    if (seconds < 1e-3) return fmt::format("{:.0f} µs", 1e6 * seconds);
    if (seconds < 1) return fmt::format("{:.3g} ms", 1e3 * seconds);
    return fmt::format("{:.3g} s", seconds);
}

std::string load_name(const Point& point) {
    return point.rate > 0 ? fmt::format("{:g}/s", point.rate) : fmt::format("{}", point.concurrency);
}

std::vector<std::pair<std::string, std::string>> facts(const Study& study) {
    const EngineInfo& i = study.info;
    const Machine& m = study.machine;
    const StudySettings& s = study.settings;
    std::vector<std::pair<std::string, std::string>> out;
    const auto add = [&](const char* name, std::string value) { out.emplace_back(name, std::move(value)); };
    add("llmgen", fmt::format("{}, {}", version(), study.date));
    if (!study.command.empty()) add("command", study.command);
    add("model", fmt::format("{} ({}, {:.1f} M parameters, {}{}; {} a step, {} B a token of context)",
                             i.model_path, i.architecture, double(i.parameters) / 1e6, i.dtype,
                             s.dummy_weights && i.dtype != "dummy" ? ", dummy weights" : "",
                             app::human_bytes(double(i.weight_bytes)), i.kv_bytes_per_token));
    add("device",
        fmt::format("{}: {}, compute {}, {} threads", i.device,
                    m.description.empty() ? i.device_description : m.description, i.compute, i.threads));
    add("limits",
        m.read_bytes_per_s > 0
            ? fmt::format("{:.1f} GB/s read{}, the best measured in this run; a floor is by what was "
                          "measured around its load",
                          m.read_bytes_per_s / 1e9,
                          m.matmul_flop_per_s > 0
                              ? fmt::format(", {:.3f} TFLOP/s matmul", m.matmul_flop_per_s / 1e12)
                              : "")
            : "not measured: no floor beside the figures, and no plausibility check");
    if (m.busy > 1 && m.read_bytes_per_s > 0)
        add("busy", fmt::format("others use this machine too: its limits may be up to {:.1f} times what was "
                                "measured, so floors and percentages are not to be quoted",
                                m.busy));
    if (i.load_seconds > 0)  // dummy weights are made up, not read: no bandwidth follows
        add("load", s.dummy_weights ? duration(i.load_seconds) + " to make the weights up"
                                    : fmt::format("{}, {:.2f} GB/s", duration(i.load_seconds),
                                                  double(i.weight_bytes) / i.load_seconds / 1e9));
    if (study.peak_memory_bytes > 0) add("peak memory", app::human_bytes(study.peak_memory_bytes));
    add("energy", study.energy_source.empty() ? "not available: no counter (RAPL, NVML) that may be read here"
                                              : study.energy_source + ", all that the device used");
    add("method",
        fmt::format(
            "{} repetition{} after {} warm-up{}, greedy, EOS ignored, exact token counts, {} prompts, "
            "prefix cache {}, seed {}{}",
            s.repetitions, s.repetitions == 1 ? "" : "s", s.warmup,
            s.warmup > 0 ? " and one request before all" : "",
            s.prompts.empty() ? "distinct random" : "given", s.prefix_cache ? "ON" : "off", s.seed,
            s.repetitions > 1 ? "; ± is the deviation between repetitions" : ""));
    add("clock", "steady clock of the host, read when a token's id is there: nothing is still under way");
    return out;
}

std::string table_report(const Study& study) {
    std::string out;
    for (const auto& [name, value] : facts(study)) out += fmt::format("{:<12} {}\n", name, value);
    out += "\n" + aligned(overview_cells(study)) + "\n" + aligned(latency_cells(study));
    const std::string rest = remarks(study, "");
    return rest.empty() ? out : out + "\n" + rest;
}

std::string markdown_report(const Study& study) {
    std::string out;
    for (const auto& [name, value] : facts(study)) out += fmt::format("- **{}**: {}\n", name, value);
    out += "\n" + markdown(overview_cells(study)) + "\n" + markdown(latency_cells(study));
    const std::string rest = remarks(study, "- ");
    return rest.empty() ? out : out + "\n" + rest;
}

std::string csv_report(const Study& study) {
    const std::vector<Column> all = columns();
    std::string out;
    for (const Column& column : all) out += (out.empty() ? "" : ",") + column.csv_name;
    for (const char* name : {"ttft", "tpot", "itl", "e2e"})
        out += fmt::format(",{0}_mean_s,{0}_median_s,{0}_p90_s,{0}_p99_s,{0}_stdev_s", name);
    out += ",repetitions,joules_per_token,refused\n";
    for (const PointResult& r : study.points) {
        std::string row;
        const bool shown = r.refused.empty();
        for (const Column& column : all)
            row += (row.empty() ? "" : ",") + (column.timed && !shown ? std::string() : column.plain(r));
        const RunMetrics& m = r.metrics.pooled;
        for (const Summary* s : {&m.ttft, &m.tpot, &m.itl, &m.e2e})
            for (const double v : {s->mean, s->median, s->p90, s->p99, s->stdev})
                row += "," + (shown && s->n > 0 ? fmt::format("{:.6g}", v) : std::string());
        row += fmt::format(",{},{},{}\n", r.repetitions.size(), real(r.joules_per_token), shown ? "" : "yes");
        out += row;
    }
    return out;
}

}  // namespace llmgen::bench
