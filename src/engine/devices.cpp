// What this machine offers: `llmgen devices`.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/cores.h"
#include "llmgen/llmgen.h"
#include "ops/backend.h"

namespace llmgen {
namespace {

using Json = nlohmann::ordered_json;

/// The flags of /proc/cpuinfo that matter to matmuls.
Json cpu_features() {
    constexpr const char* kWanted[] = {"avx2",     "fma",         "f16c",        "avx512f",
                                       "avx512bw", "avx512_vnni", "avx512_bf16", "amx_tile",
                                       "amx_bf16", "amx_int8",    "asimd",       "bf16"};
    Json found = Json::array();
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
        line += ' ';
        for (const char* flag : kWanted)
            if (line.find(fmt::format(" {} ", flag)) != std::string::npos) found.push_back(flag);
        break;
    }
    return found;
}

}  // namespace

std::string describe_devices(bool measure, int threads) {
    const int n_threads = threads > 0 ? threads : usable_cores();
    Json devices = Json::array();
    for (const DeviceReport& report : list_devices()) {
        Json device = {{"name", report.info.name}, {"usable", report.problem.empty()}};
        if (!report.info.description.empty()) device["description"] = report.info.description;
        if (!report.problem.empty()) device["problem"] = report.problem;
        if (report.info.memory_total > 0) {
            device["memory_total"] = report.info.memory_total;
            device["memory_free"] = report.info.memory_free;
        }
        if (report.info.name == "cpu") {
            device["features"] = cpu_features();
            device["threads"] = n_threads;
        }
        if (measure && report.problem.empty()) {
            const MachineLimits limits = measure_device(report.info.name, n_threads);
            const auto add = [&](const char* name, double value) {
                if (value > 0) device[name] = value;
            };
            add("read_bandwidth_bytes_per_s", limits.read_bytes_per_s);
            add("matmul_bf16_flop_per_s", limits.bf16_flop_per_s);
            add("matmul_f32_flop_per_s", limits.f32_flop_per_s);
            if (limits.cache_bytes > 0) device["cache_bytes"] = limits.cache_bytes;
        }
        devices.push_back(std::move(device));
    }
    const Json report = {{"version", version()}, {"devices", devices}};
    return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace llmgen
