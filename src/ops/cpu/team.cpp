#include "ops/cpu/team.h"

#include <hwy/cache_control.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>

namespace llmgen::cpu {
namespace {

// Turns of spinning before a thread sleeps. Waking it costs 5 to 50 µs; but where other processes want the
// cores, who spins keeps them from the very thread that is waited for. So a sleep that was short makes the
// next turns more, and a long one, as of a thread that lost its core, makes them fewer.
constexpr int kLeastSpins = 300;
constexpr int kMostSpins = 5000;
constexpr auto kShortSleep = std::chrono::microseconds(100);
// After a sleep as long as a thread's turn somebody else wants the cores: loops of their own regions, whose
// threads spin briefly, then take a third of the time.
constexpr auto kLostTurn = std::chrono::milliseconds(1);
constexpr int kStepsApart = 32;

// Not std::atomic's wait(): that of libstdc++ yields the core before it sleeps, which on a busy machine costs
// a thread its turn.
void sleep_while(std::atomic<std::uint32_t>& value, std::uint32_t seen) {
    syscall(SYS_futex, &value, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}
void wake_all(std::atomic<std::uint32_t>& value) {
    syscall(SYS_futex, &value, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

void Team::hand_out(Job job) noexcept {
    job_ = job;
    meet(n_);
    job.call(job.body, 0, n_);
    meet(n_);
}

void Team::serve(int self, int n) noexcept {
    for (;;) {
        meet(n);
        const Job job = job_;
        if (!job.call) return;
        job.call(job.body, self, n);
        meet(n);
    }
}

void Team::meet(int n) {
    const std::uint32_t before = arrived_.fetch_add(1);  // in one order with the sleepers' coming
    const std::uint32_t all = (before / std::uint32_t(n) + 1) * std::uint32_t(n);
    if (before + 1 != all) return wait_for(all);
    if (sleepers_.load() > 0) wake_all(arrived_);
}

void Team::wait_for(std::uint32_t arrivals) {
    const int most = std::clamp(spins_.load(std::memory_order_relaxed), kLeastSpins, kMostSpins);
    for (int i = 0; i < most; ++i) {
        if (arrived_.load(std::memory_order_acquire) >= arrivals) return;
        hwy::Pause();
    }
    const auto begin = std::chrono::steady_clock::now();
    sleepers_.fetch_add(1);
    for (std::uint32_t now; (now = arrived_.load()) < arrivals;) sleep_while(arrived_, now);
    sleepers_.fetch_sub(1);
    const auto slept = std::chrono::steady_clock::now() - begin;
    const bool brief = slept < kShortSleep;
    if (slept > kLostTurn) apart_ = kStepsApart;
    spins_.store(brief ? 2 * most : most / 4, std::memory_order_relaxed);
}

}  // namespace llmgen::cpu
