#include "ops/backend.h"

#include <charconv>
#include <future>
#include <optional>

#include "ops/cpu/bandwidth.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace llmgen {
namespace {

Compute parse_compute(const std::string& text) {
    if (text == "auto" || text == "bf16") return Compute::bf16;
    if (text == "f32") return Compute::f32;
    fail_usage("--compute {}: unknown; give auto, f32 or bf16", text);
}

/// The N of "cuda" (0) or "cuda:N".
std::optional<int> parse_cuda_ordinal(const std::string& text) {
    if (text == "cuda") return 0;
    if (!text.starts_with("cuda:")) return std::nullopt;
    int ordinal = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + 5, end, ordinal);
    if (error != std::errc() || stop != end || ordinal < 0)
        fail_usage("--device {}: the part after the colon must be a number, as in cuda:0", text);
    return ordinal;
}

}  // namespace

Backend open_backend(const BackendOptions& options) {
    const Compute compute = parse_compute(options.compute);
    if (options.threads < 0) fail_usage("--threads {}: must not be negative", options.threads);
    const CpuOptions cpu{.threads = options.threads};
    if (options.device == "cpu") return {make_cpu_ops(compute, cpu), ""};
    if (options.device == "auto") {
        const std::string reason = cuda_unavailable_reason();
        if (reason.empty()) return {make_cuda_ops(0, compute), ""};
        return {make_cpu_ops(compute, cpu), "running on the CPU: " + reason};
    }
    if (const auto ordinal = parse_cuda_ordinal(options.device))
        return {make_cuda_ops(*ordinal, compute), ""};
    fail_usage("--device {}: unknown; give auto, cpu, cuda or cuda:N", options.device);
}

std::vector<DeviceReport> list_devices() {
    std::vector<DeviceReport> devices = list_cuda_devices();
    if (const std::string reason = cuda_unavailable_reason(); devices.empty() && !reason.empty()) {
        DeviceReport cuda;
        cuda.info.name = "cuda";
        cuda.problem = reason;
        devices.push_back(cuda);
    }
    devices.push_back({make_cpu_ops(Compute::bf16, {})->info(), ""});
    return devices;
}

MachineLimits measure_cpu(int threads) {
    // On a thread of its own: libgomp keeps a team for each thread that ever asked for one, and with more
    // threads in teams than cores it no longer spins at barriers. Measured from the main thread, this slowed
    // every later step of the engine to half its pace.
    const auto measure = [threads] {
        return MachineLimits{measure_read_bandwidth(threads), measure_matmul_peak(threads, Compute::bf16),
                             measure_matmul_peak(threads, Compute::f32), last_cache_bytes()};
    };
    return std::async(std::launch::async, measure).get();
}

MachineLimits measure_device(const std::string& name, int threads) {
    if (name == "cpu") return measure_cpu(threads);
    const auto ordinal = parse_cuda_ordinal(name);
    return ordinal ? measure_cuda(*ordinal) : MachineLimits{};
}

}  // namespace llmgen
