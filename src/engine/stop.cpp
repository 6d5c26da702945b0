#include "engine/stop.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace llmgen {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
    for (const std::string& stop : stops_) CHECK(!stop.empty());
}

std::string StopStrings::push(std::string_view text) {
    if (found_) return {};
    held_ += text;
    std::size_t first = std::string::npos;
    for (const std::string& stop : stops_) {
        const std::size_t at = held_.find(stop);
        // Of two that begin at the same place, the one that ended first.
        if (at < first || (at == first && found_ && stop.size() < found_->size())) {
            first = at;
            found_ = stop;
        }
    }
    if (found_) {
        std::string before = held_.substr(0, first);
        held_.clear();
        return before;
    }
    std::size_t keep = 0;  // the longest end of held_ that begins a stop string
    for (const std::string& stop : stops_)
        for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n)
            if (held_.ends_with(std::string_view(stop).substr(0, n))) {
                keep = n;
                break;
            }
    std::string out = held_.substr(0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
    return out;
}

std::string StopStrings::flush() { return found_ ? std::string() : std::exchange(held_, {}); }

}  // namespace llmgen
