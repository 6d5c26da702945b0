// How many threads the CPU backend takes.
#pragma once

namespace llmgen::cpu {

/// Cores that this process may use: its affinity mask, cut by the cgroup's CPU quota (rounded up); at
/// least 1.
int usable_cores();

}  // namespace llmgen::cpu
