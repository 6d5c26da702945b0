#include "ops/cuda/pinned_ring.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace llmgen::cuda {

PinnedRing::PinnedRing(SlotCopies& copies, int n_slots, std::size_t slot_bytes, int n_threads)
    : copies_(copies),
      n_slots_(n_slots),
      slot_bytes_(slot_bytes),
      is_filled_(std::size_t(n_slots), false),
      was_copied_(std::size_t(n_slots), false) {
    CHECK(n_slots > 0 && slot_bytes > 0 && n_threads >= 0);
    for (int i = 0; i < n_threads; ++i) threads_.emplace_back([this] { work(); });
}

PinnedRing::~PinnedRing() {
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
    }
    queued_.notify_all();
}

void PinnedRing::fill(const Piece& piece) {
    std::exception_ptr fault;
    try {
        (*fill_)(piece.to, piece.first, piece.bytes);
    } catch (...) {
        fault = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    if (fault && !fault_) fault_ = fault;
    is_filled_[std::size_t(piece.slot)] = true;
    --n_under_way_;
    filled_.notify_all();
}

void PinnedRing::work() {
    for (;;) {
        Piece piece;
        {
            std::unique_lock lock(mutex_);
            queued_.wait(lock, [&] { return closing_ || !queue_.empty(); });
            if (closing_) return;
            piece = queue_.front();
            queue_.pop_front();
        }
        fill(piece);
    }
}

void PinnedRing::enqueue(const Piece& piece) {
    {
        const std::lock_guard lock(mutex_);
        is_filled_[std::size_t(piece.slot)] = false;
        ++n_under_way_;
        if (!threads_.empty()) queue_.push_back(piece);
    }
    if (threads_.empty())
        fill(piece);
    else
        queued_.notify_one();
}

/// False where a fill has failed: nothing more is worth copying.
bool PinnedRing::wait_filled(int slot) {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return is_filled_[std::size_t(slot)]; });
    return fault_ == nullptr;
}

/// The threads are done with the write's `fill`, which is the caller's.
void PinnedRing::wait_all() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return n_under_way_ == 0; });
    fill_ = nullptr;
    if (fault_) std::rethrow_exception(std::exchange(fault_, nullptr));
}

void PinnedRing::write(void* device, std::size_t bytes, std::size_t granule, const Runtime::Fill& fill) {
    CHECK(granule > 0 && granule <= slot_bytes_, "parts of {} bytes, slots of {}", granule, slot_bytes_);
    const std::size_t piece_bytes = slot_bytes_ / granule * granule;
    fill_ = &fill;
    std::deque<Piece> ahead;  // being filled, oldest first
    auto copy_oldest = [&] {
        const Piece piece = ahead.front();
        ahead.pop_front();
        if (!wait_filled(piece.slot)) return;
        copies_.copy(piece.slot, static_cast<char*>(device) + piece.first, piece.bytes);
        was_copied_[std::size_t(piece.slot)] = true;
    };
    try {
        for (std::size_t first = 0; first < bytes; first += piece_bytes) {
            // Half of the slots are being filled, the others copied.
            if (int(ahead.size()) >= std::max(1, n_slots_ / 2)) copy_oldest();
            const int slot = std::exchange(next_slot_, (next_slot_ + 1) % n_slots_);
            if (was_copied_[std::size_t(slot)]) copies_.wait(slot);
            ahead.push_back({slot, copies_.slot(slot), first, std::min(piece_bytes, bytes - first)});
            enqueue(ahead.back());
        }
        while (!ahead.empty()) copy_oldest();
    } catch (...) {  // of the device: the threads must let go of `fill` before it leaves
        try {
            wait_all();
        } catch (...) {
        }
        throw;
    }
    wait_all();
}

}  // namespace llmgen::cuda
