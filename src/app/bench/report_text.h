// A study as a table for the eyes, Markdown, CSV, one JSON object, or a JSON line a repetition.
//
// Columns are llama-bench's words: PP = prompt tokens, TG = new tokens, B = concurrency (or the rate).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "app/bench/study.h"

namespace llmgen::bench {

/// Never holds a refused figure: its place shows "refused", and the reason stands below the table.
std::string table_report(const Study& study);
std::string markdown_report(const Study& study);
/// A header and a row a point; refused figures are empty.
std::string csv_report(const Study& study);
nlohmann::ordered_json json_report(const Study& study, bool with_ids);
/// {"point", "repetition", "requests": […], metrics} a line, the study's facts in each.
std::string jsonl_report(const Study& study, bool with_ids);

/// "12.3 ms", "1.23 s": three digits that mean something.
std::string duration(double seconds);
/// "3", "rate 2.5/s"
std::string load_name(const Point& point);
/// Model, device, threads, settings: what a figure is worthless without. One fact a line.
std::vector<std::pair<std::string, std::string>> facts(const Study& study);

}  // namespace llmgen::bench
