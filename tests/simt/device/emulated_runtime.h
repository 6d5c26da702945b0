// The CUDA backend on the emulator: src/ops/cuda and everything above it run as they are, over a fake of the
// CUDA runtime API and of cuBLASLt (fake/).
#pragma once

#include <memory>

#include "ops/ops.h"

namespace llmgen::simt {

/// When a stream does its work: when somebody waits for it, when it is enqueued, or at random moments
/// between.
enum class Moment { latest, at_once, random };

/// Memory is poisoned when it is allocated and when it is released. With `overlap`, dependent launches start
/// as early as hardware might start them.
std::unique_ptr<Ops> make_emulated_cuda_ops(Compute compute,
                                            bool overlap = true,
                                            Moment moment = Moment::latest);

}  // namespace llmgen::simt
