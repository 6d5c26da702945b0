#include "app/bench/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "app/bench/chart.h"
#include "app/bench/report_text.h"

namespace llmgen::bench {
namespace {

// Series colours differ in lightness too, so that they stay apart without colour vision.
constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --page: #fbfaf8; --ink: #1b1b1a; --quiet: #62605c; --rule: #dedbd5;
  --c0: #2166c2; --c1: #d9730d; --c2: #10825a; --c3: #8b3fa8; --floor: #8d8a84; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --page: #171716; --ink: #ecebe8; --quiet: #a3a09a; --rule: #383734;
  --c0: #6aa5f2; --c1: #f2a35a; --c2: #4fc496; --c3: #c58be0; --floor: #8d8a84; --bad: #ff897d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.2; margin: .5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.heroes { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem; margin: 1rem 0; }
.heroes div { border-top: 2px solid var(--c0); padding-top: .4rem; }
.heroes b { display: block; font-size: 1.5rem; line-height: 1.2; font-weight: 600; }
.heroes span { color: var(--quiet); font-size: .85rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1.75rem 2rem; }
figure { margin: 0; min-width: 0; display: flex; flex-direction: column; } figcaption { font-weight: 600; }
svg { width: 100%; height: auto; display: block; margin-top: auto; }
.legend { margin: .15rem 0; font-size: .85rem; color: var(--quiet); display: flex; flex-wrap: wrap; gap: 0 1rem; }
.key { display: inline-block; width: .9em; height: .9em; border-radius: 2px; margin-right: .35em;
  vertical-align: -.1em; background: var(--tone); }
.c0 { --tone: var(--c0); } .c1 { --tone: var(--c1); } .c2 { --tone: var(--c2); } .c3 { --tone: var(--c3); }
.floor { --tone: var(--floor); }
.grid { stroke: var(--rule); } .axis { stroke: var(--quiet); }
.line { fill: none; stroke: var(--tone); stroke-width: 2; } .line.floor { stroke-dasharray: 5 4; }
.whisker { stroke: var(--tone); stroke-width: 1.5; opacity: .6; }
.dot { fill: var(--tone); stroke: var(--page); stroke-width: 1.5; } .bar { fill: var(--tone); }
.pale { opacity: .35; } .token { stroke: var(--c0); stroke-width: .8; }
text { font: 12px system-ui, sans-serif; fill: var(--quiet); } .label { fill: var(--ink); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule); }
th { color: var(--quiet); font-weight: 500; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; font-size: .9rem; }
dt { color: var(--quiet); } dd { margin: 0; overflow-wrap: anywhere; }
summary { margin: .75rem 0; cursor: pointer; }
.bad { color: var(--bad); } .missing { color: var(--quiet); font-size: .9rem; }
)";

using Points = std::vector<const PointResult*>;

Points select(const Study& study, const std::function<bool(const Point&)>& keep) {
    Points out;
    for (const PointResult& r : study.points)
        if (r.refused.empty() && keep(r.point)) out.push_back(&r);
    return out;
}

// The loads that differ in one thing only: of all values of `other`, the one with most different `axis`.
Points along(const Study& study, int Point::*axis, const std::function<std::string(const Point&)>& rest) {
    std::map<std::string, Points> groups;
    for (const PointResult* r : select(study, [](const Point& p) { return p.rate == 0; }))
        groups[rest(r->point)].push_back(r);
    Points best;
    for (auto& [name, group] : groups)
        if (group.size() > best.size()) best = group;
    std::sort(best.begin(), best.end(),
              [&](const PointResult* a, const PointResult* b) { return a->point.*axis < b->point.*axis; });
    return best;
}

std::string load_words(const Point& point) {
    return point.rate > 0 ? load_name(point) + " arriving" : load_name(point) + " at a time";
}

