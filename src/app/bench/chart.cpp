#include "app/bench/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "app/bench/metrics.h"
#include "base/error.h"

namespace llmgen::bench {
namespace {

constexpr double kWidth = 440, kHeight = 280;
constexpr double kLeft = 50, kRight = 14, kTop = 14, kBottom = 44;

// Data to drawing along one axis.
struct Scale {
    double low = 0, high = 1, from = 0, to = 1;
    bool log = false;
    double operator()(double v) const {
        const double part = log ? std::log(v / low) / std::log(high / low) : (v - low) / (high - low);
        return from + part * (to - from);
    }
};

struct Range {
    double low = std::numeric_limits<double>::max(), high = std::numeric_limits<double>::lowest();
    void add(double v) {
        low = std::min(low, v);
        high = std::max(high, v);
    }
};

Scale scale_of(const Axis& axis, Range range, double from, double to) {
    if (axis.log) {
        range.low /= 1.15;
        range.high *= 1.15;
    } else {
        if (axis.from_zero) range.low = std::min(0.0, range.low);
        if (range.high <= range.low) range.high = range.low + 1;
        range.high += 0.08 * (range.high - range.low);
    }
    return {range.low, range.high, from, to, axis.log};
}

// The y axis is named in the figure's heading: turned text is hard to read on a phone.
std::string grid_and_axes(const Scale& x, const Scale& y, const std::string& x_name) {
    std::string out;
    const auto ticks = [](const Scale& s, int count) {
        return s.log ? log_ticks(s.low, s.high) : linear_ticks(s.low, s.high, count);
    };
    for (const double v : ticks(y, 5))
        out += fmt::format(
            "<line class='grid' x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}'/>"
            "<text class='tick' text-anchor='end' x='{:.1f}' y='{:.1f}'>{}</text>\n",
            kLeft, kWidth - kRight, y(v), y(v), kLeft - 6, y(v) + 4, tick_text(v));
    for (const double v : ticks(x, 6))
        out += fmt::format(
            "<line class='axis' x1='{0:.1f}' x2='{0:.1f}' y1='{1:.1f}' y2='{2:.1f}'/>"
            "<text class='tick' text-anchor='middle' x='{0:.1f}' y='{3:.1f}'>{4}</text>\n",
            x(v), kHeight - kBottom, kHeight - kBottom + 4, kHeight - kBottom + 17, tick_text(v));
    out += fmt::format("<line class='axis' x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}'/>\n", kLeft,
                       kWidth - kRight, kHeight - kBottom, kHeight - kBottom);
    out += fmt::format("<text class='name' text-anchor='middle' x='{:.1f}' y='{:.1f}'>{}</text>\n",
                       0.5 * (kLeft + kWidth - kRight), kHeight - 8, escape_html(x_name));
    return out;
}

std::string path_of(const Series& series, const Scale& x, const Scale& y) {
    std::string path;
    for (const Mark& mark : series.marks)
        path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(mark.x), y(mark.y));
    return path;
}

std::string draw_series(const Series& series, std::size_t colour, const Scale& x, const Scale& y) {
    const std::string tone = series.kind == Series::Kind::floor ? "floor" : fmt::format("c{}", colour);
    std::string out;
    if (series.kind != Series::Kind::dots && series.marks.size() > 1)
        out += fmt::format("<path class='line {}' d='{}'/>\n", tone, path_of(series, x, y));
    for (const Mark& m : series.marks) {
        if (m.low < m.high)
            out += fmt::format(
                "<line class='whisker {0}' x1='{1:.1f}' x2='{1:.1f}' y1='{2:.1f}' y2='{3:.1f}'/>\n", tone,
                x(m.x), y(y.log ? std::max(m.low, y.low) : m.low), y(m.high));
        if (series.kind != Series::Kind::floor || series.marks.size() == 1)
            out += fmt::format(
                "<circle class='dot {}' cx='{:.1f}' cy='{:.1f}' r='4.5'><title>{}</title></circle>\n", tone,
                x(m.x), y(m.y), escape_html(m.title));
        if (!m.label.empty())  // towards the middle, where there is room
            out += fmt::format("<text class='label' text-anchor='{}' x='{:.1f}' y='{:.1f}'>{}</text>\n",
                               x(m.x) > 0.8 * kWidth ? "end" : "start",
                               x(m.x) + (x(m.x) > 0.8 * kWidth ? -7 : 7), y(m.y) - 7, escape_html(m.label));
    }
    return out;
}

std::string open_svg(const std::string& title, double height) {
    return fmt::format("<svg viewBox='0 0 {} {}' role='img' aria-label='{}'>\n", kWidth, height,
                       escape_html(title));
}

std::string legend(const Chart& chart) {
    std::string out;
    std::size_t colour = 0;
    for (const Series& s : chart.series) {
        const bool floor = s.kind == Series::Kind::floor;
        out += fmt::format("<span><i class='key {}'></i>{}</span>",
                           floor ? "floor" : fmt::format("c{}", colour), escape_html(s.name));
        if (!floor) ++colour;
    }
    return "<p class='legend'>" + out + "</p>";
}

std::string figure(const std::string& title, const std::string& legend_html, const std::string& svg) {
    return "<figure><figcaption>" + escape_html(title) + "</figcaption>" + legend_html + "\n" + svg +
           "</svg></figure>\n";
}

}  // namespace

