#include "ops/cpu/bandwidth.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <vector>

#include "ops/cpu/linear_kernels.h"
#include "ops/cpu/memory.h"

namespace llmgen {
namespace {

// Timed piece by piece: whole passes would count every interruption by other processes.
constexpr std::size_t kPiece = std::size_t(1) << 20;

double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::uint64_t sum_of(const std::uint64_t* data, std::size_t n) {
    std::uint64_t sum[8] = {};
    for (std::size_t i = 0; i + 8 <= n; i += 8)
        for (std::size_t j = 0; j < 8; ++j) sum[j] += data[i + j];
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

/// Reads like a GEMV of 576 inputs: panels one after another.
float gemv_over(const cpu::LinearKernels& kernels, const char* data, std::size_t bytes) {
    constexpr std::int64_t kDepth = 576;
    constexpr std::size_t kPanelBytes = cpu::kPanel * kDepth * sizeof(bf16);
    const float x[kDepth] = {};
    float sums[cpu::kPanel];
    float total = 0;
    for (std::size_t at = 0; at + kPanelBytes <= bytes; at += kPanelBytes) {
        kernels.tile[1](sums, cpu::kPanel, data + at, x, kDepth, {data + at + cpu::kStreamAhead, 128});
        total += sums[0];
    }
    return total;
}

double median(std::vector<double>& values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace

std::size_t last_cache_bytes() {
    std::size_t largest = 0;
    for (int index = 0; index < 8; ++index) {
        // A size as "32768K".
        std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index));
        std::size_t size = 0;
        char unit = 0;
        if (file >> size >> unit)
            largest = std::max(largest, size << (unit == 'M' ? 20 : unit == 'K' ? 10 : 0));
    }
    return largest;
}

double measure_read_bandwidth(int threads) {
    // Sixteen times the last cache, so that little of it is left from pass to pass; no more, because a first
    // touch costs the kernel time and the process peak memory.
    const std::size_t wanted =
        std::clamp(last_cache_bytes() * 16, std::size_t(256) << 20, std::size_t(1) << 30);
    const std::size_t bytes = std::min(wanted, cpu::memory_status().available / 4) / 4096 * 4096;
    cpu::Arena arena;
    const cpu::Arena::Piece memory = arena.allocate(bytes);
    const auto* data = static_cast<const char*>(memory.data);
    const cpu::LinearKernels kernels = cpu::linear_kernels(DType::bf16, DType::bf16, cpu::best_isa());
    const auto n_pieces = std::int64_t(bytes / kPiece);
    std::atomic<std::uint64_t> sink = 0;  // so that no read is left out
    double plain = 0, gemv = 0;
#pragma omp parallel num_threads(threads) reduction(+ : plain, gemv)
    {
        const std::int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
        const std::int64_t begin = n_pieces * self / team, end = n_pieces * (self + 1) / team;
        std::memset(static_cast<char*>(memory.data) + begin * kPiece, 1, std::size_t(end - begin) * kPiece);
        std::vector<double> rates[2];
#pragma omp barrier
        for (int pass = 0; pass < 6; ++pass)
            for (std::int64_t piece = begin; piece < end; ++piece) {
                const char* from = data + piece * std::int64_t(kPiece);
                const double start = seconds();
                sink += pass % 2 == 0 ? sum_of(reinterpret_cast<const std::uint64_t*>(from), kPiece / 8)
                                      : std::uint64_t(gemv_over(kernels, from, kPiece) != 1);
                rates[pass % 2].push_back(double(kPiece) / (seconds() - start));
            }
        plain = median(rates[0]);
        gemv = median(rates[1]);
    }
    return std::max(plain, gemv);
}

double measure_matmul_peak(int threads, Compute compute) {
    constexpr std::int64_t kDepth = 256;
    const DType act = activation_type(compute);
    const cpu::LinearKernels kernels = cpu::linear_kernels(act, act, cpu::best_isa());
    const int rows = kernels.tile_rows(cpu::kMaxTileRows);
    double total = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
        // Ones: values that overflow or are denormal could run slower.
        const std::vector<float> ones(std::size_t(kDepth * std::max(cpu::kPanel, rows)), 1.0f);
        std::vector<bf16> halves(ones.size(), to_bf16(1.0f));
        std::vector<float> sums(std::size_t(rows * cpu::kPanel));
        const auto pick = [&](DType type) {
            return type == DType::bf16 ? static_cast<const void*>(halves.data()) : ones.data();
        };
        double best = 0;
        for (int pass = 0; pass < 20; ++pass) {
            constexpr int kRuns = 200;
            const double start = seconds();
            for (int run = 0; run < kRuns; ++run) {
                const auto* panel = static_cast<const char*>(pick(act));
                kernels.tile[std::size_t(rows)](sums.data(), cpu::kPanel, panel, pick(kernels.x_type), kDepth,
                                                {panel, 0});
            }
            best = std::max(best, 2.0 * rows * cpu::kPanel * double(kDepth) * kRuns / (seconds() - start));
        }
        total += best;
    }
    return total;
}

}  // namespace llmgen
