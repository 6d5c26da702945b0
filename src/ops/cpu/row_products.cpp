#include "ops/cpu/row_products.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace llmgen::cpu {
namespace {

/// Of a thread's second cache, 1 MiB on this chip, beside what passes through it.
constexpr std::int64_t kMostDrawn = std::int64_t(384) << 10;
/// A unit moved from one share to the other of two brings their ends nearer by two units' time, so it pays
/// from one on; a little more, lest it goes back and forth.
constexpr float kWorthMoving = 1.05f;
constexpr float kSmoothing = 1.0f / 8;

std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

std::int64_t RowProduct::border(std::int64_t self, std::int64_t n) const {
    if (self == 0 || n <= 1) return self * n_units;
    const std::int64_t first = std::clamp<std::int64_t>(n_units / n - given, 0, n_units);
    return first + (n_units - first) * (self - 1) / (n - 1);
}

SoonRead RowProduct::share_of(std::int64_t self, std::int64_t n) const {
    if (!panels) return {};
    const std::int64_t begin = border(self, n), units = border(self + 1, n) - begin;
    const std::int64_t most = kMostDrawn / panel_bytes + 1;
    const char* first = panels + begin * panel_bytes;
    if (pairs)
        return {
            {first, first + n_units * panel_bytes}, panel_bytes, panel_bytes, std::min(2 * units, most), 0};
    return {{first, first + panel_bytes}, panel_bytes, 2 * panel_bytes, std::min(units, most), 0};
}

void RowProducts::begin_step() { at_ = 0; }

void RowProducts::end_step() {
    next_ = nullptr;
    held_.reset();
}

RowProduct& RowProducts::begin(const PanelWeight& w, std::int64_t n_units, bool swiglu) {
    const bool in_step = team_.in_step();
    if (in_step && at_ == products_.size()) products_.emplace_back();
    RowProduct& product = in_step ? products_[at_] : apart_;
    const auto* panels = w.borrowed ? nullptr : static_cast<const char*>(w.memory.data);
    if (!in_step || product.panels != panels || product.n_units != n_units) {
        product = {};
        product.panels = panels;
        product.owner = w.memory.owner;
        product.panel_bytes = w.panel_size() * std::int64_t(size_of(w.dtype));
        product.n_units = n_units;
        product.pairs = swiglu && w.n_panels() == 2 * n_units;  // else the halves share a panel
    }
    if (!in_step) return product;
    // Other threads may draw this product's weights near still, which are those of the step, but no others.
    ++at_;
    next_ = at_ < products_.size() ? &products_[at_] : nullptr;
    held_ = next_ ? next_->owner.lock() : nullptr;
    if (!held_) next_ = nullptr;
    return product;
}

void RowProducts::begin_share(std::int64_t self) { times_[std::size_t(self)].begin = now(); }

void RowProducts::end_share(std::int64_t self) { times_[std::size_t(self)].end = now(); }

void RowProducts::balance(RowProduct& product, std::int64_t n) const {
    if (!team_.in_step() || n <= 1) return;
    const Times& own = times_[0];
    const std::int64_t units = std::max<std::int64_t>(product.border(1, n), 1);
    const float unit = std::max(float(own.end - own.begin) / float(units), 1.0f);
    float late = 0;
    for (std::int64_t i = 1; i < n; ++i) late += float(times_[std::size_t(i)].end - own.end);
    // An interruption isn't the share's fault.
    const float units_late = std::clamp(late / float(n - 1) / unit, -2.0f, 2.0f);
    product.lag += (units_late - product.lag) * kSmoothing;
    if (std::abs(product.lag) < kWorthMoving) return;
    product.given -= product.lag > 0 ? 1 : -1;
    product.lag = 0;
}

}  // namespace llmgen::cpu
