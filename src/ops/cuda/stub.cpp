// Stands in for the CUDA backend in builds without it: every question gets a clear answer.
#include "base/error.h"
#include "ops/cuda/cuda_ops.h"

namespace llmgen {

std::string cuda_unavailable_reason() {
    return "this llmgen was built without CUDA (build with nvcc in PATH, or -DLLMGEN_CUDA=ON)";
}

std::unique_ptr<Ops> make_cuda_ops(int, Compute) { fail("--device cuda: {}", cuda_unavailable_reason()); }

std::vector<DeviceReport> list_cuda_devices() { return {}; }

}  // namespace llmgen