Mark mark(double x, const Summary& s, const std::string& load) {
    return {x,
            1e3 * s.median,
            1e3 * s.min,
            1e3 * s.p99,
            fmt::format("{}: median {:.2f} ms, p90 {:.2f}, p99 {:.2f} (n = {})", load, 1e3 * s.median,
                        1e3 * s.p90, 1e3 * s.p99, s.n),
            ""};
}

std::string missing(const std::string& title, const std::string& how) {
    return "<figure><figcaption>" + escape_html(title) + "</figcaption><p class='missing'>" +
           escape_html(how) + "</p></figure>\n";
}

std::string ttft_figure(const Study& study, const Points& points) {
    const std::string title = "Time to first token over prompt length, ms";
    if (points.size() < 2)
        return missing(title, "Needs several prompt lengths: --prompt-tokens 128,512,1500");
    Chart chart{title, {"prompt tokens", true}, {"ms", true}, {}};
    Series measured{"measured (whisker: minimum to p99)", Series::Kind::line, {}};
    Series floor{"at the measured matmul peak", Series::Kind::floor, {}};
    const Model model = model_of(study.info);
    for (const PointResult* r : points) {
        const double n = r->point.prompt_tokens;
        measured.marks.push_back(mark(n, r->metrics.pooled.ttft, fmt::format("{} tokens", n)));
        if (r->limits.matmul_flop_per_s > 0) {
            // One pass over the weights, however short the prompt.
            const double s = std::max(prefill_flop(model, n) / r->limits.matmul_flop_per_s,
                                      decode_floor_s(model, r->limits, 1, 0));
            floor.marks.push_back({n, 1e3 * s, 0, 0, "", ""});
        }
    }
    chart.series = {measured};
    if (!floor.marks.empty()) chart.series.push_back(floor);
    return draw(chart);
}

std::string tpot_figure(const std::string& title,
                        const std::string& how,
                        const Axis& x_axis,
                        const Points& points,
                        const std::function<double(const Point&)>& x) {
    if (points.size() < 2) return missing(title, how);
    Chart chart{title, x_axis, {"ms"}, {}};
    Series measured{"measured (whisker: minimum to p99)", Series::Kind::line, {}};
    Series floor{"floor: bytes of a step / measured read bandwidth", Series::Kind::floor, {}};
    for (const PointResult* r : points) {
        const double at = x(r->point);
        measured.marks.push_back(mark(at, r->metrics.pooled.tpot, fmt::format("{:g}", at)));
        if (r->floor_s > 0) floor.marks.push_back({at, 1e3 * r->floor_s, 0, 0, "", ""});
    }
    chart.series = {measured};
    if (!floor.marks.empty()) chart.series.push_back(floor);
    return draw(chart);
}

std::string curve_figure(const Study& study) {
    const std::string title = "Throughput and latency: TPOT in ms over output tok/s";
    std::map<std::string, Points> closed, open;
    for (const PointResult* r : select(study, [](const Point& p) { return p.new_tokens > 1; })) {
        const std::string load =
            fmt::format("{} prompt, {} new", r->point.prompt_tokens, r->point.new_tokens);
        if (r->point.rate > 0)
            open[load + ", arrivals at a rate"].push_back(r);
        else
            closed[load].push_back(r);
    }
    Chart chart{title, {"output tokens per second, all requests together"}, {"ms"}, {}};
    for (auto* groups : {&closed, &open})
        for (auto& [name, points] : *groups) {
            if (points.size() < 2 || chart.series.size() == 4) continue;
            Series series{name, Series::Kind::line, {}};
            for (const PointResult* r : points) {
                const RunMetrics& m = r->metrics.pooled;
                series.marks.push_back(
                    {m.output_tokens_per_s, 1e3 * m.tpot.median, 0, 0,
                     fmt::format("{}: {:.1f} tok/s, TPOT {:.2f} ms, TTFT {:.1f} ms", load_name(r->point),
                                 m.output_tokens_per_s, 1e3 * m.tpot.median, 1e3 * m.ttft.median),
                     load_name(r->point)});
            }
            chart.series.push_back(std::move(series));
        }
    if (chart.series.empty())
        return missing(title, "Needs several loads: --concurrency 1..32 or --rate 1,2,4");
    return draw(chart);
}

