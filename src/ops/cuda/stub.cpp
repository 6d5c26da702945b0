// Stands in for the CUDA backend where it was not built: every question gets a clear answer.
#include "base/error.h"
#include "ops/cuda/cuda_ops.h"

namespace llmgen {

std::string cuda_unavailable_reason() {
    return "this llmgen was built without CUDA (no nvcc was found, or LLMGEN_CUDA=OFF)";
}

std::unique_ptr<Ops> make_cuda_ops(int ordinal, Compute) {
    fail("--device cuda:{}: {}; install the CUDA toolkit and build again", ordinal,
         cuda_unavailable_reason());
}

std::vector<DeviceReport> list_cuda_devices() { return {}; }

MachineLimits measure_cuda(int) { return {}; }

}  // namespace llmgen
