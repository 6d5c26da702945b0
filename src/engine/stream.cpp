#include "engine/stream.h"

#include "engine/answer.h"

namespace llmgen {

Mailbox::~Mailbox() = default;

void Mailbox::nudge() {
    {
        const std::lock_guard lock(mutex);
        cancelled = true;
    }
    wake.notify_one();
}

void Stream::State::push(Chunk chunk) {
    {
        const std::lock_guard lock(mutex_);
        chunks_.push_back(std::move(chunk));
    }
    changed_.notify_all();
}

void Stream::State::finish(Result result) {
    {
        const std::lock_guard lock(mutex_);
        result_ = std::move(result);
    }
    changed_.notify_all();
    ended_.notify_all();
}

std::optional<Chunk> Stream::State::next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !chunks_.empty() || result_; });
    if (chunks_.empty()) return std::nullopt;
    Chunk chunk = std::move(chunks_.front());
    chunks_.pop_front();
    return chunk;
}

const Result& Stream::State::result() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return result_.has_value(); });
    chunks_.clear();
    return *result_;  // never changes again
}

void Stream::State::cancel() {
    if (ended() || cancelled_.exchange(true)) return;
    mailbox_->nudge();
}

bool Stream::State::ended() {
    const std::lock_guard lock(mutex_);
    return result_.has_value();
}

Stream::Stream(std::shared_ptr<State> state) : state_(std::move(state)) {}
Stream::~Stream() {
    if (state_) state_->cancel();
}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&& other) noexcept {
    if (this != &other) {
        if (state_) state_->cancel();
        state_ = std::move(other.state_);
    }
    return *this;
}
std::optional<Chunk> Stream::next() { return state_->next(); }
void Stream::cancel() { state_->cancel(); }
const Result& Stream::result() { return state_->result(); }

}  // namespace llmgen
