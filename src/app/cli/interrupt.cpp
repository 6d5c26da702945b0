#include "app/cli/interrupt.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>

#include "base/error.h"

namespace llmgen::app {

Interrupts::Interrupts() {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGINT);
    ::sigaddset(&set, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    signals_ = ::signalfd(-1, &set, SFD_CLOEXEC);
    wake_ = ::eventfd(0, EFD_CLOEXEC);
    if (signals_ < 0 || wake_ < 0) fail("can't watch for signals: out of descriptors");
    thread_ = std::jthread([this] { watch(); });
}

Interrupts::~Interrupts() {
    const std::uint64_t one = 1;
    (void)!::write(wake_, &one, sizeof one);
    thread_.join();
    ::close(signals_);
    ::close(wake_);
}

void Interrupts::on_interrupt(std::function<void()> action) {
    const std::scoped_lock lock(mutex_);
    action_ = std::move(action);
}

int Interrupts::exit_code() const {
    const std::scoped_lock lock(mutex_);
    return exit_code_;
}

void Interrupts::clear() {
    const std::scoped_lock lock(mutex_);
    exit_code_ = 0;
}

void Interrupts::watch() {
    while (true) {
        pollfd fds[2] = {{signals_, POLLIN, 0}, {wake_, POLLIN, 0}};
        if (::poll(fds, 2, -1) < 0) continue;
        if (fds[1].revents) return;
        signalfd_siginfo info{};
        if (::read(signals_, &info, sizeof info) != ssize_t(sizeof info)) continue;
        const int code = 128 + int(info.ssi_signo);
        const std::scoped_lock lock(mutex_);
        if (!action_ || exit_code_ != 0) ::_exit(code);
        exit_code_ = code;
        action_();
    }
}

}  // namespace llmgen::app
