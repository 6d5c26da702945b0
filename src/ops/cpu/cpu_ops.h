// The CPU backend, in two forms behind the same contract: plain loops (the oracle that every other
// implementation is tested against) and the fast one.
#pragma once

#include <memory>

#include "ops/cpu/isa.h"
#include "ops/ops.h"

namespace llmgen {

struct CpuOptions {
    int threads = 0;         // 0 = one per core that this process may use
    bool reference = false;  // the plain loops: one thread, sums in f64
    bool onednn = false;     // matrix products of 16 rows and more by oneDNN on any chip, not on AMX alone
    cpu::Isa isa = cpu::Isa::amx;  // at most this; LLMGEN_CPU_ISA caps it further
};

std::unique_ptr<Ops> make_cpu_ops(Compute compute, const CpuOptions& options);

}  // namespace llmgen
