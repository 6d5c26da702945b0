// One thread's part of a list of units of work, from which the others help when they are done early.
#pragma once

#include <atomic>
#include <cstdint>

namespace llmgen::cpu {

/// Units begin to end - 1, which follow each other in memory. Their thread takes them from the front; who is
/// done early helps from the back.
struct alignas(64) Share {
    int begin = 0;
    std::atomic<std::uint64_t> left = 0;  // the first one that nobody took, and the end << 32

    void set(int first, int end) {
        begin = first;
        left = std::uint64_t(end) << 32 | std::uint64_t(first);
    }
    int front() const { return int(left.load(std::memory_order_relaxed) & 0xffffffff); }
    int take_first() {
        return take([](std::uint64_t s) { return s + 1; },
                    [](std::uint64_t s) { return int(s & 0xffffffff); });
    }
    int take_last() {
        constexpr std::uint64_t kOne = std::uint64_t(1) << 32;
        return take([](std::uint64_t s) { return s - kOne; },
                    [](std::uint64_t s) { return int(s >> 32) - 1; });
    }

private:
    template <typename Rest, typename Unit>
    int take(const Rest& rest, const Unit& unit) {
        std::uint64_t s = left.load(std::memory_order_relaxed);
        do
            if ((s & 0xffffffff) >= s >> 32) return -1;
        while (!left.compare_exchange_weak(s, rest(s), std::memory_order_relaxed));
        return unit(s);
    }
};

}  // namespace llmgen::cpu
