#include "app/bench/traps.h"

#include <fmt/format.h>

#include "base/error.h"

namespace llmgen::bench {
namespace {

// What a reader can check by himself: the pace times the bytes of a step against the machine's bandwidth.
std::string bandwidth_check(double tokens_per_s, const Model& model, const Machine& machine) {
    if (tokens_per_s <= 0) return "";
    const double needed = tokens_per_s * double(model.weight_bytes);
    if (machine.read_bytes_per_s <= 0) return fmt::format("would read {:.1f} GB/s", needed / 1e9);
    const bool possible = implausible_decode(model, machine, 1, 0, 1 / tokens_per_s).empty();
    return fmt::format("would read {:.1f} GB/s, the machine reaches {:.1f}{}", needed / 1e9,
                       machine.read_bytes_per_s / 1e9, possible ? "" : ": impossible");
}

}  // namespace

std::vector<TrapRow> trap_rows(const PointResult& result, const Model& model, const Machine& machine) {
    CHECK(!result.repetitions.empty() && !result.repetitions.back().empty());
    const Record& record = result.repetitions.back().front();
    const RequestTimes& t = record.times;
    CHECK(t.n_out() > 1, "the traps need two tokens at least, there are {}", t.n_out());
    std::vector<TrapRow> rows(3);
    const double decode_s = t.e2e_s() - t.ttft_s();
    rows[0].name = "right";
    rows[0].right = true;
    rows[0].tokens_per_s = (t.n_out() - 1) / decode_s;
    rows[0].how = fmt::format("({} - 1) tokens / {:.4f} s from the first to the last token on the host",
                              t.n_out(), decode_s);
    rows[0].verdict = bandwidth_check(rows[0].tokens_per_s, model, machine);

    rows[1].name = "prompt counted as output";
    rows[1].tokens_per_s = (t.prompt_tokens + t.n_out()) / t.e2e_s();
    rows[1].how = fmt::format("({} + {}) tokens / {:.4f} s", t.prompt_tokens, t.n_out(), t.e2e_s());
    rows[1].verdict = fmt::format(
        "WRONG, {:.2f} times the truth: reading a prompt is not writing; the figure "
        "moves with the prompt's length",
        rows[1].tokens_per_s / rows[0].tokens_per_s);

    rows[2].name = "stopwatch without waiting";
    rows[2].tokens_per_s = t.n_out() / record.submit_s;
    rows[2].how = fmt::format("{} tokens / {:.6f} s until the call returned, the work still under way",
                              t.n_out(), record.submit_s);
    rows[2].verdict =
        fmt::format("WRONG, {:.0f} times the truth: {}", rows[2].tokens_per_s / rows[0].tokens_per_s,
                    bandwidth_check(rows[2].tokens_per_s, model, machine));
    return rows;
}

std::string trap_table(const std::vector<TrapRow>& rows) {
    std::string out = "One run, reported three ways\n";
    for (const TrapRow& row : rows)
        out += fmt::format("  {:<7}{:<26} {:>12.1f} tok/s\n         = {}\n         {}\n",
                           row.right ? "RIGHT" : "WRONG", row.name, row.tokens_per_s, row.how, row.verdict);
    return out;
}

}  // namespace llmgen::bench
