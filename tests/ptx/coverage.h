// Which instructions of the PTX the tests reached.
#pragma once

#include <ostream>

#include "ptx/witness.h"

namespace llmgen::ptx {

struct Coverage {
    std::size_t reached = 0, all = 0;
    double share() const { return all == 0 ? 1 : double(reached) / double(all); }
};

/// Writes a line per file and, for each kernel that is not wholly reached, what is missing: PTX lines and the
/// source they come from. Counts every entry of every file, run or not.
Coverage report_coverage(Witness&, std::ostream&);
/// file:line of every instruction that was executed.
void write_reached(Witness&, std::ostream&);

}  // namespace llmgen::ptx
