// Ctrl-C and SIGTERM, turned into calls on a thread of their own.
//
// The signals are blocked in every thread and read from a descriptor, so nothing runs in a signal handler and
// no global is needed. Must be made before any other thread starts (threads inherit the mask).
#pragma once

#include <functional>
#include <mutex>
#include <thread>

namespace llmgen::app {

class Interrupts {
public:
    Interrupts();
    ~Interrupts();
    Interrupts(const Interrupts&) = delete;

    /// What the next interrupt does; it is called on the watching thread. Empty: the process ends at once
    /// with the signal's exit code. An interrupt that finds the action already running ends the process too,
    /// so that the second Ctrl-C always works.
    void on_interrupt(std::function<void()> action);
    /// 0, or the exit code of the signal that came: 130 (SIGINT), 143 (SIGTERM).
    int exit_code() const;
    /// Forgets that an interrupt came (a chat goes on after it).
    void clear();

private:
    void watch();
    mutable std::mutex mutex_;
    std::function<void()> action_;
    int exit_code_ = 0;
    int signals_ = -1;
    int wake_ = -1;
    std::jthread thread_;
};

}  // namespace llmgen::app
