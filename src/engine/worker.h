// The loop that computes: one thread, one device.
//
//   take what has arrived, drop what was cancelled
//   plan   = scheduler.next()
//   logits = runner.run(plan)
//   scheduler.commit(); each row that samples picks its token; what has ended gives its pages back and is
//   delivered
#pragma once

#include <memory>
#include <vector>

#include "engine/answer.h"
#include "engine/pace.h"
#include "engine/runner.h"
#include "engine/stream.h"

namespace llmgen {

class Worker {
public:
    /// `max_slowdown` as in EngineOptions. `n_threads`: the backend's own pool on a CPU, for choosing tokens.
    Worker(Runner& runner,
           PagePool& pool,
           const SchedulerLimits& limits,
           double max_slowdown,
           int n_threads,
           Mailbox& mailbox)
        : runner_(runner),
          pool_(pool),
          scheduler_(pool, limits),
          pace_(max_slowdown, limits.prefill_chunk),
          n_threads_(n_threads),
          mailbox_(mailbox) {}

    /// Until the mailbox closes; whatever is then unfinished ends as cancelled.
    void serve();

private:
    bool receive();  // false: the mailbox is closing
    void drop_cancelled();
    void step();
    void take_logits(const std::vector<PlanRow>& rows);
    void measure(const std::vector<PlanRow>& rows, Clock::time_point begin);
    void settle();  // removes and delivers what has ended
    void end_all(FinishReason reason, const std::string& message);

    Runner& runner_;
    PagePool& pool_;
    Scheduler scheduler_;
    Pace pace_;
    int n_threads_;
    Mailbox& mailbox_;
    std::vector<std::unique_ptr<Answer>> answers_;  // waiting and running
    std::vector<PlanRow> rows_;
    struct Sampling {
        Answer* answer;
        std::span<float> logits;
    };
    std::vector<Sampling> sampling_;
    std::vector<Answer*> choosing_;  // whose tokens the device chooses, and how
    std::vector<TokenChoice> choices_;
    std::vector<int> chosen_;
    bool look_for_cancelled_ = false;
};

}  // namespace llmgen
