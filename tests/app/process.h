// Runs the real program: arguments, stdin, signals, exit code, bytes; on pipes or on a pseudo-terminal.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace llmgen::test {

struct Outcome {
    int code = -1;  // -1000 where it did not end in time
    std::string out, err;
};

struct RunWith {
    std::string input = {};
    bool keep_stdin_open = false;
    bool null_stdin = false;  // /dev/null instead of a pipe
    int stdout_fd = -1;       // given instead of a pipe
    std::vector<std::pair<std::string, std::string>> environment = {};
    double timeout_s = 60;
};

class Process {
public:
    explicit Process(const std::vector<std::string>& arguments, const RunWith& setup = {}) : setup_(setup) {
        int in[2], out[2], err[2];
        if (::pipe2(in, O_CLOEXEC) || ::pipe2(out, O_CLOEXEC) || ::pipe2(err, O_CLOEXEC)) std::abort();
        pid_ = ::fork();
        if (pid_ == 0) {
            const int null = ::open("/dev/null", O_RDONLY);
            ::dup2(setup.null_stdin ? null : in[0], 0);
            ::dup2(setup.stdout_fd >= 0 ? setup.stdout_fd : out[1], 1);
            ::dup2(err[1], 2);
            execute(arguments, setup);
        }
        ::close(in[0]);
        ::close(out[1]);
        ::close(err[1]);
        in_ = in[1];
        out_ = out[0];
        err_ = err[0];
        ::signal(SIGPIPE, SIG_IGN);
        write(setup.input);
        if (!setup.keep_stdin_open) close_stdin();
    }
    ~Process() {
        if (pid_ > 0 && !ended_) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
        }
        close_stdin();
        ::close(out_);
        ::close(err_);
    }
    Process(const Process&) = delete;

    void write(const std::string& text) {
        if (!text.empty() && in_ >= 0) (void)!::write(in_, text.data(), text.size());
    }
    void close_stdin() {
        if (in_ >= 0) ::close(std::exchange(in_, -1));
    }
    void signal(int number) const { ::kill(pid_, number); }
    pid_t pid() const { return pid_; }

    /// Collects output until `text` was seen on stdout or stderr; false after the timeout.
    bool wait_for(const std::string& text) {
        return collect([&] {
            return outcome_.out.find(text) != std::string::npos ||
                   outcome_.err.find(text) != std::string::npos;
        });
    }
    bool wait_for_bytes(std::size_t n) {
        return collect([&] { return outcome_.out.size() >= n; });
    }
    const Outcome& so_far() const { return outcome_; }

    Outcome wait() {
        collect([] { return false; });
        int status = 0;
        const auto end = deadline();
        while (::waitpid(pid_, &status, WNOHANG) == 0) {
            if (std::chrono::steady_clock::now() > end) {
                ::kill(pid_, SIGKILL);
                ::waitpid(pid_, &status, 0);
                ended_ = true;
                outcome_.code = -1000;
                return outcome_;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        ended_ = true;
        outcome_.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        return outcome_;
    }

    static void execute(const std::vector<std::string>& arguments, const RunWith& setup) {
        for (const auto& [name, value] : setup.environment) ::setenv(name.c_str(), value.c_str(), 1);
        std::vector<char*> argv;
        static std::string binary = LLMGEN_BINARY;
        argv.push_back(binary.data());
        for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
        argv.push_back(nullptr);
        ::execv(argv[0], argv.data());
        ::_exit(127);
    }

private:
    std::chrono::steady_clock::time_point deadline() const {
        return std::chrono::steady_clock::now() + std::chrono::milliseconds(int(setup_.timeout_s * 1000));
    }
    template <typename Done>
    bool collect(Done done) {
        const auto end = deadline();
        pollfd fds[2] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};
        while (!done()) {
            if (fds[0].fd < 0 && fds[1].fd < 0) return false;
            if (std::chrono::steady_clock::now() > end) return false;
            ::poll(fds, 2, 50);
            for (int i = 0; i < 2; ++i) {
                if (fds[i].fd < 0 || !fds[i].revents) continue;
                char chunk[4096];
                const ssize_t n = ::read(fds[i].fd, chunk, sizeof chunk);
                if (n > 0)
                    (i == 0 ? outcome_.out : outcome_.err).append(chunk, std::size_t(n));
                else
                    fds[i].fd = -1;
            }
        }
        return true;
    }
    RunWith setup_;
    pid_t pid_ = -1;
    int in_ = -1, out_ = -1, err_ = -1;
    bool ended_ = false;
    Outcome outcome_;
};

inline Outcome run(const std::vector<std::string>& arguments, const RunWith& setup = {}) {
    return Process(arguments, setup).wait();
}

/// The program with a terminal for stdin and stderr; stdout too, unless `stdout_fd` is given.
class Terminal {
public:
    explicit Terminal(const std::vector<std::string>& arguments, RunWith setup = {}) {
        setup.environment.emplace_back("TERM", "xterm");
        winsize size{40, 120, 0, 0};
        pid_ = ::forkpty(&fd_, nullptr, nullptr, &size);
        if (pid_ == 0) {
            if (setup.stdout_fd >= 0) ::dup2(setup.stdout_fd, 1);
            Process::execute(arguments, setup);
        }
    }
    ~Terminal() {
        if (!ended_) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
        }
        ::close(fd_);
    }
    Terminal(const Terminal&) = delete;

    void signal(int number) const { ::kill(pid_, number); }
    void type(const std::string& keys) { (void)!::write(fd_, keys.data(), keys.size()); }
    /// Waits until `text` comes up after what earlier calls found.
    bool see(const std::string& text, double timeout_s = 60) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(int(timeout_s * 1000));
        while (true) {
            const std::size_t at = screen_.find(text, seen_);
            if (at != std::string::npos) {
                seen_ = at + text.size();
                return true;
            }
            if (std::chrono::steady_clock::now() > end || !read_some()) return false;
        }
    }
    int wait(double timeout_s = 60) {
        see("\x01never", timeout_s);  // until the terminal closes
        int status = 0;
        for (int i = 0; i < int(timeout_s * 100); ++i) {
            if (::waitpid(pid_, &status, WNOHANG) == pid_) {
                ended_ = true;
                return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        return -1000;
    }
    /// Ctrl-D until the program ends: one that is typed between the prompt and its raw mode gets lost.
    int leave() {
        int code = -1000;
        for (int i = 0; i < 6 && code == -1000; ++i) {
            type("\x04");
            code = wait(5);
        }
        return code;
    }
    const std::string& screen() const { return screen_; }

private:
    bool read_some() {
        pollfd p{fd_, POLLIN, 0};
        if (::poll(&p, 1, 100) == 0) return true;
        char chunk[4096];
        const ssize_t n = ::read(fd_, chunk, sizeof chunk);
        if (n <= 0) return false;
        screen_.append(chunk, std::size_t(n));
        return true;
    }
    pid_t pid_ = -1;
    int fd_ = -1;
    bool ended_ = false;
    std::string screen_;
    std::size_t seen_ = 0;
};

}  // namespace llmgen::test
