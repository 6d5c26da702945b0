// Which instructions of the PTX the tests reached.
#pragma once

#include <map>
#include <ostream>
#include <string>

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
/// How many instructions each entry has executed so far, over all threads; those that never ran are left out.
std::map<std::string, std::uint64_t> executed_by_entry(Witness&);

}  // namespace llmgen::ptx
