// Weights on their way to the device: through a few pinned buffers, filled by several threads while earlier
// ones are still being copied.
//
//   threads   fill slot 0 | 1 | 2 …        from the mapped file, converting where types differ
//   caller    copy slot 0, copy slot 1 …   in turn on two streams; waits for a slot's copy before its next
//   fill
//
// Only the caller's thread touches the device. At most kSlots · kSlotBytes of host memory beside the page
// cache, whatever the size of the model.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "ops/cuda/runtime.h"

namespace llmgen::cuda {

/// The device's side of the ring; tests have one that records.
class SlotCopies {
public:
    virtual ~SlotCopies() = default;
    /// Memory of a slot, pinned.
    virtual char* slot(int index) = 0;
    /// Begins to copy the first `bytes` of a slot.
    virtual void copy(int index, void* device, std::size_t bytes) = 0;
    /// Until the slot's last copy has ended.
    virtual void wait(int index) = 0;
};

class PinnedRing {
public:
    /// `n_threads` fill; 0: the caller does.
    PinnedRing(SlotCopies& copies, int n_slots, std::size_t slot_bytes, int n_threads);
    ~PinnedRing();
    PinnedRing(const PinnedRing&) = delete;

    /// Returns once all of `bytes` has been filled and is being copied. What `fill` throws is thrown here.
    void write(void* device, std::size_t bytes, std::size_t granule, const Runtime::Fill& fill);

private:
    struct Piece {
        int slot;
        char* to;
        std::size_t first, bytes;
    };
    void work();
    void fill(const Piece& piece);
    void enqueue(const Piece& piece);
    bool wait_filled(int slot);
    void wait_all();

    SlotCopies& copies_;
    int n_slots_;
    std::size_t slot_bytes_;
    std::mutex mutex_;
    std::condition_variable queued_, filled_;
    std::deque<Piece> queue_;              // to fill, first in first out
    std::vector<bool> is_filled_;          // by slot
    const Runtime::Fill* fill_ = nullptr;  // of the write under way
    std::exception_ptr fault_;
    int n_under_way_ = 0;  // queued or being filled
    bool closing_ = false;
    std::vector<bool> was_copied_;  // by slot: there is a copy to wait for
    int next_slot_ = 0;
    std::vector<std::jthread> threads_;
};

}  // namespace llmgen::cuda
