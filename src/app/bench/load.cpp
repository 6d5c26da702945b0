#include "app/bench/load.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <mutex>
#include <random>
#include <thread>

#include "base/error.h"

namespace llmgen::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

Record record_of(const Result& result, double arrival_s, double submit_s) {
    Record record;
    record.times.arrival_s = arrival_s;
    record.times.queued_s = result.timing.queued_s;
    record.times.token_times_s = result.timing.token_times_s;
    record.times.prompt_tokens = int(result.prompt_ids.size());
    record.times.cached_tokens = result.cached_tokens;
    record.submit_s = submit_s;
    record.token_ids = result.token_ids;
    return record;
}

class Run {
public:
    Run(std::vector<Request> requests, const Serve& serve)
        : requests_(std::move(requests)), serve_(serve), records_(requests_.size()), begin_(Clock::now()) {}

    std::size_t size() const { return requests_.size(); }
    Clock::time_point begin() const { return begin_; }

    void one(std::size_t i) {
        try {
            const double arrival_s = Seconds(Clock::now() - begin_).count();
            double submit_s = 0;
            const Result result = serve_(std::move(requests_[i]), submit_s);
            if (result.finish_reason == FinishReason::error) fail("request {}: {}", i, result.error);
            if (result.timing.token_times_s.empty()) fail("request {}: no token came back", i);
            records_[i] = record_of(result, arrival_s, submit_s);
        } catch (...) {
            const std::lock_guard lock(mutex_);
            if (!failure_) failure_ = std::current_exception();
        }
    }
    bool failed() {
        const std::lock_guard lock(mutex_);
        return bool(failure_);
    }
    std::vector<Record> take() {
        if (failure_) std::rethrow_exception(failure_);
        return std::move(records_);
    }

private:
    std::vector<Request> requests_;
    const Serve& serve_;
    std::vector<Record> records_;
    Clock::time_point begin_;
    std::mutex mutex_;
    std::exception_ptr failure_;
};

}  // namespace

Serve serve_with(Engine& engine) {
    return [&engine](Request request, double& submit_s) {
        const auto begin = Clock::now();
        Stream stream = engine.submit(std::move(request));
        submit_s = Seconds(Clock::now() - begin).count();
        return stream.result();
    };
}

std::vector<double> poisson_arrivals(int n, double rate, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<double> arrivals;
    double at = 0;
    for (int i = 0; i < n; ++i) {
        arrivals.push_back(at);
        const double u = double(random() >> 11) * 0x1p-53;  // [0, 1)
        at += -std::log1p(-u) / rate;
    }
    return arrivals;
}

std::vector<Record> drive(std::vector<Request> requests, const Load& load, const Serve& serve) {
    Run run(std::move(requests), serve);
    {
        std::vector<std::jthread> threads;
        if (load.rate > 0) {
            const std::vector<double> arrivals = poisson_arrivals(int(run.size()), load.rate, load.seed);
            for (std::size_t i = 0; i < run.size(); ++i) {
                std::this_thread::sleep_until(
                    run.begin() + std::chrono::duration_cast<Clock::duration>(Seconds(arrivals[i])));
                if (run.failed()) break;
                threads.emplace_back([&run, i] { run.one(i); });
            }
        } else {
            std::atomic<std::size_t> next = 0;
            const std::size_t clients = std::min(std::size_t(load.concurrency), run.size());
            for (std::size_t client = 0; client < clients; ++client)
                threads.emplace_back([&run, &next] {
                    for (std::size_t i = next++; i < run.size() && !run.failed(); i = next++) run.one(i);
                });
            threads.clear();  // joins before `next` goes
        }
    }
    return run.take();
}

void expect_exact(const Result& result, int prompt_tokens, int new_tokens, bool cache_allowed) {
    const int generated = int(result.token_ids.size());
    if (generated != new_tokens)
        fail(
            "an answer has {} tokens, {} were asked for (it ended with {}): every figure of this run would "
            "be "
            "of another load than it says",
            generated, new_tokens, name_of(result.finish_reason));
    if (generated != int(result.timing.token_times_s.size()))
        fail("an answer has {} tokens and {} times", generated, result.timing.token_times_s.size());
    if (int(result.prompt_ids.size()) != prompt_tokens)
        fail("a prompt of {} tokens was asked for, {} were computed", prompt_tokens,
             result.prompt_ids.size());
    if (result.cached_tokens != 0 && !cache_allowed)
        fail(
            "{} of {} prompt tokens came from the prefix cache: TTFT would be too good (--prefix-cache "
            "allows it)",
            result.cached_tokens, prompt_tokens);
}

}  // namespace llmgen::bench
