// How many cores there are for us: as many threads the CPU backend takes where nobody says otherwise.
#pragma once

namespace llmgen {

/// Cores that this process may use: its affinity mask, cut by the cgroup's CPU quota (rounded up); at
/// least 1.
int usable_cores();

}  // namespace llmgen