std::string escape_html(std::string_view text) {
    std::string out;
    for (const char c : text) switch (c) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '"':
                out += "&quot;";
                break;
            case '\'':
                out += "&#39;";
                break;
            default:
                out += c;
        }
    return out;
}

std::string tick_text(double value) {
    const double size = std::abs(value);
    if (size >= 1e6) return fmt::format("{:g}M", value / 1e6);
    if (size >= 1e4) return fmt::format("{:g}k", value / 1e3);
    return fmt::format("{:.4g}", size < 1e-12 ? 0.0 : value);
}

std::vector<double> linear_ticks(double low, double high, int count) {
    CHECK(high > low && count > 0);
    const double rough = (high - low) / count, power = std::pow(10, std::floor(std::log10(rough)));
    double step = 10 * power;
    for (const double nice : {1.0, 2.0, 5.0})
        if (nice * power >= rough * 0.999) {
            step = nice * power;
            break;
        }
    std::vector<double> ticks;
    for (double i = std::ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12); ++i)
        ticks.push_back(i * step);
    return ticks;
}

std::vector<double> log_ticks(double low, double high) {
    CHECK(low > 0 && high > low);
    const auto between = [&](std::initializer_list<double> factors) {
        std::vector<double> ticks;
        for (int e = int(std::floor(std::log10(low))); e <= int(std::ceil(std::log10(high))); ++e)
            for (const double f : factors) {
                const double v = f * std::pow(10, e);
                if (v >= low * 0.999 && v <= high * 1.001) ticks.push_back(v);
            }
        return ticks;
    };
    std::vector<double> ticks = between({1});
    if (ticks.size() < 4) ticks = between({1, 2, 5});
    if (ticks.size() < 2) ticks = between({1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9});
    return ticks;
}

std::string draw(const Chart& chart) {
    Range xs, ys;
    for (const Series& s : chart.series)
        for (const Mark& m : s.marks) {
            xs.add(m.x);
            ys.add(m.y);
            if (m.low < m.high) {
                ys.add(m.high);
                if (!chart.y.log) ys.add(m.low);
            }
        }
    CHECK(xs.low <= xs.high, "a chart without marks: {}", chart.title);
    const Scale x = scale_of(chart.x, xs, kLeft, kWidth - kRight);
    const Scale y = scale_of(chart.y, ys, kHeight - kBottom, kTop);
    std::string svg = open_svg(chart.title, kHeight) + grid_and_axes(x, y, chart.x.name);
    std::size_t colour = 0;
    for (const Series& s : chart.series) {
        svg += draw_series(s, colour, x, y);
        if (s.kind != Series::Kind::floor) ++colour;
    }
    return figure(chart.title, legend(chart), svg);
}

