// The CUDA backend on a real device.
#include "ops/cuda/cuda_ops.h"

#include "ops/cuda/device_runtime.h"
#include "ops/cuda/discovery.h"
#include "ops/cuda/kernel_ops.h"

namespace llmgen {

std::string cuda_unavailable_reason() { return cuda::device_problem(0); }

std::unique_ptr<Ops> make_cuda_ops(int ordinal, Compute compute) {
    return cuda::make_kernel_ops(cuda::make_device_runtime(ordinal), compute);
}

std::vector<DeviceReport> list_cuda_devices() {
    std::vector<DeviceReport> reports;
    for (int i = 0; i < cuda::n_devices(); ++i) {
        DeviceReport& report = reports.emplace_back();
        report.problem = cuda::device_problem(i);
        report.info = cuda::device_info(i);
    }
    return reports;
}

}  // namespace llmgen
