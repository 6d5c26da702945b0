// Charts as inline SVG: no script, no font, no network. Colours are CSS variables of the page (see
// report_html.cpp), so that one drawing serves dark and light. Each mark has a <title>, which browsers show
// when it is pointed at.
//
// The drawing is 440 units wide and scales to its column: on a phone of 360 points its text stays above 9.
#pragma once

#include <string>
#include <vector>

namespace llmgen::bench {

std::string escape_html(std::string_view text);

struct Mark {
    double x = 0, y = 0;
    double low = 0, high = 0;  // a whisker where low < high
    std::string title;         // what pointing at it shows
    std::string label;         // printed beside it; "" = nothing
};

struct Series {
    enum class Kind { line, floor, dots };  // floor: dashed, without marks
    std::string name;
    Kind kind = Kind::line;
    std::vector<Mark> marks;
};

struct Axis {
    std::string name;
    bool log = false;
    bool from_zero = true;  // of a linear axis
};

struct Chart {
    std::string title;
    Axis x, y;
    std::vector<Series> series;
};
std::string draw(const Chart& chart);

/// Counts of `values` in about 40 bins up to the 99.5th percentile; the last bin takes what lies beyond.
std::string draw_histogram(const std::string& title, const std::string& x_name, std::vector<double> values);

/// One request from arrival to its last token: queue, prefill, and a tick a token.
struct Timeline {
    double queued_s = 0;
    std::vector<double> token_times_s;
};
std::string draw_timeline(const std::string& title, const Timeline& timeline);

/// "0", "0.5", "20", "1.5k"
std::string tick_text(double value);
/// About `count` round values that cover [low, high].
std::vector<double> linear_ticks(double low, double high, int count);
/// Powers of ten, with 2 and 5 between where there are few. `low` > 0.
std::vector<double> log_ticks(double low, double high);

}  // namespace llmgen::bench
