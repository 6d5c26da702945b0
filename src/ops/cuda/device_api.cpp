#include "ops/cuda/device_api.h"

#include "base/error.h"
#include "ops/cuda/discovery.h"

namespace llmgen::cuda {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

namespace {

/// No driver at all answers as one that is too old, with version 0.
std::string explain_driver() {
    int driver = 0, runtime = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = 0;
    if (driver == 0)
        return "no NVIDIA driver found (libcuda.so.1): install the driver, or run the container with its "
               "GPUs (--gpus all)";
    return fmt::format(
        "the NVIDIA driver is too old: it knows CUDA {}, this llmgen was built with CUDA {}; update the "
        "driver, or build with a toolkit of {}.x",
        version_text(driver), version_text(runtime), driver / 1000);
}

std::string explain_image(int ordinal) {
    cudaDeviceProp card{};
    std::string sm = "an unknown architecture";
    if (cudaGetDeviceProperties(&card, ordinal) == cudaSuccess)
        sm = fmt::format("sm_{}{} ({})", card.major, card.minor, card.name);
    return fmt::format(
        "no kernels for this card: it is {}, this llmgen has {}; build it on this machine (cmake --preset "
        "release), or with -DLLMGEN_CUDA_ARCHITECTURES",
        sm, built_architectures());
}

}  // namespace

std::string explain(cudaError_t error, int ordinal) {
    switch (error) {
        case cudaErrorInsufficientDriver:
            return explain_driver();
        case cudaErrorNoDevice:
            return "no NVIDIA GPU found; where there is one, CUDA_VISIBLE_DEVICES may hide it";
        case cudaErrorInvalidDevice: {
            int n = 0;
            if (cudaGetDeviceCount(&n) != cudaSuccess) n = 0;
            return fmt::format("no such GPU: this machine offers {}, numbered from 0", n);
        }
        case cudaErrorNoKernelImageForDevice:
        case cudaErrorInvalidKernelImage:
            return explain_image(ordinal);
        case cudaErrorUnsupportedPtxVersion:
            return explain_image(ordinal) + "; its PTX is newer than the driver";
        case cudaErrorDevicesUnavailable:
            return "the GPU is busy: another process holds it alone (nvidia-smi shows which; compute mode "
                   "Exclusive)";
        case cudaErrorMemoryAllocation: {
            std::size_t free = 0, total = 0;
            if (cudaMemGetInfo(&free, &total) != cudaSuccess || total == 0)
                return "out of GPU memory: too little is left to start; nvidia-smi shows who uses it";
            return fmt::format("out of GPU memory: {} of {} MiB are free; nvidia-smi shows who uses the rest",
                               free >> 20, total >> 20);
        }
        case cudaErrorSystemNotReady:
            return "the GPUs aren't ready: on NVSwitch machines the fabric manager must run "
                   "(nvidia-fabricmanager)";
        case cudaErrorSystemDriverMismatch:
            return "the NVIDIA driver's kernel module and its library are of different versions: reboot, or "
                   "reload the module";
        case cudaErrorCompatNotSupportedOnDevice:
            return "CUDA's compatibility library doesn't support this card: take it out of LD_LIBRARY_PATH, "
                   "or update the driver";
        case cudaErrorECCUncorrectable:
            return "the GPU's memory has an uncorrectable error: reset it or take another (nvidia-smi -q)";
        case cudaErrorOperatingSystem:
            return "the system refused access to the GPU: are /dev/nvidia* there, and may you open them?";
        case cudaErrorIllegalAddress:
        case cudaErrorMisalignedAddress:
        case cudaErrorLaunchFailure:
        case cudaErrorAssert:
            return fmt::format(
                "a kernel failed ({}): a fault of llmgen, please report it; LLMGEN_SYNC=1 names the step",
                cudaGetErrorName(error));
        default:
            return fmt::format("{} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
    }
}

void cuda_check(cudaError_t error, int ordinal, const char* what) {
    if (error == cudaSuccess) return;
    cudaGetLastError();
    fail("cuda:{}: {}: {}", ordinal, what, explain(error, ordinal));
}

}  // namespace llmgen::cuda
