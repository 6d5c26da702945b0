#include "ptx/handover.h"

#include <algorithm>

namespace llmgen::ptx {

void Handovers::write(std::uintptr_t array,
                      std::size_t bytes_of_array,
                      std::size_t at,
                      int bytes,
                      Standing who,
                      std::uint32_t op) {
    auto found =
        std::find_if(arrays_.begin(), arrays_.end(), [&](const Array& a) { return a.begin == array; });
    if (found == arrays_.end())
        found = arrays_.insert(found, {array, std::vector<Write>((bytes_of_array + 1) / 2)});
    ++clock_;
    for (std::size_t i = at / 2; i <= (at + std::size_t(bytes) - 1) / 2; ++i)
        found->words[i] = {who, clock_, op};
}

std::uint32_t Handovers::unordered(std::uintptr_t array, std::size_t at, int bytes, Standing who) const {
    for (const Array& a : arrays_) {
        if (a.begin != array) continue;
        for (std::size_t i = at / 2; i <= (at + std::size_t(bytes) - 1) / 2; ++i) {
            const Write& write = a.words[i];
            if (write.who.block >= 0 && write.who.block != who.block && !is_ordered(write, who))
                return write.op + 1;
        }
    }
    return 0;
}

bool Handovers::is_ordered(const Write& write, const Standing& reader) const {
    if (blocks_.size() <= std::size_t(std::max(write.who.block, reader.block))) return false;
    for (const Meeting& gave : blocks_[std::size_t(write.who.block)].gave) {
        if (write.when > gave.fence.when || !write.who.before(gave.fence.who)) continue;
        for (const Meeting& took : blocks_[std::size_t(reader.block)].took)
            if (took.met > gave.met && took.fence.who.before(reader)) return true;
    }
    return false;
}

Handovers::Event& Handovers::of_thread(std::vector<Event>& events, int thread) {
    for (Event& e : events)
        if (e.who.thread == thread) return e;
    events.push_back({{-1, thread}});
    return events.back();
}

void Handovers::fence(Standing who) {
    if (blocks_.size() <= std::size_t(who.block)) blocks_.resize(std::size_t(who.block) + 1);
    Block& mine = blocks_[std::size_t(who.block)];
    const Event fence = of_thread(mine.fences, who.thread) = {who, ++clock_};
    const Event atomic = of_thread(mine.atomics, who.thread);
    if (atomic.when > 0) mine.took.push_back({fence, atomic.when});
}

void Handovers::atomic(Standing who) {
    if (blocks_.size() <= std::size_t(who.block)) blocks_.resize(std::size_t(who.block) + 1);
    Block& mine = blocks_[std::size_t(who.block)];
    of_thread(mine.atomics, who.thread) = {who, ++clock_};
    const Event fence = of_thread(mine.fences, who.thread);
    if (fence.when > 0) mine.gave.push_back({fence, clock_});
}

}  // namespace llmgen::ptx
