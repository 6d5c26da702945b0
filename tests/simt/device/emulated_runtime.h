// The CUDA backend on the emulator: src/ops/cuda/kernel_ops.cpp and everything above it run as they are.
#pragma once

#include <memory>

#include "ops/ops.h"

namespace llmgen::simt {

/// Memory is poisoned when it is allocated and when it is released. With `overlap`, launches queue and
/// dependent ones start as early as hardware might start them.
std::unique_ptr<Ops> make_emulated_cuda_ops(Compute compute, bool overlap = true);

}  // namespace llmgen::simt
