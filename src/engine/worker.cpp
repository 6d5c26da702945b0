#include "engine/worker.h"

#include <omp.h>

#include <algorithm>
#include <exception>

namespace llmgen {
namespace {

Answer& answer_of(const PlanRow& row) { return *static_cast<Answer*>(row.sequence->owner); }

}  // namespace

void Worker::serve() {
    while (receive()) {
        try {
            if (fault_.empty()) step();
        } catch (const std::exception& fault) {  // of the device: nothing that follows could be trusted
            fault_ = fault.what();
            const std::lock_guard lock(mailbox_.mutex);
            mailbox_.fault = fault_;
        }
        if (!fault_.empty()) end_all(FinishReason::error, fault_);  // those too that came just before it
    }
    end_all(FinishReason::cancelled, "");
}

bool Worker::receive() {
    std::vector<std::unique_ptr<Answer>> arrivals;
    {
        std::unique_lock lock(mailbox_.mutex);
        mailbox_.wake.wait(lock, [&] {
            return mailbox_.closing || mailbox_.cancelled || !mailbox_.arrivals.empty() || !answers_.empty();
        });
        arrivals.swap(mailbox_.arrivals);
        look_for_cancelled_ = std::exchange(mailbox_.cancelled, false);
        if (mailbox_.closing) {
            for (auto& answer : arrivals) answers_.push_back(std::move(answer));
            return false;
        }
    }
    for (auto& answer : arrivals) {
        if (fault_.empty()) scheduler_.add(answer->sequence);
        answers_.push_back(std::move(answer));
    }
    return true;
}

void Worker::drop_cancelled() {
    for (const auto& answer : answers_)
        if (answer->cancelled()) answer->finish(FinishReason::cancelled, Clock::now());
    settle();
}

void Worker::step() {
    if (look_for_cancelled_) drop_cancelled();
    const Clock::time_point begin = Clock::now();
    const int n_preempted = ahead_ != nullptr && !rows_.empty() ? 0 : begin_step(begin);
    ahead_ = run_ahead();
    if (!rows_.empty()) {
        take_logits();
        take_choices();
        measure(rows_, begin);
    }
    {
        const std::lock_guard lock(mailbox_.mutex);
        mailbox_.stats.preemptions += std::uint64_t(n_preempted);
        mailbox_.stats.steps += rows_.empty() ? 0 : 1;
        mailbox_.stats.steps_ahead += ahead_ != nullptr ? 1 : 0;
    }
    std::swap(choosing_, choosing_ahead_);
    settle();
    if (ahead_ == nullptr) return;
    rows_ = ahead_->rows;  // of those that go on
    scheduler_.commit();
}

int Worker::begin_step(Clock::time_point now) {
    scheduler_.set_mixed_chunk(pace_.chunk());
    const Plan& plan = scheduler_.next();
    rows_ = plan.rows;
    if (rows_.empty()) return plan.n_preempted;
    for (const PlanRow& row : rows_) answer_of(row).begin_step(row.n_new, now);
    runner_.run(plan);
    scheduler_.commit();
    begin_choices();
    return plan.n_preempted;
}

/// Sorts out who chooses: the device, or take_logits().
void Worker::begin_choices() {
    int next = 0;  // row of logits
    sampling_.clear();
    choosing_.answers.clear();
    choices_.clear();
    for (const PlanRow& row : rows_) {
        Answer& answer = answer_of(row);
        const bool samples = row.samples();
        if (answer.sequence.all_logits)
            for (int p = row.first; p < std::min(row.first + row.n_new, answer.sequence.n_prompt); ++p) {
                answer.take_prompt_logits(p, runner_.logits(next));
                const bool last = samples && p + 1 == row.first + row.n_new;
                if (!last) ++next;  // the last row serves twice
            }
        if (!samples) continue;
        if (std::optional<TokenChoice> choice = runner_.chooses() ? answer.choice() : std::nullopt) {
            choice->row = next;
            choosing_.answers.emplace_back(&answer, next++);
            choices_.push_back(*choice);
        } else {
            sampling_.push_back({&answer, runner_.logits(next), runner_.largest(next)});
            ++next;
        }
    }
    if (!choices_.empty()) choosing_.ticket = runner_.begin_choice(choices_);
}

/// Enqueues the step after the one whose ids are still to be read, where nothing but those ids is missing.
const Plan* Worker::run_ahead() {
    if (!runner_.can_follow() || choosing_.answers.empty() || choosing_.answers.size() != rows_.size())
        return nullptr;
    choices_.clear();
    for (const auto& [answer, row] : choosing_.answers) {
        std::optional<TokenChoice> choice =
            answer && !answer->cancelled() ? answer->choice_ahead() : std::nullopt;
        if (!choice) return nullptr;
        choice->row = row;
        choices_.push_back(*choice);
    }
    const Plan& plan = scheduler_.next_ahead(rows_);
    if (plan.rows.empty()) return nullptr;
    runner_.run_next(plan);
    choosing_ahead_.answers = choosing_.answers;
    choosing_ahead_.ticket = runner_.begin_choice(choices_);
    return &plan;
}

void Worker::take_choices() {
    if (choosing_.answers.empty()) return;
    const std::span<const int> ids = runner_.finish_choice(choosing_.ticket);
    for (const auto& [answer, row] : choosing_.answers)
        if (answer) answer->take_choice(ids[std::size_t(row)], Clock::now());
}

void Worker::take_logits() {
    // Each answer touches only what is its own, so the threads that computed the step share the choosing too:
    // a nucleus over 128k logits takes 1.5 ms, and there may be 64 of them.
    const int n = int(sampling_.size());
    const int n_threads = std::min({n, n_threads_, omp_get_max_threads()});
#pragma omp parallel for schedule(dynamic) num_threads(std::max(n_threads, 1)) if (n_threads > 1)
    for (int i = 0; i < n; ++i) {
        auto& [answer, logits, largest] = sampling_[std::size_t(i)];
        try {
            answer->take_logits(logits, largest, Clock::now());
        } catch (const std::exception& fault) {  // nothing may leave a parallel loop
            if (!answer->ended()) answer->fail(fault.what(), Clock::now());
        }
    }
}

void Worker::measure(const std::vector<PlanRow>& rows, Clock::time_point begin) {
    int n_decoding = 0, n_prompt_tokens = 0;
    for (const PlanRow& row : rows) {
        if (row.n_new > 1 || row.first < row.sequence->n_prompt)
            n_prompt_tokens += row.n_new;
        else
            ++n_decoding;
    }
    pace_.add(n_decoding, n_prompt_tokens, std::chrono::duration<double>(Clock::now() - begin).count());
}

void Worker::settle() {
    std::vector<std::unique_ptr<Answer>> ended;
    for (auto& answer : answers_)
        if (answer->ended()) {
            scheduler_.remove(answer->sequence);
            for (auto& [choosing, row] : choosing_.answers)
                if (choosing == answer.get()) choosing = nullptr;
            std::erase_if(rows_, [&](const PlanRow& row) { return row.sequence == &answer->sequence; });
            ended.push_back(std::move(answer));
        }
    std::erase(answers_, nullptr);
    {
        const std::lock_guard lock(mailbox_.mutex);
        EngineStats& stats = mailbox_.stats;
        stats.running = scheduler_.n_running();
        stats.waiting = scheduler_.n_waiting();
        stats.pages_total = std::size_t(pool_.total());
        stats.pages_used = std::size_t(pool_.in_use());
        stats.pages_cached = std::size_t(pool_.cached());
    }
    for (const auto& answer : ended) answer->deliver();
}

void Worker::end_all(FinishReason reason, const std::string& message) {
    for (const auto& answer : answers_) {
        if (answer->ended()) continue;
        answer->result.error = message;
        answer->finish(reason, Clock::now());
    }
    for (const auto& answer : answers_) answer->deliver();
    answers_.clear();
}

}  // namespace llmgen
