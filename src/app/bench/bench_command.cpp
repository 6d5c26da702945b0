#include "app/bench/bench_command.h"

#include <ctime>
#include <filesystem>
#include <fstream>

#include "app/bench/energy.h"
#include "app/bench/peak_memory.h"
#include "app/bench/report_html.h"
#include "app/bench/report_text.h"
#include "app/bench/traps.h"
#include "app/cli/flags.h"
#include "app/cli/io.h"
#include "app/cli/json.h"
#include "app/cli/options.h"
#include "app/cli/session.h"
#include "base/error.h"

namespace llmgen::app {
namespace {

using namespace llmgen::bench;

constexpr const char* kExample =
    "  llmgen bench                                      # 512 prompt, 128 new tokens, 5 repetitions\n"
    "  llmgen bench --prompt-tokens 128,512,2048 --concurrency 1..32 --report bench.html\n"
    "  llmgen bench --sweep                              # 10 to 8000 words: TTFT grows, TPOT hardly\n"
    "  llmgen bench --rate 0.5,1,2 --requests 32         # Poisson arrivals: shows the queue\n"
    "  llmgen bench --model DIR/WITH/config.json/ --dummy-weights --format json\n"
    "\n"
    "Token counts are exact (EOS is ignored, a shorter answer is an error), prompts differ, the prefix cache "
    "is\n"
    "off, the warm-up isn't counted. Beside each figure stands the floor: the bytes that a step must read "
    "over\n"
    "the read bandwidth measured around the same load. A figure beyond the machine's limits is refused (exit "
    "code "
    "1).";

std::string now_text() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    char text[40];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

std::vector<std::vector<int>> read_prompts(const std::string& path) {
    std::vector<std::vector<int>> prompts;
    LineReader lines(path);
    while (const auto line = lines.next()) {
        const std::string where = fmt::format("{} line {}", printable(path), lines.line_number());
        prompts.push_back(ids_from_json(parse_json(*line, where), where));
        if (prompts.back().empty()) fail("{}: the prompt is empty", where);
        if (prompts.back().size() != prompts.front().size())
            fail("{}: {} ids, the first prompt has {}; prompts of one run are of one length", where,
                 prompts.back().size(), prompts.front().size());
    }
    if (prompts.empty()) fail("{}: no prompt in it", printable(path));
    return prompts;
}

class Bench : public Command {
public:
    explicit Bench(CLI::App& root)
        : Command(add_subcommand(
              root, "bench", "Latency and throughput beside what the machine allows", kExample)) {
        Flags flags(*app_);
        flags.group("Load");
        const auto list = [&](const char* name, std::vector<int>& target, const char* text) {
            flags.custom(name, "LIST", text, [&target](const std::string& flag, const std::string& value) {
                target = parse_list(flag, value);
            });
        };
        list("--prompt-tokens", grid_.prompt_tokens, "prompt lengths, 128,512 or 128..2048 (512)");
        list("--new-tokens", grid_.new_tokens, "tokens to generate (128)");
        list("--concurrency", grid_.concurrency, "clients that each wait for their answer, 1..32 (1)");
        flags.custom("--rate", "LIST", "requests a second that arrive by themselves (Poisson)",
                     [this](const std::string& flag, const std::string& value) {
                         grid_.rates = parse_rates(flag, value);
                     });
        flags.integer("--requests", grid_.requests, 1, 1 << 20,
                      "of each repetition (one a client; 16 at a rate)");
        flags.integer("--repetitions", settings_.repetitions, 1, 1 << 20, "of each load (5)");
        flags.integer("--warmup", settings_.warmup, 0, 1 << 20, "repetitions before them, not counted (1)");
        flags.custom("--seed", "N", "of prompts and arrivals (1)",
                     [this](const std::string& flag, const std::string& value) {
                         settings_.seed = parse_unsigned(flag, value);
                     });
        flags.text("--prompts", prompts_file_, "FILE", "prompts to take in turn: a JSON list of ids a line");
        flags.flag("--sweep", sweep_, "prompts of 10, 100, 500, 1500, 8000 words, 50 new tokens");
        flags.flag("--traps", traps_, "one run reported three ways: right, and as it's often done wrong");
        flags.flag("--prefix-cache", settings_.prefix_cache, "let prompts be found in the prefix cache");
        flags.flag("--dummy-weights", settings_.dummy_weights,
                   "--model needs a config.json only; weights are pseudo-random");
        flags.flag_off("--no-floor", floor_, "don't measure the machine: no floor, and no check against it");
        flags.group("Output");
        flags.choice("--format", format_, "table|md|csv|json|jsonl", "on stdout (table)");
        flags.text("--report", report_file_, "FILE.html",
                   "a page with the plots, beside what goes to stdout");
        flags.flag("--ids", ids_, "the generated ids too (json, jsonl)");
        engine_.add_to(flags);
    }

