// The waist on the kernels of kernels/, over any Runtime.
#pragma once

#include <memory>

#include "ops/cuda/runtime.h"

namespace llmgen::cuda {

std::unique_ptr<Ops> make_kernel_ops(std::unique_ptr<Runtime> runtime, Compute compute);

}  // namespace llmgen::cuda
