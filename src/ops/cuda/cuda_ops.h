// The CUDA backend as the rest of the waist sees it; stub.cpp stands in where it was not built.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/backend.h"
#include "ops/ops.h"

namespace llmgen {

/// Throws Error saying what is missing.
std::unique_ptr<Ops> make_cuda_ops(int ordinal, Compute compute);
/// Why make_cuda_ops can't work here (not built, no driver, no GPU), one line; empty where it can.
std::string cuda_unavailable_reason();
/// One entry a GPU; empty where there is none.
std::vector<DeviceReport> list_cuda_devices();
/// What the GPU reaches, measured in about a tenth of a second; zeros where that can't be.
MachineLimits measure_cuda(int ordinal);

}  // namespace llmgen
