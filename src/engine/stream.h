// What a request's submitter, its stream and the engine's worker share.
//
//   submitter ──arrivals──► Mailbox ──► worker          Mailbox: one per engine, outlives it in the streams
//   consumer  ◄──chunks──── State   ◄── worker          State: one per request
//   consumer  ──cancel────► State, and a nudge to the mailbox
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "llmgen/llmgen.h"

namespace llmgen {

struct Answer;

struct Mailbox {
    std::mutex mutex;
    std::condition_variable wake;
    std::vector<std::unique_ptr<Answer>> arrivals;
    bool cancelled = false;  // some stream was; the worker looks which
    bool closing = false;
    std::string fault;  // of the device: nothing more can be computed
    EngineStats stats;

    ~Mailbox();
    void nudge();  // a stream was cancelled
};

class Stream::State {
public:
    explicit State(std::shared_ptr<Mailbox> mailbox) : mailbox_(std::move(mailbox)) {}

    // The worker's side.
    void push(Chunk chunk);
    void finish(Result result);
    bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

    // The consumer's side.
    std::optional<Chunk> next();
    const Result& result();
    void cancel();
    bool ended();

private:
    std::shared_ptr<Mailbox> mailbox_;
    std::mutex mutex_;
    std::condition_variable changed_;  // a chunk more, or the end
    std::condition_variable ended_;    // who waits for the result alone isn't woken for every token
    std::deque<Chunk> chunks_;
    std::optional<Result> result_;
    std::atomic<bool> cancelled_{false};
};

}  // namespace llmgen
