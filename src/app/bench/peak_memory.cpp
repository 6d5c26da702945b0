#include "app/bench/peak_memory.h"

#include <algorithm>
#include <fstream>

namespace llmgen::bench {

double PeakMemory::peak_now() const {
    std::ifstream status(proc_ + "/status");
    for (std::string word; status >> word;) {
        double kib = 0;
        if (word == "VmHWM:" && status >> kib) return 1024 * kib;
    }
    return 0;
}

void PeakMemory::pause() { before_ = std::max(before_, peak_now()); }

void PeakMemory::resume() {
    std::ofstream clear(proc_ + "/clear_refs");
    clear << "5" << std::flush;  // "forget the peak" (proc(5))
    known_ = known_ && bool(clear);
}

double PeakMemory::bytes() const {
    const double now = peak_now();
    return known_ && now > 0 ? std::max(before_, now) : 0;
}

}  // namespace llmgen::bench
