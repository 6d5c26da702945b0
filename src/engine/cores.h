#pragma once

namespace llmgen {

/// Cores that this process may use: its affinity, not the machine's count.
int usable_cores();

}  // namespace llmgen
