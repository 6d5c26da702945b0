#include "app/bench/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

namespace llmgen::bench {

Model model_of(const EngineInfo& info) {
    Model m;
    m.weight_bytes = info.weight_bytes;
    m.kv_bytes_per_token = info.kv_bytes_per_token;
    m.prefill_flop_per_token = info.prefill_flop_per_token;
    m.flop_last = 2.0 * info.hidden_size * info.vocab_size;
    m.attention_flop_per_token2 = 2.0 * info.n_layers * info.hidden_size;
    return m;
}

double step_bytes(const Model& model, double batch, double context) {
    return double(model.weight_bytes) + batch * context * double(model.kv_bytes_per_token);
}

double decode_floor_s(const Model& model, const Machine& machine, double batch, double context) {
    if (machine.read_bytes_per_s <= 0) return 0;
    return step_bytes(model, batch, context) / machine.read_bytes_per_s;
}

double prefill_flop(const Model& model, double n) {
    return n * model.prefill_flop_per_token + n * n * model.attention_flop_per_token2 + model.flop_last;
}

std::string implausible_decode(
    const Model& model, const Machine& machine, double batch, double context, double step_s) {
    if (machine.read_bytes_per_s <= 0 || step_s <= 0) return "";
    // Of the keys and values only part need come from memory; the weights are what a step can't do without.
    const double must_read = std::max(0.0, double(model.weight_bytes) - double(machine.cache_bytes));
    if (must_read / step_s <= kTolerance * machine.busy * machine.read_bytes_per_s) return "";
    const double bytes = step_bytes(model, batch, context);
    return fmt::format(
        "{:.3f} ms a token can't be: it would take {:.0f} GB/s, and a plain read loop reaches {:.0f} GB/s "
        "here; "
        "the stopwatch stopped early, or the work was not done",
        1e3 * step_s, bytes / step_s / 1e9, machine.read_bytes_per_s / 1e9);
}

std::string implausible_prefill(const Model& model, const Machine& machine, double n, double seconds) {
    if (machine.matmul_flop_per_s <= 0 || seconds <= 0) return "";
    const double reached = prefill_flop(model, n) / seconds;
    if (reached <= kTolerance * machine.busy * machine.matmul_flop_per_s) return "";
    return fmt::format(
        "{:.2f} ms to the first token of {:.0f} can't be: it would take {:.3f} TFLOP/s, and a plain matmul "
        "reaches {:.3f} TFLOP/s here; was the prompt in the cache, or the stopwatch stopped early?",
        1e3 * seconds, n, reached / 1e12, machine.matmul_flop_per_s / 1e12);
}

namespace {

double number(const nlohmann::json& object, const std::string& key) {
    return object.contains(key) && object[key].is_number() ? object[key].get<double>() : 0;
}

}  // namespace

Machine machine_from_json(const std::string& devices_json,
                          const std::string& device,
                          const std::string& compute) {
    Machine machine;
    const auto report = nlohmann::json::parse(devices_json, nullptr, false);
    if (!report.is_object() || !report.contains("devices") || !report["devices"].is_array()) return machine;
    for (const auto& facts : report["devices"]) {
        if (!facts.is_object() || !facts.contains("name") || facts["name"] != device) continue;
        if (facts.contains("description") && facts["description"].is_string())
            machine.description = facts["description"].get<std::string>();
        machine.read_bytes_per_s = number(facts, "read_bandwidth_bytes_per_s");
        machine.matmul_flop_per_s = number(facts, "matmul_" + compute + "_flop_per_s");
        machine.cache_bytes = std::size_t(number(facts, "cache_bytes"));
    }
    return machine;
}

Machine measure_machine(const EngineInfo& info) {
    Machine machine = machine_from_json(describe_devices(true, info.threads), info.device, info.compute);
    if (machine.description.empty()) machine.description = info.device_description;
    double load = 0;
    if (info.device == "cpu" && getloadavg(&load, 1) == 1)
        machine.busy = busy_factor(load, info.threads, int(std::thread::hardware_concurrency()));
    return machine;
}

double busy_factor(double load, int threads, int cores) {
    // Our own threads are part of the load, or soon will be.
    const double wanted = std::max(load, double(threads));
    return wanted <= 1.25 * cores || cores < 1 ? 1 : wanted / cores;
}

Machine best_of(const Machine& a, const Machine& b) {
    Machine best = a;
    best.read_bytes_per_s = std::max(a.read_bytes_per_s, b.read_bytes_per_s);
    best.matmul_flop_per_s = std::max(a.matmul_flop_per_s, b.matmul_flop_per_s);
    best.busy = std::max(a.busy, b.busy);
    return best;
}

}  // namespace llmgen::bench
