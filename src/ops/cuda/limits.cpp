// What a GPU reaches: its read bandwidth and cuBLASLt's pace, beside which reports put their own.
//
// Sizes grow until a pass takes a millisecond or is large enough to leave the caches behind, so that the
// emulated device, a million times slower, is done soon too. The matrices hold one number everywhere, at
// which a chip draws less power than at work: the peak is one that real numbers don't quite reach.
#include <algorithm>
#include <chrono>
#include <functional>

#include "base/error.h"
#include "kernels.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/device_api.h"
#include "ops/cuda/device_gemm.h"
#include "ops/cuda/lt_api.h"

namespace llmgen {
namespace {

using namespace cuda;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostBytes = std::size_t(1) << 30, kLeastBytes = 1 << 20, kMostWorkspace = 32 << 20;
constexpr int kLargestMatrix = 8192, kSmallestMatrix = 64;
constexpr double kLongPass = 1e-3;
constexpr int kPasses = 16;  // in a row, so that the wait at their end hardly counts

class Memory {
public:
    /// As much as there is, up to `bytes`; null where even kLeastBytes are not.
    explicit Memory(std::size_t bytes) : bytes(bytes) {
        while (this->bytes >= kLeastBytes && cudaMalloc(&data, this->bytes) != cudaSuccess) {
            cudaGetLastError();
            data = nullptr;
            this->bytes /= 2;
        }
    }
    ~Memory() {
        if (data != nullptr) cudaFree(data);
    }
    Memory(const Memory&) = delete;
    void* data = nullptr;
    std::size_t bytes;
};

class Meter {
public:
    explicit Meter(int ordinal) : ordinal_(ordinal), stream_(ordinal) {}
    cudaStream_t stream() const { return stream_.get(); }

    /// Seconds of one pass: the best of three times kPasses; of one pass where that is long enough.
    double time(const std::function<void()>& pass) {
        const double once = run(pass, 1);  // also loads what has to be loaded
        if (once > 100 * kLongPass) return once;
        double best = once;
        for (int i = 0; i < 3; ++i) best = std::min(best, run(pass, kPasses) / kPasses);
        return best;
    }

private:
    double run(const std::function<void()>& pass, int n) {
        cuda_check(cudaStreamSynchronize(stream()), ordinal_, "measuring");
        const Clock::time_point begin = Clock::now();
        for (int i = 0; i < n; ++i) pass();
        cuda_check(cudaGetLastError(), ordinal_, "measuring");
        cuda_check(cudaStreamSynchronize(stream()), ordinal_, "measuring");
        return std::chrono::duration<double>(Clock::now() - begin).count();
    }

    int ordinal_;
    DeviceStream stream_;
};

double read_bandwidth(Meter& meter, const Memory& memory, int n_blocks) {
    // The last 256 bytes are the kernel's output.
    const std::size_t most = memory.bytes - 256;
    for (std::size_t bytes = kLeastBytes;; bytes *= 4) {
        bytes = std::min(bytes, most / 16 * 16);
        const double seconds = meter.time([&] {
            kernels::read_all(reinterpret_cast<int*>(static_cast<char*>(memory.data) + most), memory.data,
                              bytes, n_blocks, meter.stream());
        });
        if (bytes >= most / 16 * 16 || seconds > kLongPass) return double(bytes) / seconds;
    }
}

double matmul_peak(Meter& meter, const Memory& memory, DType type) {
    // With a workspace, as the backend has one: without, the peak may be that of a slower algorithm.
    const std::size_t workspace = std::min(kMostWorkspace, memory.bytes / 8 / 256 * 256);
    char* const matrices = static_cast<char*>(memory.data) + workspace;
    DeviceGemm gemm(lt_api(), memory.data, workspace);
    for (int n = kSmallestMatrix;; n *= 2) {
        const std::size_t matrix = std::size_t(n) * std::size_t(n) * size_of(type);
        Gemm p{};
        p.x = matrices;
        p.weight = matrices + matrix;
        p.y = matrices + 2 * matrix;
        p.act_type = p.y_type = type;
        p.x_stride = p.y_stride = n;
        p.n_tokens = p.out = p.in = n;
        const double seconds = meter.time([&] {
            if (!gemm.run(p, meter.stream())) fail("no GEMM of {} x {}", n, n);
        });
        const bool largest =
            n >= kLargestMatrix || workspace + 12 * matrix > memory.bytes;  // the next has 4 times as much
        if (largest || seconds > kLongPass) return 2.0 * n * n * n / seconds;
    }
}

}  // namespace

MachineLimits measure_cuda(int ordinal) {
    MachineLimits limits;
    try {
        cuda_check(cudaSetDevice(ordinal), ordinal, "measuring");
        cudaDeviceProp card{};
        cuda_check(cudaGetDeviceProperties(&card, ordinal), ordinal, "measuring");
        const Memory memory(kMostBytes);
        if (memory.data == nullptr) return limits;
        Meter meter(ordinal);
        constexpr int kSmallNumber = 0x3c;  // 0x3c3c is 0.011 in bf16, 0x3c3c3c3c the same in f32
        cuda_check(cudaMemsetAsync(memory.data, kSmallNumber, memory.bytes, meter.stream()), ordinal,
                   "measuring");
        limits.read_bytes_per_s = read_bandwidth(meter, memory, 4 * card.multiProcessorCount);
        limits.bf16_flop_per_s = matmul_peak(meter, memory, DType::bf16);
        limits.f32_flop_per_s = matmul_peak(meter, memory, DType::f32);
    } catch (const Error&) {  // a report without its floor is still a report
    }
    return limits;
}

}  // namespace llmgen