    int run(Context&) override {
        if (sweep_ && (!grid_.prompt_tokens.empty() || !grid_.new_tokens.empty() || !grid_.rates.empty() ||
                       !grid_.concurrency.empty() || !prompts_file_.empty()))
            fail_usage(
                "--sweep brings its own loads; leave --prompt-tokens, --new-tokens, --concurrency, --rate "
                "and --prompts out");
        if (traps_ && !grid_.new_tokens.empty() && grid_.new_tokens.front() < 2)
            fail_usage("--traps needs --new-tokens of 2 or more: a pace lies between two tokens");
        if (!prompts_file_.empty()) {
            if (!grid_.prompt_tokens.empty())
                fail_usage("--prompts says how long they are; leave --prompt-tokens out");
            settings_.prompts = read_prompts(prompts_file_);
            grid_.prompt_tokens = {int(settings_.prompts.front().size())};
        }
        Engine engine = open_engine(options(), engine_.quiet);
        Study study;
        study.info = engine.info();
        study.settings = settings_;
        study.date = now_text();
        study.command = command_line();
        Progress progress(!engine_.quiet && is_capable_terminal(2));
        study.machine.description = study.info.device_description;
        if (floor_) {
            progress.show("measuring the machine", true);
            study.machine = measure(study);
        }
        measure_points(engine, study, progress);
        judge_points(study, progress);
        progress.clear();
        if (sweep_) study.claims = sweep_claims(study.points);
        study.peak_memory_bytes = memory_.bytes();
        return report(study);
    }

private:
    bool default_loads() const {
        return grid_.prompt_tokens.empty() && grid_.new_tokens.empty() && grid_.concurrency.empty() &&
               grid_.rates.empty();
    }

    EngineOptions options() const {
        EngineOptions out = engine_.options();
        out.prefix_cache = settings_.prefix_cache;
        out.dummy_weights = settings_.dummy_weights;
        int clients = 1;
        for (const int c : grid_.concurrency) clients = std::max(clients, c);
        if (!report_file_.empty()) clients = std::max(clients, 32);
        if (!grid_.rates.empty()) clients = std::max(clients, 64);
        out.max_sequences = clients;
        return out;
    }

    std::string command_line() const {
        std::string out = "llmgen bench";
        for (const CLI::Option* option : app_->get_options()) {
            if (option->count() == 0) continue;
            out += " " + option->get_name();
            if (option->get_items_expected_max() == 0) continue;
            for (const std::string& value : option->results()) out += " " + value;
        }
        return out;
    }

    std::vector<Point> points(const EngineInfo& info) const {
        if (default_loads() && !report_file_.empty() && !traps_) return report_points(info.max_context);
        Grid grid = grid_;
        if (grid.prompt_tokens.empty()) grid.prompt_tokens = {512};
        if (grid.new_tokens.empty()) grid.new_tokens = {128};
        if (grid.concurrency.empty() && grid.rates.empty()) grid.concurrency = {1};
        std::vector<Point> out = grid_points(grid);
        for (const Point& point : out)
            if (point.prompt_tokens + point.new_tokens > info.max_context)
                fail_usage("{} prompt and {} new tokens don't fit the context of {} tokens",
                           point.prompt_tokens, point.new_tokens, info.max_context);
        return out;
    }

    // The tokenizer, where there is one: dummy weights need none.
    const Tokenizer* tokenizer_of(const Engine& engine) const {
        namespace fs = std::filesystem;
        const fs::path dir = engine.info().model_path;
        const bool there = fs::exists(dir / "tokenizer.json") || fs::exists(dir / "tokenizer.model");
        return there ? &engine.tokenizer() : nullptr;
    }

    // The limits now; the study keeps the best ever seen.
    Machine measure(Study& study) {
        memory_.pause();
        const Machine now = measure_machine(study.info);
        memory_.resume();
        study.machine = best_of(study.machine, now);
        return now;
    }

