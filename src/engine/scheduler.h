// Which tokens of which sequences go through the model next.
//
//   waiting ──admit──► running: prefill in chunks, then one token a step ──remove──► gone
//      ▲                  │
//      └────preempt───────┘   pages given back, tokens kept: computed again later, nothing lost or said twice
//
// next() looks at the waiting, the running, the pool and the limits, at no clock and no random number, so
// that a history can be played again. Its rules:
//   1. Every running sequence that is past its prompt gets its one token, best first. A page that is missing
//   is
//      taken from the worst running sequence, which goes back to wait (or from itself, if it is the worst):
//      the best one always moves, so all do in the end.
//   2. What is left of the budget goes to prompts, best first, in chunks; a short budget while others decode,
//      so that they hardly feel a long prompt come in. Many short prompts that would all be done in one full
//      chunk are worth one long step: they start as many answers as they hold up, or a quarter of it.
//   3. The first of the waiting is admitted when its whole prompt has pages, with one to spare for each that
//      runs. Nobody overtakes it: no starvation.
// Best: higher priority, then earlier arrival.
//
// Integers only; the caller runs the batch and samples.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "kv/page_pool.h"

namespace llmgen {

struct SchedulerLimits {
    int max_sequences = 64;    // running at the same time
    int prefill_chunk = 512;   // prompt tokens a step, at most
    int mixed_chunk = 64;      // the same while any sequence decodes, but for many short prompts
    int all_logits_rows = 32;  // prompt tokens a step of sequences that want the logits of each
};

/// A request as the scheduler sees it. The caller owns it and appends what it samples to `tokens`.
struct Sequence {
    std::vector<int> tokens;  // the prompt, then the answer so far
    int n_prompt = 0;
    int priority = 0;
    std::int64_t arrival = 0;  // unique, ascending
    bool all_logits = false;   // wants the logits of every prompt token, hence computes them all
    void* owner = nullptr;     // the caller's, for finding its own way back

    int n_computed = 0;  // tokens from the front whose keys and values are stored
    int n_cached = -1;   // of the prompt, found in the cache when it was first admitted; -1 before
    PageTable pages;

    int n_pending() const { return int(tokens.size()) - n_computed; }
};

/// Tokens [first, first + n_new) of a sequence.
struct PlanRow {
    Sequence* sequence = nullptr;
    int first = 0;
    int n_new = 0;
    /// Computes the last token there is, or one that is still to come: its logits choose the next.
    bool samples() const { return first + n_new >= int(sequence->tokens.size()); }
};

struct Plan {
    std::vector<PlanRow> rows;
    int n_preempted = 0;
};

class Scheduler {
public:
    Scheduler(PagePool& pool, const SchedulerLimits& limits) : pool_(pool), limits_(limits) {}

    /// Room for its tokens and one more must exist in an empty pool.
    void add(Sequence& sequence);
    /// Finished or cancelled: its pages are free at once. Not between next() and commit().
    void remove(Sequence& sequence);

    /// Prompt tokens of a step in which others decode; the caller may choose anew before each step.
    void set_mixed_chunk(int tokens) { limits_.mixed_chunk = tokens; }

    /// The next step's rows; empty where nothing is to be done. Valid until the next call.
    const Plan& next();
    /// The step after the committed one of the rows `last`, whose tokens have been chosen but are not known
    /// yet: one token each, in the same order. Empty where more would change than that, or where pages are
    /// short. Of those that turn out to have ended, remove() takes the row out again. commit() once the
    /// tokens are known.
    const Plan& next_ahead(std::span<const PlanRow> last);
    /// The rows of the plan have been computed, or will have been before anything else is.
    void commit();

    int n_waiting() const { return int(waiting_.size()); }
    int n_running() const { return int(running_.size()); }
    std::span<Sequence* const> running() const { return running_; }

private:
    struct Better {
        bool operator()(const Sequence* a, const Sequence* b) const {
            return a->priority != b->priority ? a->priority > b->priority : a->arrival < b->arrival;
        }
    };
    void decode();
    void preempt_worst();
    int prompt_budget() const;
    void prefill();
    bool admit();
    void plan_prefill(Sequence& sequence);

    PagePool& pool_;
    SchedulerLimits limits_;
    std::set<Sequence*, Better> waiting_;
    std::vector<Sequence*> running_;  // best first
    Plan plan_;
    bool changed_ = false;       // who is there, since the last plan: somebody may be admitted
    int budget_ = 0;             // prompt tokens left in this step
    int all_logits_budget_ = 0;  // of those that want the logits of each
};

}  // namespace llmgen