std::string draw_histogram(const std::string& title, const std::string& x_name, std::vector<double> values) {
    CHECK(!values.empty());
    std::sort(values.begin(), values.end());
    constexpr int kBins = 40;
    const double low = values.front();
    const double high = std::max(percentile(values, 0.995), low * 1.02 + 1e-9);
    std::vector<int> counts(kBins);
    for (const double v : values)
        ++counts[std::size_t(std::clamp((v - low) / (high - low) * kBins, 0.0, kBins - 1.0))];
    const Scale x = {low, high, kLeft, kWidth - kRight, false};
    const double most = *std::max_element(counts.begin(), counts.end());
    const Scale y = {0, 1.08 * most, kHeight - kBottom, kTop, false};
    std::string svg = open_svg(title, kHeight) + grid_and_axes(x, y, x_name);
    const double bin = (high - low) / kBins;
    for (int i = 0; i < kBins; ++i) {
        const int n = counts[std::size_t(i)];
        if (n == 0) continue;
        const double left = x(low + i * bin) + 0.5, right = x(low + (i + 1) * bin) - 0.5;
        svg += fmt::format(
            "<rect class='bar c0' x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}'><title>{} gaps from "
            "{:.3g} to "
            "{:.3g}{}</title></rect>\n",
            left, y(n), right - left, y(0) - y(n), n, low + i * bin, low + (i + 1) * bin,
            i + 1 == kBins ? " or longer" : "");
    }
    for (const auto& [name, q] : {std::pair("median", 0.5), std::pair("p99", 0.99)}) {
        const double at = std::min(percentile(values, q), high);
        svg += fmt::format(
            "<line class='line floor' x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}'/>"
            "<text class='label' text-anchor='{3}' x='{4:.1f}' y='{5}'>{6} {7:.3g}</text>\n",
            x(at), kTop, kHeight - kBottom, x(at) > 0.8 * kWidth ? "end" : "start",
            x(at) + (x(at) > 0.8 * kWidth ? -5 : 5), kTop + (q > 0.9 ? 24 : 10), name, percentile(values, q));
    }
    return figure(title, "", svg);
}

std::string draw_timeline(const std::string& title, const Timeline& t) {
    CHECK(!t.token_times_s.empty());
    constexpr double kTall = 130, kBarTop = 34, kBarHeight = 34;
    const double end = 1e3 * t.token_times_s.back();
    const Scale x = {0, end > 0 ? end : 1, 12, kWidth - 14, false};
    const double queued = 1e3 * t.queued_s, first = 1e3 * t.token_times_s.front();
    std::string svg = open_svg(title, kTall);
    const auto bar = [&](double from, double to, const char* tone, const std::string& name) {
        svg += fmt::format(
            "<rect class='bar {}' x='{:.1f}' y='{}' width='{:.1f}' height='{}'><title>{}: {:.2f} ms</title>"
            "</rect>\n",
            tone, x(from), kBarTop, std::max(0.5, x(to) - x(from)), kBarHeight, name, to - from);
    };
    bar(0, queued, "floor", "queue");
    bar(queued, first, "c1", "prefill");
    bar(first, end, "c0 pale", "decode");
    for (const double at : t.token_times_s)
        svg += fmt::format("<line class='token' x1='{0:.2f}' x2='{0:.2f}' y1='{1}' y2='{2}'/>\n", x(1e3 * at),
                           kBarTop, kBarTop + kBarHeight);
    const bool late = x(first) > 0.6 * kWidth;
    svg +=
        fmt::format("<text class='label' text-anchor='{}' x='{:.1f}' y='{}'>first token {:.1f} ms</text>\n",
                    late ? "end" : "start", x(first), kBarTop - 8, first);
    for (const double v : linear_ticks(0, x.high, 6))
        svg += fmt::format(
            "<line class='axis' x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}'/>"
            "<text class='tick' text-anchor='middle' x='{0:.1f}' y='{3}'>{4}</text>\n",
            x(v), kBarTop + kBarHeight + 6, kBarTop + kBarHeight + 10, kBarTop + kBarHeight + 24,
            tick_text(v));
    svg += fmt::format("<text class='name' text-anchor='middle' x='{}' y='{}'>ms since arrival</text>\n",
                       kWidth / 2, kTall - 6);
    const std::string keys =
        "<p class='legend'><span><i class='key floor'></i>queue</span><span><i class='key "
        "c1'></i>prefill</span>"
        "<span><i class='key c0'></i>decode, a tick a token</span></p>";
    return figure(title, keys, svg);
}

}  // namespace llmgen::bench
