#include "ops/cpu/team.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <chrono>

namespace llmgen::cpu {
namespace {

// Turns of spinning before a thread sleeps. Waking it costs 5 to 50 µs; but where other processes want the
// cores, who spins keeps them from the very thread that is waited for. So a sleep that was short makes the
// next turns more, and a long one, as of a thread that lost its core, makes them fewer.
constexpr int kLeastSpins = 300;
constexpr int kMostSpins = 5000;
constexpr auto kShortSleep = std::chrono::microseconds(100);

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
    const std::uint32_t before = arrived_.fetch_add(1, std::memory_order_acq_rel);
    const std::uint32_t all = (before / std::uint32_t(n) + 1) * std::uint32_t(n);
    if (before + 1 == all)
        arrived_.notify_all();
    else
        wait_for(all);
}

void Team::wait_for(std::uint32_t arrivals) {
    const int most = std::clamp(spins_.load(std::memory_order_relaxed), kLeastSpins, kMostSpins);
    for (int i = 0; i < most; ++i) {
        if (arrived_.load(std::memory_order_acquire) >= arrivals) return;
        hwy::Pause();
    }
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint32_t now; (now = arrived_.load(std::memory_order_acquire)) < arrivals;)
        arrived_.wait(now, std::memory_order_acquire);
    const bool brief = std::chrono::steady_clock::now() - begin < kShortSleep;
    spins_.store(brief ? 2 * most : most / 4, std::memory_order_relaxed);
}

}  // namespace llmgen::cpu