const PointResult* most_gaps(const Study& study) {
    const PointResult* best = nullptr;
    for (const PointResult& r : study.points)
        if (r.refused.empty() && r.metrics.pooled.itl.n > (best ? best->metrics.pooled.itl.n : 0)) best = &r;
    return best;
}

std::string itl_figure(const Study& study) {
    const PointResult* r = most_gaps(study);
    if (!r) return missing("Time between tokens", "Needs two new tokens at least");
    std::vector<double> gaps;
    for (const auto& repetition : r->repetitions)
        for (const Record& record : repetition)
            for (const double gap : record.times.itl_s()) gaps.push_back(1e3 * gap);
    const std::string title = fmt::format("Time between tokens (ITL): {} gaps, {} prompt, {}", gaps.size(),
                                          r->point.prompt_tokens, load_words(r->point));
    return draw_histogram(title, "ms", std::move(gaps));
}

std::string timeline_figure(const Study& study) {
    const Points shown = select(study, [](const Point& p) { return p.new_tokens > 1; });
    if (shown.empty()) return missing("One request", "Needs two new tokens at least");
    // A single client with a prompt long enough for its prefill to be seen.
    const PointResult* best = shown.front();
    for (const PointResult* r : shown)
        if (r->point.rate == 0 && r->point.concurrency == 1 && r->point.prompt_tokens <= 1500 &&
            r->point.prompt_tokens >= best->point.prompt_tokens)
            best = r;
    const Record& record = best->repetitions.back().front();
    return draw_timeline(
        fmt::format("One request: {} prompt tokens, {} new", best->point.prompt_tokens, record.times.n_out()),
        {record.times.queued_s, record.times.token_times_s});
}

std::string heroes(const Study& study) {
    const Points single = select(study, [](const Point& p) { return p.rate == 0 && p.concurrency == 1; });
    std::string out;
    const auto hero = [&](const std::string& value, const std::string& what) {
        out += "<div><b>" + escape_html(value) + "</b><span>" + escape_html(what) + "</span></div>";
    };
    if (!single.empty()) {
        const PointResult& r = **std::min_element(single.begin(), single.end(), [](auto* a, auto* b) {
            return std::abs(a->point.prompt_tokens - 512) < std::abs(b->point.prompt_tokens - 512);
        });
        const RunMetrics& m = r.metrics.pooled;
        hero(duration(m.ttft.median), fmt::format("to the first token of {}", r.point.prompt_tokens));
        if (m.tpot.n > 0) hero(fmt::format("{:.1f} tok/s", 1 / m.tpot.median), "one request");
        if (r.of_floor > 0)
            hero(fmt::format("{:.0f} %", 100 * r.of_floor), "of the memory's floor, decoding");
        if (r.of_matmul_peak > 0)
            hero(fmt::format("{:.0f} %", 100 * r.of_matmul_peak), "of the matmul peak, prefill");
    }
    double most = 0;
    std::string load;
    for (const PointResult* r : select(study, [](const Point&) { return true; }))
        if (r->metrics.pooled.output_tokens_per_s > most) {
            most = r->metrics.pooled.output_tokens_per_s;
            load = load_words(r->point);
        }
    if (most > 0 && study.points.size() > 1) hero(fmt::format("{:.0f} tok/s", most), "most output, " + load);
    return "<div class='heroes'>" + out + "</div>\n";
}

// The first table is the overview; the distributions behind it fold away.
std::string table_html(const std::string& rows, bool first) {
    const std::string table = "<div class='scroll'><table>" + rows + "</table></div>\n";
    return first ? table : "<details><summary>Distributions</summary>\n" + table + "</details>\n";
}

