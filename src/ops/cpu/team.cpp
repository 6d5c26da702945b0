#include "ops/cpu/team.h"

#include <hwy/cache_control.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <utility>

namespace llmgen::cpu {
namespace {

// Turns of spinning before a thread sleeps. Waking it costs 5 to 50 µs; but where other processes want the
// cores, who spins keeps them from the very thread that is waited for. So a sleep that was short makes the
// next turns more, and a long one, as of a thread that lost its core, makes them fewer.
constexpr int kLeastSpins = 300;
constexpr int kMostSpins = 5000;
constexpr auto kShortSleep = std::chrono::microseconds(100);
// After two sleeps as long as a thread's turn within a few steps somebody else wants the cores: loops of
// their own regions, whose threads spin briefly, then take a third of the time. Steps apart don't count, so
// one more is enough after them. A single one shows nothing: on an idle virtual machine there were one to
// five a second.
constexpr auto kLostTurn = std::chrono::milliseconds(1);
constexpr int kNearSteps = 4;
constexpr int kStepsApart = 32;

// Not std::atomic's wait(): that of libstdc++ yields the core before it sleeps, which on a busy machine costs
// a thread its turn.
void sleep_while(std::atomic<std::uint32_t>& value, std::uint32_t seen) {
    syscall(SYS_futex, &value, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}
void wake_all(std::atomic<std::uint32_t>& value) {
    syscall(SYS_futex, &value, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

/// A few lines: the loop that waits looks at its flag between them. Loads, because of prefetches as many as
/// these most are dropped.
void draw_near(SoonRead& soon) {
    constexpr std::int64_t kBytes = 512;
    const char* from = soon.place[0];
    const std::int64_t end = std::min(soon.done + kBytes, soon.bytes);
    for (; soon.done < end; soon.done += 64)
        static_cast<void>(*static_cast<const volatile char*>(from + soon.done));
    if (soon.done < soon.bytes) return;
    soon.place[0] += soon.step;
    std::swap(soon.place[0], soon.place[1]);
    soon.done = 0;
    --soon.left;
}

}  // namespace

void Team::hand_out(Job job) noexcept {
    job_ = job;
    meet(n_, 0);
    job.call(job.body, 0, n_);
    meet(n_, 0);
}

void Team::serve(int self, int n) noexcept {
    for (;;) {
        meet(n, self);
        const Job job = job_;
        if (!job.call) return;
        job.call(job.body, self, n);
        meet(n, self);
    }
}

void Team::meet(int n, int self) {
    const std::uint32_t before = arrived_.fetch_add(1);  // in one order with the sleepers' coming
    const std::uint32_t all = (before / std::uint32_t(n) + 1) * std::uint32_t(n);
    if (before + 1 != all) return wait_for(all, self);
    if (sleepers_.load() > 0) wake_all(arrived_);
}

void Team::wait_for(std::uint32_t arrivals, int self) {
    const int most = std::clamp(spins_.load(std::memory_order_relaxed), kLeastSpins, kMostSpins);
    SoonRead& soon = soon_[std::size_t(self)].what;
    for (int i = 0; i < most;) {
        if (arrived_.load(std::memory_order_acquire) >= arrivals) return;
        if (soon.left > 0) {
            draw_near(soon);
        } else {
            hwy::Pause();
            ++i;
        }
    }
    const auto begin = std::chrono::steady_clock::now();
    sleepers_.fetch_add(1);
    for (std::uint32_t now; (now = arrived_.load()) < arrivals;) sleep_while(arrived_, now);
    sleepers_.fetch_sub(1);
    const auto slept = std::chrono::steady_clock::now() - begin;
    const bool brief = slept < kShortSleep;
    if (slept > kLostTurn) {
        const int before = lost_.exchange(n_steps_);
        if (n_steps_ - before <= kNearSteps) apart_ = kStepsApart;
    }
    spins_.store(brief ? 2 * most : most / 4, std::memory_order_relaxed);
}

}  // namespace llmgen::cpu
