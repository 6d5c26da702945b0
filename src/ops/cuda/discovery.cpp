#include "ops/cuda/discovery.h"

#include "base/error.h"
#include "kernels.h"
#include "ops/cuda/device_api.h"
#include "ops/cuda/lt_api.h"

#ifndef LLMGEN_CUDA_BUILT_FOR
#define LLMGEN_CUDA_BUILT_FOR "none"
#endif

namespace llmgen::cuda {
namespace {

/// Memory of the probe; errors are the caller's to see.
class Probe {
public:
    ~Probe() {
        if (memory_ != nullptr) cudaFree(memory_);
        if (stream_ != nullptr) cudaStreamDestroy(stream_);
        if (host_ != nullptr) cudaFreeHost(host_);
    }

    /// cos and sin of 0 by the kernel that makes rope's angles: {1, 0}.
    cudaError_t run(float (&result)[2]) {
        cudaError_t error = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
        if (error == cudaSuccess) error = cudaMalloc(&memory_, 1024);
        if (error == cudaSuccess) error = cudaHostAlloc(&host_, sizeof(result), cudaHostAllocDefault);
        if (error == cudaSuccess) error = cudaMemsetAsync(memory_, 0, 1024, stream_);
        if (error != cudaSuccess) return error;
        float* values = static_cast<float*>(memory_);  // [0] position, [64] frequency, [128] cos, sin
        kernels::rope_angles(values + 128, reinterpret_cast<const int*>(values), values + 64, 1.0f, 1, 1,
                             stream_);
        error = cudaGetLastError();
        if (error == cudaSuccess)
            error = cudaMemcpyAsync(host_, values + 128, sizeof(result), cudaMemcpyDeviceToHost, stream_);
        if (error == cudaSuccess) error = cudaStreamSynchronize(stream_);
        if (error != cudaSuccess) return error;
        result[0] = static_cast<const float*>(host_)[0];
        result[1] = static_cast<const float*>(host_)[1];
        return cudaSuccess;
    }

private:
    cudaStream_t stream_ = nullptr;
    void* memory_ = nullptr;
    void* host_ = nullptr;
};

std::string said(cudaError_t error, int ordinal) {
    cudaGetLastError();  // off the record, or the next check would find it
    return explain(error, ordinal);
}

}  // namespace

std::string built_architectures() { return LLMGEN_CUDA_BUILT_FOR; }

std::string driver_problem() {
    int n = 0;
    if (const cudaError_t error = cudaGetDeviceCount(&n); error != cudaSuccess) return said(error, 0);
    return n > 0 ? "" : explain(cudaErrorNoDevice, 0);
}

int n_devices() {
    int n = 0;
    if (cudaGetDeviceCount(&n) == cudaSuccess) return n;
    cudaGetLastError();
    return 0;
}

DeviceInfo device_info(int ordinal) {
    DeviceInfo info;
    info.name = fmt::format("cuda:{}", ordinal);
    cudaDeviceProp card{};
    if (cudaGetDeviceProperties(&card, ordinal) == cudaSuccess) {
        int driver = 0;
        cudaDriverGetVersion(&driver);
        info.description = fmt::format("{}, sm_{}{}, {} SMs, driver for CUDA {}", card.name, card.major,
                                       card.minor, card.multiProcessorCount, version_text(driver));
        info.memory_total = card.totalGlobalMem;
    }
    std::size_t free = 0, total = 0;  // asks the current device
    if (cudaSetDevice(ordinal) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess) {
        info.memory_free = free;
        info.memory_total = total;
    }
    cudaGetLastError();
    return info;
}

std::string device_problem(int ordinal) {
    if (std::string reason = driver_problem(); !reason.empty()) return reason;
    if (ordinal < 0 || ordinal >= n_devices()) return explain(cudaErrorInvalidDevice, ordinal);
    int mode = 0;
    if (cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, ordinal) == cudaSuccess &&
        mode == cudaComputeModeProhibited)
        return "the GPU's compute mode is Prohibited; nvidia-smi -c 0 allows it again";
    if (const cudaError_t error = cudaSetDevice(ordinal); error != cudaSuccess) return said(error, ordinal);
    float result[2] = {};
    if (const cudaError_t error = Probe().run(result); error != cudaSuccess) return said(error, ordinal);
    if (result[0] != 1.0f || result[1] != 0.0f)
        return fmt::format("the GPU computes wrongly: cos 0 = {}, sin 0 = {}", result[0], result[1]);
    return lt_problem();
}

}  // namespace llmgen::cuda
