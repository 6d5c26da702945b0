// The emulated device as the `cuda` backend of a whole program: what src/ops/cuda answers on a machine with a
// GPU, linked in its place. Orders and overlap are the fast ones; the tests try the others.
#include "ops/cuda/cuda_ops.h"
#include "simt/device/emulated_runtime.h"
#include "simt/machine.h"

namespace llmgen {

std::string cuda_unavailable_reason() { return {}; }

std::unique_ptr<Ops> make_cuda_ops(int, Compute compute) {
    return simt::make_emulated_cuda_ops(compute, false);
}

std::vector<DeviceReport> list_cuda_devices() {
    return {{make_cuda_ops(0, Compute::bf16)->info(), ""}};
}

}  // namespace llmgen
