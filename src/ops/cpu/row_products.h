// The products of one row in the order of a step, as the step before had them: which weights follow, so that
// who waits can draw its share of them near (team.h), and how the shares are cut so that all end together.
//
// The first thread has work of its own between two products while the others draw: its shares become smaller
// than theirs, product by product, by when each ended in the steps before. Which thread has which output
// changes no bit of it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/cpu/packed_weight.h"
#include "ops/cpu/team.h"

namespace llmgen::cpu {

struct RowProduct {
    const char* panels = nullptr;  // null: they stand in no panels yet
    std::weak_ptr<const void> owner;
    std::int64_t panel_bytes = 0, n_units = 0;
    bool pairs = false;  // a unit is a panel of the first half and one of the second

    std::int64_t given = 0;  // units that the first thread's share is short of an equal one
    float lag = 0;           // by how many units' time the others end later, smoothed

    /// Where the share of thread `self` begins.
    std::int64_t border(std::int64_t self, std::int64_t n) const;
    /// The beginning of a share, as much as a cache has room for.
    SoonRead share_of(std::int64_t self, std::int64_t n) const;
};

class RowProducts {
public:
    explicit RowProducts(Team& team)
        : team_(team), times_(std::make_unique<Times[]>(std::size_t(team.size()))) {}
    /// Where the team isn't held together by a step, nobody draws anything near, and shares are equal.
    void begin_step();
    void end_step();

    /// The product that begins now, `n_units` panels of w or, of swiglu, pairs of them.
    RowProduct& begin(const PanelWeight& w, std::int64_t n_units, bool swiglu);
    /// The one that followed it in the step before, whose weights are there until the next begin(); or null.
    const RowProduct* next() const { return next_; }
    /// By each thread around its share.
    void begin_share(std::int64_t self);
    void end_share(std::int64_t self);
    /// Once all `n` threads are done.
    void balance(RowProduct& product, std::int64_t n) const;

private:
    struct alignas(64) Times {
        std::int64_t begin = 0, end = 0;
    };
    const Team& team_;
    std::vector<RowProduct> products_;
    std::size_t at_ = 0;
    RowProduct apart_;  // outside a step
    const RowProduct* next_ = nullptr;
    std::shared_ptr<const void> held_;  // next_'s weights
    std::unique_ptr<Times[]> times_;
};

}  // namespace llmgen::cpu
