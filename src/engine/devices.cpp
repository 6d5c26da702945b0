// What this machine offers: `llmgen devices`. The measured figures are what reports put as the floor and the
// peak beside their pace.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "llmgen/llmgen.h"
#include "ops/backend.h"

namespace llmgen {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

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

/// Best of a few passes in which every thread sums its own part of a buffer that no cache holds.
double read_bandwidth(int n_threads) {
    constexpr std::size_t kBytes = std::size_t(512) << 20;
    std::vector<std::uint64_t> buffer(kBytes / sizeof(std::uint64_t), 1);
    std::vector<std::uint64_t> sums(std::size_t(n_threads), 0);
    double best = 0;
    for (int pass = 0; pass < 5; ++pass) {
        const Clock::time_point begin = Clock::now();
        {
            std::vector<std::jthread> threads;
            const std::size_t part = buffer.size() / std::size_t(n_threads);
            for (int t = 0; t < n_threads; ++t)
                threads.emplace_back([&, t] {
                    const std::uint64_t* from = buffer.data() + std::size_t(t) * part;
                    std::uint64_t lanes[8] = {};
                    for (std::size_t i = 0; i + 8 <= part; i += 8)
                        for (std::size_t lane = 0; lane < 8; ++lane) lanes[lane] += from[i + lane];
                    for (const std::uint64_t lane : lanes) sums[std::size_t(t)] += lane;
                });
        }
        best = std::max(best, double(kBytes) / seconds(Clock::now() - begin));
    }
    return sums.front() > 0 ? best : 0;  // the sums are used, so that the loops stay
}

/// Best of a few [512, 2048] × [2048, 2048] of the backend's own linear.
double matmul_peak(Compute compute, int threads) {
    constexpr std::int64_t kRows = 512, kSize = 2048;
    Backend backend = open_backend({"cpu", name_of(compute), threads});
    Ops& ops = *backend.ops;
    AttentionShape shape{
        .n_heads = 1, .n_kv_heads = 1, .head_dim = 64, .rotary_dim = 64, .scale = 1, .window = 0};
    ops.reserve(shape, int(kRows), 1, 16);
    std::vector<float> values(std::size_t(kSize * kSize), 0.01f);
    const Tensor host(values.data(), DType::f32, {kSize, kSize});
    const Weight weight = ops.make_weight(std::span(&host, 1));
    const DType act = activation_type(compute);
    const auto in = ops.allocate(std::size_t(kRows * kSize) * size_of(act), "measurement");
    const auto out = ops.allocate(std::size_t(kRows * kSize) * sizeof(float), "measurement");
    const Tensor x(in->data(), act, {kRows, kSize});
    const std::vector<std::byte> zeros(std::size_t(x.bytes()));
    ops.upload(x, zeros.data());
    double best = 0;
    for (int pass = 0; pass < 5; ++pass) {
        const Clock::time_point begin = Clock::now();
        ops.linear(Tensor(out->data(), DType::f32, {kRows, kSize}), x, weight);
        ops.synchronize();
        best = std::max(best, 2.0 * kRows * kSize * kSize / seconds(Clock::now() - begin));
    }
    return best;
}

}  // namespace

std::string describe_devices(bool measure, int threads) {
    const int n_threads = threads > 0 ? threads : std::max(1, int(std::thread::hardware_concurrency()));
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
            if (measure) {
                device["read_bandwidth_bytes_per_s"] = read_bandwidth(n_threads);
                device["matmul_bf16_flop_per_s"] = matmul_peak(Compute::bf16, threads);
                device["matmul_f32_flop_per_s"] = matmul_peak(Compute::f32, threads);
            }
        }
        devices.push_back(std::move(device));
    }
    const Json report = {{"version", version()}, {"devices", devices}};
    return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace llmgen
