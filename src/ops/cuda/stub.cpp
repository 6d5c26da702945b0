// Stands in for the CUDA backend on a real device, which is not there yet: every question gets a clear
// answer. The backend's steps (kernel_ops.h) run on the emulated device of tests/simt.
#include "base/error.h"
#include "ops/cuda/cuda_ops.h"

namespace llmgen {

std::string cuda_unavailable_reason() {
    return "this version's CUDA kernels have run on an emulated device only and are not connected to a GPU "
           "yet";
}

std::unique_ptr<Ops> make_cuda_ops(int, Compute) { fail("--device cuda: {}", cuda_unavailable_reason()); }

std::vector<DeviceReport> list_cuda_devices() { return {}; }

}  // namespace llmgen
