// Which GPUs there are, and why one can't be used.
#pragma once

#include <string>
#include <vector>

#include "ops/ops.h"

namespace llmgen::cuda {

/// What the kernels were compiled for, as the build wrote it: "sm_90a".
std::string built_architectures();

/// Why there is no GPU to speak of (no driver, one too old, no card), one line; empty where there are some.
/// Touches no GPU.
std::string driver_problem();
/// 0 where there is a driver_problem().
int n_devices();

/// "cuda:0", "NVIDIA H100 80GB HBM3, sm_90, 132 SMs, driver for CUDA 13.0", total and free bytes.
DeviceInfo device_info(int ordinal);

/// Why the GPU can't be used, one line; empty where it can. Opens it and runs one small kernel, whose result
/// is looked at. A negative or too large ordinal is a reason too.
std::string device_problem(int ordinal);

}  // namespace llmgen::cuda