// The Markdown table's cells, as HTML.
std::string tables(const Study& study) {
    std::string out, table;
    const std::string text = markdown_report(study);
    bool head = true;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        std::string line = text.substr(at, end - at);
        at = end + 1;
        if (!line.starts_with("|")) {
            if (!table.empty()) out += table_html(table, out.empty());
            table.clear();
            head = true;
            continue;
        }
        if (line.starts_with("|---")) continue;
        const std::string cell = head ? "th" : "td";
        head = false;
        table += "<tr>";
        for (std::size_t c = 1; c < line.size();) {
            const std::size_t bar = line.find('|', c);
            if (bar == std::string::npos) break;
            table += "<" + cell + ">" + escape_html(line.substr(c + 1, bar > c + 1 ? bar - c - 2 : 0)) +
                     "</" + cell + ">";
            c = bar + 1;
        }
        table += "</tr>\n";
    }
    if (!table.empty()) out += table_html(table, out.empty());
    return out;
}

}  // namespace

std::string html_report(const Study& study) {
    std::string model = study.info.model_path;
    while (model.size() > 1 && model.back() == '/') model.pop_back();
    model = model.substr(model.find_last_of('/') + 1);
    const std::string title = fmt::format("llmgen bench: {}", model);
    std::string out =
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n<title>" +
        escape_html(title) + "</title>\n<style>" + kStyle + "</style></head>\n<body>\n<h1>" +
        escape_html(title) + "</h1>\n" + heroes(study);
    if (study.machine.busy > 1)
        out += fmt::format(
            "<p class='bad'>Measured beside other programs, which wanted this machine {:.1f} times over: a "
            "sketch of the curves, no figures to quote.</p>\n",
            study.machine.busy);
    for (const PointResult& r : study.points)
        for (const std::string& why : r.refused)
            out +=
                fmt::format("<p class='bad'>Refused: {} prompt, {} new, load {}: {}</p>\n",
                            r.point.prompt_tokens, r.point.new_tokens, load_name(r.point), escape_html(why));
    for (const PointResult& r : study.points)
        if (const std::string why = unsteady(r); !why.empty())
            out += fmt::format("<p>{} prompt, {} new, load {}: {}</p>\n", r.point.prompt_tokens,
                               r.point.new_tokens, load_name(r.point), escape_html(why));
    for (const Claim& claim : study.claims)
        out += fmt::format("<p{}>{}: {}</p>\n", claim.holds ? "" : " class='bad'",
                           claim.holds ? "Holds" : "Does not hold", escape_html(claim.text));
    const auto others = [](const Point& p) { return fmt::format("{} {}", p.new_tokens, p.concurrency); };
    const auto but_batch = [](const Point& p) { return fmt::format("{} {}", p.new_tokens, p.prompt_tokens); };
    const Points lengths = along(study, &Point::prompt_tokens, others);
    out += "<div class='figures'>\n" + ttft_figure(study, lengths) +
           tpot_figure("Time per output token over context, ms",
                       "Needs several prompt lengths: --prompt-tokens 128,512,1500",
                       {"tokens of context, at the middle of the answer"}, lengths,
                       [](const Point& p) { return p.prompt_tokens + 0.5 * p.new_tokens; }) +
           tpot_figure("Time per output token over batch, ms", "Needs several loads: --concurrency 1..32",
                       {"requests at a time"}, along(study, &Point::concurrency, but_batch),
                       [](const Point& p) { return double(p.concurrency); }) +
           curve_figure(study) + itl_figure(study) + timeline_figure(study) + "</div>\n";
    out += "<h2>Figures</h2>\n" + tables(study) + "<h2>How it was measured</h2>\n<dl>";
    for (const auto& [name, value] : facts(study))
        out += "<dt>" + escape_html(name) + "</dt><dd>" + escape_html(value) + "</dd>";
    out += "</dl>\n";
    for (const std::string& note : study.notes) out += "<p>" + escape_html(note) + "</p>\n";
    return out + "</body></html>\n";
}

}  // namespace llmgen::bench
