#include "ops/cpu/turned_panels.h"

#include <omp.h>

#include <algorithm>

namespace llmgen::cpu {

void TurnedPanels::begin(const PanelWeight& w, int threads) {
    if (!w.borrowed) return;
    panel_bytes_ = std::size_t(w.panel_size()) * size_of(w.dtype);
    memory_ = static_cast<char*>(scratch_.get(std::size_t(threads) * kSlots * panel_bytes_));
    slots_.assign(std::size_t(threads), {});
}

const void* TurnedPanels::panel(const PanelWeight& w, std::int64_t index) {
    const auto thread = std::size_t(omp_get_thread_num());
    Slots& slots = slots_[thread];
    const auto found = std::ranges::find(slots.index, index);
    auto slot = std::size_t(found - slots.index.begin());
    if (slot == kSlots) {
        slot = slots.next;
        slots.next = (slot + 1) % kSlots;
        slots.index[slot] = index;
    }
    char* to = memory_ + (thread * kSlots + slot) * panel_bytes_;
    if (found == slots.index.end()) {
        const void* rows[kPanel];
        w.borrowed->rows_of(index, rows);
        w.borrowed->kernels.pack(to, rows, w.in);
    }
    return to;
}

}  // namespace llmgen::cpu
