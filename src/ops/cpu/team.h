// The threads of the backend: OpenMP's one pool, which oneDNN shares, and inside a step kept together.
//
// A model's step is some hundred short loops. Each as a parallel region of its own costs 1 to 2 µs where the
// other threads still spin, and 10 and more where they fell asleep meanwhile. So a step is one region: its
// first thread runs the ops, the others wait for what those hand out.
//
// Traps: a region is always the whole pool or the caller alone, since libgomp ends and restarts threads when
// a team's size changes; and a region inside the step's own would have one thread only, so every loop of the
// backend goes through its team.
#pragma once

#include <omp.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>

namespace llmgen::cpu {

/// Memory that a thread reads soon: `left` pieces of `bytes` each, at the two places in turn, which go on by
/// `step`.
struct SoonRead {
    const char* place[2] = {};
    std::int64_t bytes = 0, step = 0, left = 0;
    std::int64_t done = 0;  // of the piece at hand
};

class Team {
public:
    explicit Team(int threads)
        : size_(threads), soon_(std::make_unique<Soon[]>(std::size_t(threads > 0 ? threads : 1))) {}
    int size() const { return size_; }
    /// Whether the others wait for loops of a step, instead of each loop being a region of its own.
    bool in_step() const { return in_step_; }
    /// By thread `self`, of itself: what it may draw near while it waits for others.
    void reads_soon(std::int64_t self, const SoonRead& what) { soon_[std::size_t(self)].what = what; }

    /// body(self, n) on each of n threads; returns when all are done. Nothing may be thrown.
    template <typename Body>
    void run(const Body& body) {
        if (size_ <= 1) return body(0, 1);
        if (in_step_)
            return hand_out(
                {[](const void* b, int self, int n) { (*static_cast<const Body*>(b))(self, n); }, &body});
#pragma omp parallel num_threads(size_)
        body(omp_get_thread_num(), omp_get_num_threads());
    }
    /// body(begin, end) on contiguous shares of [0, n), one a thread.
    template <typename Body>
    void ranges(std::int64_t n, const Body& body) {
        if (size_ <= 1 || n <= 1) return body(std::int64_t(0), n);
        run([&](std::int64_t self, std::int64_t team) {
            const std::int64_t begin = n * self / team, end = n * (self + 1) / team;
            if (begin < end) body(begin, end);
        });
    }
    /// Inside run(), by all its threads: waits until all are here.
    void barrier() {
        if (in_step_) return meet(n_, omp_get_thread_num());
        if (size_ > 1) {
#pragma omp barrier
        }
    }

    /// Runs `step` with the other threads at hand; what it throws passes through.
    template <typename Step>
    auto step(const Step& step) {
        if (size_ <= 1 || in_step_) return step();
        if (apart_ > 0) {
            --apart_;
            return step();
        }
        ++n_steps_;
        decltype(step()) result;
        std::exception_ptr fault;
        arrived_ = 0;
        for (int i = 0; i < size_; ++i) soon_[std::size_t(i)] = {};
#pragma omp parallel num_threads(size_)
        {
            if (omp_get_thread_num() > 0) {
                serve(omp_get_thread_num(), omp_get_num_threads());
            } else {
                n_ = omp_get_num_threads();
                in_step_ = true;
                try {
                    result = step();
                } catch (...) {
                    fault = std::current_exception();
                }
                in_step_ = false;
                job_ = {};
                meet(n_, 0);
            }
        }
        if (fault) std::rethrow_exception(fault);
        return result;
    }

private:
    struct Job {
        void (*call)(const void* body, int self, int n) = nullptr;  // null: the step is over
        const void* body = nullptr;
    };
    void hand_out(Job job) noexcept;
    void serve(int self, int n) noexcept;
    void meet(int n, int self);
    void wait_for(std::uint32_t arrivals, int self);

    struct alignas(64) Soon {
        SoonRead what;
    };

    int size_;
    std::unique_ptr<Soon[]> soon_;  // of each thread
    // Of a step: written by its first thread while the others wait.
    int n_ = 1;
    int n_steps_ = 0;  // but for those apart
    bool in_step_ = false;
    Job job_;
    alignas(64) std::atomic<std::uint32_t> arrived_ = 0;  // at all meetings of the step together
    alignas(64) std::atomic<int> spins_ = 0;
    std::atomic<int> sleepers_ = 0;
    std::atomic<int> lost_ = -100;  // the last step in which a thread lost its turn
    std::atomic<int> apart_ = 0;    // steps to come whose loops are regions of their own
};

}  // namespace llmgen::cpu
