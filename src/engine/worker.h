// The loop that computes: one thread, one device.
//
//   take what has arrived, drop what was cancelled
//   plan   = scheduler.next()
//   logits = runner.run(plan)
//   scheduler.commit(); each row that samples picks its token; what has ended gives its pages back and is
//   delivered
//
// Where the device chooses tokens it need not wait for the host to have seen them: a decode step of the same
// rows is enqueued before the ids of the one before are read. Whoever turns out to have ended in between has
// one token computed too many, which nobody reads: its row is taken out of the plan before the commit, its
// page is written before any next owner's step, and no page that others may share is touched, since only full
// pages are. A step in which somebody comes or goes waits for the ids, and so do requests whose choice
// depends on the last token (penalties) or whose logits come to the host.
//
//   step n        enqueue n, choose n │ enqueue n + 1, choose n + 1 │ read n: deliver, settle, commit n + 1
//   step n + 1                          enqueue n + 2, choose n + 2 │ read n + 1 …
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
    /// A step's choices that the device makes.
    struct Choosing {
        std::vector<std::pair<Answer*, int>> answers;  // with the row of logits; null once it has ended
        int ticket = -1;
    };
    void step();
    int begin_step(Clock::time_point now);  // plans and enqueues; the number of preempted sequences
    void begin_choices();
    const Plan* run_ahead();  // the plan that it enqueued; null where it didn't
    void take_choices();
    void take_logits();
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
    std::vector<PlanRow> rows_;                     // of the step whose tokens come next
    struct Sampling {
        Answer* answer;
        std::span<float> logits;
        int largest;  // where it stands, or -1: not known
    };
    std::vector<Sampling> sampling_;
    Choosing choosing_, choosing_ahead_;
    std::vector<TokenChoice> choices_;
    const Plan* ahead_ = nullptr;  // of the step that was enqueued before the ids of the last one were read
    std::string fault_;            // of the device; the scheduler isn't touched any more
    bool look_for_cancelled_ = false;
};

}  // namespace llmgen