    void measure_points(Engine& engine, Study& study, Progress& progress) {
        const Tokenizer* tokenizer = tokenizer_of(engine);
        const std::vector<int> ordinary = ordinary_ids(study.info, tokenizer);
        const auto seed_of = [this](const Point& p, int repetition, int index) {
            return settings_.seed * 1000003 + std::uint64_t(p.prompt_tokens) * 7919 +
                   std::uint64_t(repetition + settings_.warmup) * 131071 + std::uint64_t(index);
        };
        const auto words_prompt = [&](int words, std::uint64_t seed) {
            if (!tokenizer) return random_prompt(ordinary, (words * 4 + 2) / 3, seed);
            Request request;
            request.prompt = RawText{sweep_text(words, seed)};
            return engine.format(request).ids;
        };
        PromptOf prompt_of = [&](const Point& p, int repetition, int index) {
            return random_prompt(ordinary, p.prompt_tokens, seed_of(p, repetition, index));
        };
        std::vector<Point> loads;
        if (sweep_) {
            // Each repetition has words of its own; its ids are cut or filled up to the first one's length.
            for (const int words : kSweepWords) {
                Point point{.new_tokens = kSweepNewTokens, .words = words};
                point.prompt_tokens = int(words_prompt(words, settings_.seed).size());
                if (point.prompt_tokens + point.new_tokens <= study.info.max_context)
                    loads.push_back(point);
                else
                    study.notes.push_back(
                        fmt::format("left out: {} words are {} tokens, the context holds {}", words,
                                    point.prompt_tokens, study.info.max_context));
            }
            prompt_of = [&](const Point& p, int repetition, int index) {
                std::vector<int> ids = words_prompt(p.words, seed_of(p, repetition, index));
                while (int(ids.size()) < p.prompt_tokens) ids.push_back(ids[ids.size() / 2]);
                ids.resize(std::size_t(p.prompt_tokens));
                return ids;
            };
        } else {
            loads = points(study.info);
        }
        if (!settings_.prompts.empty())
            prompt_of = [&](const Point& p, int repetition, int index) {
                const std::size_t at =
                    std::size_t(std::max(repetition, 0)) * std::size_t(p.requests) + std::size_t(index);
                return settings_.prompts[at % settings_.prompts.size()];
            };
        if (settings_.warmup > 0) {
            progress.show("warm-up", true);
            settle(engine, ordinary);
        }
        const auto energy = energy_counter(study.info.device);
        if (energy) study.energy_source = study.info.device == "cpu" ? "RAPL" : "NVML";
        Machine beside = study.machine;
        for (std::size_t i = 0; i < loads.size(); ++i) {
            const auto on_step = [&](const std::string& step) {
                progress.show(
                    fmt::format("load {} of {}: {} prompt, {} new, {}: {}", i + 1, loads.size(),
                                loads[i].prompt_tokens, loads[i].new_tokens, load_name(loads[i]), step),
                    true);
            };
            study.points.push_back(
                run_point(loads[i], settings_, serve_with(engine), prompt_of, energy, on_step));
            study.points.back().before = beside;
            if (floor_) beside = measure(study);
            study.points.back().after = beside;
        }
    }

    // The CPU reads weights where the file has them until copying them pays: a first load of few tokens would
    // be measured while they are copied. After this request they all are.
    void settle(Engine& engine, const std::vector<int>& ordinary) const {
        const int n = std::clamp(engine.info().max_context / 2, 1, 64);
        engine.generate(measured_request(random_prompt(ordinary, n, settings_.seed), n));
    }

    void judge_points(Study& study, Progress& progress) {
        const auto judge_all = [&] {
            for (PointResult& point : study.points) judge(point, model_of(study.info), study.machine);
        };
        judge_all();
        // A figure is refused for good only after the machine had several more chances to show what it can.
        for (int chance = 0; floor_ && chance < 4 && study.refused(); ++chance) {
            progress.show("measuring the machine again", true);
            measure(study);
            judge_all();
        }
    }

    int report(const Study& study) const {
        if (format_ == "table") write_stdout(table_report(study));
        if (format_ == "md") write_stdout(markdown_report(study));
        if (format_ == "csv") write_stdout(csv_report(study));
        if (format_ == "json") write_stdout(dump(json_report(study, ids_)) + "\n");
        if (format_ == "jsonl") write_stdout(jsonl_report(study, ids_));
        if (traps_) {
            const std::string table =
                trap_table(trap_rows(study.points.front(), model_of(study.info), study.machine));
            if (format_ == "table" || format_ == "md")
                write_stdout("\n" + table);
            else
                write_stderr(table);
        }
        if (!report_file_.empty()) {
            std::ofstream file(report_file_, std::ios::binary | std::ios::trunc);
            file << html_report(study);
            file.close();
            if (!file) fail("{}: the report could not be written", printable(report_file_));
            if (!engine_.quiet) say("wrote {}", report_file_);
        }
        bool sound = !study.refused();
        if (!sound) say("error: figures were refused: they lie beyond what this machine can do");
        for (const Claim& claim : study.claims)
            if (!claim.holds) {
                say("error: does not hold: {}", claim.text);
                sound = false;
            }
        return sound ? kDone : kFailed;
    }

    Grid grid_;
    StudySettings settings_;
    PeakMemory memory_;
    EngineFlags engine_;
    std::string format_ = "table", report_file_, prompts_file_;
    bool sweep_ = false, traps_ = false, ids_ = false, floor_ = true;
};

}  // namespace

std::unique_ptr<Command> make_bench(CLI::App& root) { return std::make_unique<Bench>(root); }

}  // namespace llmgen::app
