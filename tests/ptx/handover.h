// What one block of a launch hands over to another through global memory, and whether the two are ordered.
//
// Blocks meet by an atomic on a counter. What a thread wrote is ordered before what a thread of another block
// reads if, in this order,
//
//   the write → [a barrier of the block] → fence → atomic   (the writer's block; the barrier unless it is the
//                                                            same thread that fences)
//   a later atomic → fence → [a barrier of the block] → the read   (the reader's block, likewise)
//
// A hardware block that runs beside another sees half of it otherwise, in whatever order the emulator ran
// them here: so it is the order that is checked and not the value. Which counter the atomics share is not
// looked at, nor are writes by atomics, which need no order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace llmgen::ptx {

/// Where a thread stands: barriers of its block and of its warp (those of the block among them) behind it.
struct Standing {
    int block = -1, thread = -1;
    std::int32_t barrier = 0, warp_sync = 0;

    /// Whether a barrier lies between this standing and a later one of the same block, or it is one thread's.
    bool before(const Standing& later) const {
        return thread == later.thread || barrier < later.barrier ||
               (thread / 32 == later.thread / 32 && warp_sync < later.warp_sync);
    }
};

/// Of one launch of a kernel that has atomics on global memory.
class Handovers {
public:
    void write(std::uintptr_t array,
               std::size_t bytes_of_array,
               std::size_t at,
               int bytes,
               Standing who,
               std::uint32_t op);
    /// The op, plus one, that wrote some of these bytes in another block without an order; 0 where all is
    /// well.
    std::uint32_t unordered(std::uintptr_t array, std::size_t at, int bytes, Standing who) const;
    void fence(Standing who);
    void atomic(Standing who);

private:
    struct Write {
        Standing who;
        std::uint64_t when = 0;
        std::uint32_t op = 0;
    };
    struct Event {
        Standing who;
        std::uint64_t when = 0;
    };
    struct Meeting {
        Event fence;
        std::uint64_t met = 0;  // when the atomic was: after the fence to give, before it to take
    };
    struct Block {
        std::vector<Event> fences, atomics;  // the last of each thread that had one
        std::vector<Meeting> gave, took;
    };
    struct Array {
        std::uintptr_t begin;
        std::vector<Write> words;  // of two bytes
    };
    static Event& of_thread(std::vector<Event>& events, int thread);
    bool is_ordered(const Write& write, const Standing& reader) const;

    std::uint64_t clock_ = 0;
    std::vector<Array> arrays_;  // those written, a few
    std::vector<Block> blocks_;
};

}  // namespace llmgen::ptx
