// Panels of a weight that stands in rows yet, turned for the steps of several rows: each thread keeps the few
// that it is at.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ops/cpu/packed_weight.h"
#include "ops/cpu/scratch.h"

namespace llmgen::cpu {

class TurnedPanels {
public:
    /// Before a product, by the thread that starts it.
    void begin(const PanelWeight& w, int threads);
    /// By any thread of the product.
    const void* panel(const PanelWeight& w, std::int64_t index);

private:
    // The panel at hand and, of the up projection that begins inside a panel, two.
    static constexpr std::size_t kSlots = 3;
    struct alignas(64) Slots {
        std::array<std::int64_t, kSlots> index = {-1, -1, -1};
        std::size_t next = 0;
    };
    std::size_t panel_bytes_ = 0;
    char* memory_ = nullptr;
    std::vector<Slots> slots_;  // by thread
    Scratch scratch_;
};

}  // namespace llmgen::cpu
