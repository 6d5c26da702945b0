// The output formats: what a script or a reader finds in them, and that nothing refused gets out.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "app/bench/chart.h"
#include "app/bench/report_html.h"
#include "app/bench/report_text.h"

namespace llmgen::bench {
namespace {

Record record(int prompt, int fresh, double ttft, double tpot, double arrival = 0) {
    Record r;
    r.times.prompt_tokens = prompt;
    r.times.arrival_s = arrival;
    for (int i = 0; i < fresh; ++i) {
        r.times.token_times_s.push_back(ttft + i * tpot);
        r.token_ids.push_back(100 + i);
    }
    return r;
}

// Two loads of two repetitions; the second is impossible where `refuse`.
Study study(bool refuse = false) {
    Study s;
    s.info.model_path = "models/<b>&co";
    s.info.architecture = "LlamaForCausalLM";
    s.info.dtype = "bf16";
    s.info.device = "cpu";
    s.info.compute = "bf16";
    s.info.weight_bytes = 1'000'000'000;
    s.info.parameters = 500'000'000;
    s.info.kv_bytes_per_token = 1000;
    s.info.load_seconds = 0.5;
    s.machine.read_bytes_per_s = 100e9;
    s.machine.description = "a CPU";
    s.date = "2026-01-02T03:04:05Z";
    s.command = "llmgen bench";
    s.settings.repetitions = 2;
    for (const int prompt : {100, 1000}) {
        PointResult r;
        r.point = {.prompt_tokens = prompt, .new_tokens = 4};
        const double tpot = refuse && prompt == 1000 ? 0.001 : 0.02;
        r.repetitions = {{record(prompt, 4, 0.001 * prompt, tpot)},
                         {record(prompt, 4, 0.0012 * prompt, tpot)}};
        judge(r, model_of(s.info), s.machine);
        s.points.push_back(std::move(r));
    }
    return s;
}

TEST(BenchReport, Table) {
    const std::string table = table_report(study());
    for (const char* needle : {"TTFT ms", "TPOT ms", "floor ms", "of floor", "p99", "ITL ms", "110.0 ±14.1",
                               "100.0 GB/s read", "2.00 GB/s", "a CPU", "prefix cache off", "greedy"})
        EXPECT_NE(table.find(needle), std::string::npos) << needle << "\n" << table;
}

TEST(BenchReport, WhatIsUnknownIsSaidToBe) {
    Study s = study();
    EXPECT_NE(table_report(s).find("energy       not available"), std::string::npos) << table_report(s);
    EXPECT_TRUE(json_report(s, false)["energy"].is_null());
    EXPECT_TRUE(json_report(s, false)["points"][0]["joules_per_token"].is_null());
    EXPECT_NE(table_report(s).find("steady clock of the host"), std::string::npos);
    s.energy_source = "RAPL";
    s.points[0].joules_per_token = 0.25;
    EXPECT_NE(table_report(s).find("0.250 J a new token"), std::string::npos);
    EXPECT_EQ(json_report(s, false)["points"][0]["joules_per_token"], 0.25);
    // Made-up weights were not read from anywhere.
    EXPECT_NE(table_report(s).find("2.00 GB/s"), std::string::npos);
    s.settings.dummy_weights = true;
    EXPECT_EQ(table_report(s).find("2.00 GB/s"), std::string::npos);
    EXPECT_TRUE(json_report(s, false)["load"]["bytes_per_s"].is_null());
    // One repetition has no spread, which is not a spread of 0.
    EXPECT_NE(table_report(s).find("110.0 ±14.1"), std::string::npos);
    for (PointResult& r : s.points) {
        r.repetitions.resize(1);
        judge(r, model_of(s.info), s.machine);
    }
    s.settings.repetitions = 1;
    EXPECT_EQ(table_report(s).find("±"), std::string::npos) << table_report(s);
}

TEST(BenchReport, JsonHoldsEveryRepetition) {
    const auto json = json_report(study(), true);
    EXPECT_EQ(json["device"]["name"], "cpu");
    EXPECT_EQ(json["model"]["dtype"], "bf16");
    EXPECT_EQ(json["load"]["bytes_per_s"], 2e9);
    EXPECT_TRUE(json["device"]["matmul_flop_per_s"].is_null()) << "unknown is null, not 0";
    ASSERT_EQ(json["points"].size(), 2u);
    const auto& point = json["points"][0];
    EXPECT_EQ(point["prompt_tokens"], 100);
    EXPECT_EQ(point["concurrency"], 1);
    EXPECT_NEAR(point["metrics"]["ttft_s"]["median"].get<double>(), 0.11, 1e-12);
    EXPECT_NEAR(point["metrics"]["tpot_s"]["mean"].get<double>(), 0.02, 1e-12);
    EXPECT_NEAR(point["floor"]["seconds"].get<double>(), (1e9 + 102 * 1000) / 100e9, 1e-12);
    EXPECT_EQ(point["metrics"]["cached_tokens"], 0);
    ASSERT_EQ(point["repetitions"].size(), 2u);
    const auto& request = point["repetitions"][1]["requests"][0];
    EXPECT_EQ(request["token_times_s"].size(), 4u);
    EXPECT_EQ(request["token_ids"], (std::vector<int>{100, 101, 102, 103}));
    EXPECT_FALSE(
        json_report(study(), false)["points"][0]["repetitions"][0]["requests"][0].contains("token_ids"));
}

TEST(BenchReport, JsonLines) {
    std::istringstream lines(jsonl_report(study(), false));
    std::string line;
    int n = 0;
    while (std::getline(lines, line)) {
        const auto json = nlohmann::json::parse(line);
        EXPECT_EQ(json["repetition"], n % 2 + 1);
        EXPECT_EQ(json["point"]["prompt_tokens"], n < 2 ? 100 : 1000);
        EXPECT_EQ(json["metrics"]["requests"], 1);
        EXPECT_TRUE(json.contains("device") && json.contains("model") && json.contains("llmgen"));
        ++n;
    }
    EXPECT_EQ(n, 4);
}

TEST(BenchReport, CsvIsRectangular) {
    for (const bool refuse : {false, true}) {
        std::istringstream lines(csv_report(study(refuse)));
        std::string line;
        std::ptrdiff_t commas = -1;
        int n = 0;
        while (std::getline(lines, line)) {
            const auto here = std::count(line.begin(), line.end(), ',');
            if (commas < 0) commas = here;
            EXPECT_EQ(here, commas) << line;
            ++n;
        }
        EXPECT_EQ(n, 3);
    }
}

TEST(BenchReport, MarkdownIsATable) {
    const std::string text = markdown_report(study());
    EXPECT_NE(text.find("| PP |"), std::string::npos);
    EXPECT_NE(text.find("|---:|"), std::string::npos);
    EXPECT_NE(text.find("- **model**:"), std::string::npos);
}

TEST(BenchReport, RefusedFiguresNeverGetOut) {
    const Study s = study(true);
    EXPECT_TRUE(s.refused());
    EXPECT_FALSE(study().refused());
    const std::string table = table_report(s);
    EXPECT_NE(table.find("refused"), std::string::npos);
    EXPECT_NE(table.find("1001 GB/s"), std::string::npos) << table;  // the reason, with its numbers
    const auto json = json_report(s, false);
    EXPECT_TRUE(json["points"][0].contains("metrics"));
    EXPECT_FALSE(json["points"][1].contains("metrics"));
    EXPECT_TRUE(json["points"][1].contains("refused"));
    const std::string csv = csv_report(s);
    const std::string last = csv.substr(csv.rfind('\n', csv.size() - 2) + 1);
    EXPECT_EQ(last.substr(0, 20), "1000,4,1,1,,,,,,,,,,") << last;
    EXPECT_NE(html_report(s).find("Refused:"), std::string::npos);
}

TEST(BenchReport, HtmlStandsAlone) {
    const std::string page = html_report(study());
    EXPECT_EQ(page.find("http"), std::string::npos) << "the page must not reach for the network";
    EXPECT_EQ(page.find("<script"), std::string::npos);
    EXPECT_EQ(page.find("<b>&co"), std::string::npos) << "a model's name is text";
    EXPECT_NE(page.find("&lt;b&gt;&amp;co"), std::string::npos);
    for (const char* needle :
         {"Time to first token over prompt length", "Time per output token over context",
          "Time per output token over batch", "Time between tokens", "Throughput and latency", "One request",
          "prefers-color-scheme: dark", "width=device-width", "floor:"})
        EXPECT_NE(page.find(needle), std::string::npos) << needle;
    EXPECT_EQ(page.find("nan"), std::string::npos);
    EXPECT_EQ(page.find("inf "), std::string::npos);
}

TEST(BenchReport, AMachineThatOthersUseIsSaidToBe) {
    Study s = study();
    EXPECT_EQ(html_report(s).find("beside other programs"), std::string::npos);
    s.machine.busy = 3;
    EXPECT_NE(html_report(s).find("beside other programs"), std::string::npos);
    EXPECT_NE(table_report(s).find("not to be quoted"), std::string::npos);
}

TEST(BenchReport, AChangeOfPaceIsSaid) {
    Study s = study();
    EXPECT_EQ(table_report(s).find("changed its pace"), std::string::npos);
    EXPECT_TRUE(json_report(s, false)["points"][0]["floor"]["unsteady"].is_null());
    s.points[0].before.read_bytes_per_s = 80e9;
    s.points[0].after.read_bytes_per_s = 50e9;
    judge(s.points[0], model_of(s.info), s.machine);
    EXPECT_NE(table_report(s).find("100 prompt, 4 new, 1: the machine changed its pace"), std::string::npos);
    EXPECT_NE(html_report(s).find("changed its pace"), std::string::npos);
    const auto floor = json_report(s, false)["points"][0]["floor"];
    EXPECT_EQ(floor["limit_read_bytes_per_s"], 80e9);
    EXPECT_NE(floor["unsteady"].get<std::string>().find("from 80 to 50 GB/s read;"), std::string::npos);
}

TEST(BenchReport, ChartsOfOneTokenAndOnePointSayWhatTheyNeed) {
    Study s = study();
    s.points.resize(1);
    s.points[0].point.new_tokens = 1;
    s.points[0].repetitions = {{record(100, 1, 0.1, 0)}};
    judge(s.points[0], model_of(s.info), s.machine);
    const std::string page = html_report(s);
    EXPECT_NE(page.find("Needs several prompt lengths"), std::string::npos);
    EXPECT_NE(page.find("Needs two new tokens"), std::string::npos);
}

TEST(BenchChart, Ticks) {
    EXPECT_EQ(linear_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
    EXPECT_EQ(linear_ticks(0, 1, 5).size(), 6u);
    EXPECT_EQ(log_ticks(1, 1000), (std::vector<double>{1, 10, 100, 1000}));
    EXPECT_EQ(log_ticks(30, 600), (std::vector<double>{50, 100, 200, 500}));
    EXPECT_GE(log_ticks(21, 45).size(), 2u);
    EXPECT_EQ(tick_text(0), "0");
    EXPECT_EQ(tick_text(0.5), "0.5");
    EXPECT_EQ(tick_text(1500), "1500");
    EXPECT_EQ(tick_text(20000), "20k");
}

TEST(BenchChart, HistogramCountsAll) {
    std::vector<double> values;
    for (int i = 0; i < 1000; ++i) values.push_back(1 + 0.001 * i);
    values.push_back(1e6);  // beyond the last bin: counted there
    const std::string svg = draw_histogram("t", "ms", values);
    int sum = 0;
    for (std::size_t at = svg.find("<title>"); at != std::string::npos; at = svg.find("<title>", at + 1))
        sum += std::atoi(svg.c_str() + at + 7);
    EXPECT_EQ(sum, 1001);
    EXPECT_NE(draw_histogram("equal values", "ms", {2, 2, 2}).find("<title>3 gaps"), std::string::npos);
}

}  // namespace
}  // namespace llmgen::bench
