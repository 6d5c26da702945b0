// What a launch says about memory, held against what the device has: every array that a kernel of kernels/ is
// given lies whole in live memory, and those that vectors walk begin at multiples of 16. Known from the
// arguments alone, before anything runs: so whole models can be checked that no CPU could compute.
#pragma once

#include <cstddef>
#include <functional>

#include "simt/machine.h"

namespace llmgen::simt {

using IsLive = std::function<bool(const void* first, std::size_t bytes)>;

/// Throws Fault. Kernels of unknown names pass.
void check_memory(const Launch& launch, const IsLive& is_live);

}  // namespace llmgen::simt
