// The most memory the process had resident while it served, without what measuring the machine took: that
// loop reads up to 1 GiB of its own. Linux forgets a peak on request (/proc/self/clear_refs); where it
// doesn't, the peak is unknown rather than wrong.
#pragma once

#include <string>

namespace llmgen::bench {

class PeakMemory {
public:
    /// `proc`: where this process's `status` and `clear_refs` are.
    explicit PeakMemory(std::string proc = "/proc/self") : proc_(std::move(proc)) {}

    /// Before something that is not to be counted: takes in the peak so far.
    void pause();
    /// After it: what came in between is forgotten.
    void resume();
    /// Bytes; 0 = unknown.
    double bytes() const;

private:
    double peak_now() const;

    std::string proc_;
    double before_ = 0;
    bool known_ = true;
};

}  // namespace llmgen::bench
