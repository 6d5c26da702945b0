#include "engine/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace llmgen {

void Scheduler::add(Sequence& sequence) {
    CHECK(sequence.n_prompt > 0 && int(sequence.tokens.size()) >= sequence.n_prompt);
    CHECK(sequence.n_computed == 0 && sequence.pages.pages.empty());
    CHECK(PagePool::pages_for(int(sequence.tokens.size())) <= pool_.total(), "{} tokens, {} pages in all",
          sequence.tokens.size(), pool_.total());
    CHECK(waiting_.insert(&sequence).second, "two sequences of arrival {}", sequence.arrival);
    changed_ = true;
}

void Scheduler::remove(Sequence& sequence) {
    if (waiting_.erase(&sequence) == 0) {
        const auto at = std::ranges::find(running_, &sequence);
        CHECK(at != running_.end(), "sequence {} is neither waiting nor running", sequence.arrival);
        running_.erase(at);
    }
    pool_.release(sequence.pages);
    changed_ = true;
    std::erase_if(plan_.rows, [&](const PlanRow& row) { return row.sequence == &sequence; });
}

const Plan& Scheduler::next() {
    plan_.rows.clear();
    plan_.n_preempted = 0;
    changed_ = false;
    decode();
    budget_ = prompt_budget();
    all_logits_budget_ = limits_.all_logits_rows;
    prefill();
    while (budget_ > 0 && admit()) {
    }
    return plan_;
}

const Plan& Scheduler::next_ahead(std::span<const PlanRow> last) {
    plan_.rows.clear();
    plan_.n_preempted = 0;
    if (changed_ || last.size() != running_.size()) return plan_;
    for (const PlanRow& row : last) {
        Sequence& sequence = *row.sequence;
        if (sequence.n_pending() != 0 || !pool_.reserve(sequence.pages, int(sequence.tokens.size()) + 1)) {
            plan_.rows.clear();
            return plan_;
        }
        plan_.rows.push_back({&sequence, sequence.n_computed, 1});
    }
    return plan_;
}

void Scheduler::decode() {
    for (std::size_t i = 0; i < running_.size(); ++i) {  // running_ shrinks from its end
        Sequence& sequence = *running_[i];
        if (sequence.n_pending() != 1) continue;
        bool fits = true;
        while (!pool_.reserve(sequence.pages, int(sequence.tokens.size())) && fits) {
            fits = running_.back() != &sequence;
            preempt_worst();
        }
        if (fits) plan_.rows.push_back({&sequence, sequence.n_computed, 1});
    }
}

void Scheduler::preempt_worst() {
    Sequence& worst = *running_.back();
    running_.pop_back();
    pool_.release(worst.pages);
    worst.n_computed = 0;
    waiting_.insert(&worst);
    changed_ = true;
    ++plan_.n_preempted;
}

int Scheduler::prompt_budget() const {
    const int n_decoding = int(plan_.rows.size());
    const int whole = limits_.prefill_chunk;
    if (n_decoding == 0) return whole;
    constexpr int kMany = 4;
    int n_prompts = 0, n_tokens = 0;  // prompts that a full chunk would finish, best first
    const auto fits = [&](const Sequence& sequence) {
        if (sequence.all_logits || n_tokens + sequence.n_pending() > whole) return false;
        n_tokens += sequence.n_pending();
        ++n_prompts;
        return true;
    };
    bool room = true;
    for (const Sequence* sequence : running_)
        if (room && sequence->n_pending() > 1) room = fits(*sequence);
    int places = limits_.max_sequences - n_running();
    for (auto next = waiting_.begin(); room && next != waiting_.end() && places > 0; ++next, --places)
        room = fits(**next);
    const int few = std::min(whole, limits_.mixed_chunk);
    return n_prompts >= std::max(kMany, n_decoding / 4) ? std::max(few, n_tokens) : few;
}

void Scheduler::prefill() {
    for (Sequence* sequence : running_) {
        if (budget_ <= 0) return;
        if (sequence->n_pending() > 1) plan_prefill(*sequence);
    }
}

void Scheduler::plan_prefill(Sequence& sequence) {
    int n = std::min(sequence.n_pending(), budget_);
    if (sequence.all_logits && sequence.n_computed < sequence.n_prompt) {
        n = std::min(n, all_logits_budget_);
        all_logits_budget_ -= n;
    }
    if (n <= 0) return;
    budget_ -= n;
    plan_.rows.push_back({&sequence, sequence.n_computed, n});
}

bool Scheduler::admit() {
    if (waiting_.empty() || n_running() >= limits_.max_sequences || plan_.n_preempted > 0) return false;
    Sequence& sequence = **waiting_.begin();
    const int n_tokens = int(sequence.tokens.size());
    const int cacheable = sequence.all_logits ? 0 : n_tokens - 1;  // one token at least is computed
    const int n_found = pool_.attach(sequence.pages, sequence.tokens, cacheable);
    const int missing = PagePool::pages_for(n_tokens) - int(sequence.pages.pages.size());
    if (missing + n_running() > pool_.available() || !pool_.reserve(sequence.pages, n_tokens)) {
        pool_.release(sequence.pages);
        return false;
    }
    waiting_.erase(waiting_.begin());
    running_.insert(std::ranges::upper_bound(running_, &sequence, Better()), &sequence);
    sequence.n_computed = n_found;
    if (sequence.n_cached < 0) sequence.n_cached = n_found;
    plan_prefill(sequence);
    return true;
}

void Scheduler::commit() {
    for (const PlanRow& row : plan_.rows) {
        Sequence& sequence = *row.sequence;
        sequence.n_computed += row.n_new;
        pool_.publish(sequence.pages, sequence.tokens, sequence.n_computed);
    }
    plan_.rows.clear();
}

}  // namespace llmgen
