#include "app/batch/sink.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "app/batch/item.h"
#include "app/cli/io.h"
#include "base/error.h"

namespace llmgen::app {

Sink::Sink(const std::string& path, Mode mode, const std::string& input) : path_(path) {
    if (path == "-") {
        fd_ = 1;
        return;
    }
    // Of what is no file (/dev/null, a terminal, a named pipe) nothing is kept, so nothing can be lost.
    struct stat status {};
    const bool file =
        ::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode);
    if (!file && mode == Mode::resume)
        fail("-o {}: is no file, so there is nothing to resume", printable(path));
    const int access = file ? O_RDWR | O_CREAT | (mode == Mode::create ? O_EXCL : 0) : O_WRONLY;
    fd_ = ::open(path.c_str(), access | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno == EEXIST)
        fail("{} exists; --resume goes on with it, --overwrite starts anew", printable(path));
    if (fd_ < 0) fail("{}: {}", printable(path), std::strerror(errno));
    if (!file) return;
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        ::close(fd_);
        fail("{}: another process is writing it", printable(path));
    }
    try {
        if (input != "-" && is_same_file(input)) fail_usage("-o {}: that is the input", printable(path));
        if (mode == Mode::overwrite && ::ftruncate(fd_, 0) != 0 && errno != EINVAL)
            fail("{}: {}", printable(path), std::strerror(errno));
        if (mode == Mode::resume) recover();
    } catch (...) {
        ::close(fd_);
        throw;
    }
}

Sink::~Sink() {
    if (fd_ > 1) ::close(fd_);
}

void Sink::write(const std::string& line) {
    write_all(fd_, line, fd_ == 1 ? "standard output" : printable(path_));
}

bool Sink::is_same_file(const std::string& path) const {
    struct stat mine {
    }, other{};
    return fd_ > 1 && ::fstat(fd_, &mine) == 0 && ::stat(path.c_str(), &other) == 0 &&
           mine.st_dev == other.st_dev && mine.st_ino == other.st_ino;
}

void Sink::recover() {
    std::string pending, last_text;
    std::size_t whole = 0;  // bytes up to the end of the last good line
    std::size_t number = 0;
    char chunk[1 << 16];
    const auto take = [&](const std::string& text) {
        ++number;
        const DoneLine line = read_done_line(text);
        if (line.line == 0) return false;
        if (line.line > std::size_t(1) << 36)
            fail("{}, line {}: the number of its input line is nonsense", printable(path_), number);
        if (done_.lines.size() <= line.line) done_.lines.resize(line.line + 1);
        if (done_.lines[line.line])
            fail("{}, line {}: input line {} is answered twice", printable(path_), number, line.line);
        done_.lines[line.line] = true;
        ++done_.count;
        done_.failed += line.failed;
        if (line.line > done_.last) {
            done_.last = line.line;
            last_text = text;
        }
        return true;
    };
    std::size_t bad_at = 0;
    while (true) {
        const ssize_t n = ::read(fd_, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail("reading {} failed: {}", printable(path_), std::strerror(errno));
        if (n == 0) break;
        pending.append(chunk, std::size_t(n));
        std::size_t begin = 0;
        for (std::size_t end = pending.find('\n'); end != std::string::npos;
             end = pending.find('\n', begin)) {
            if (bad_at)
                fail("{}, line {}: not a line that llmgen batch wrote; it can't be resumed", printable(path_),
                     bad_at);
            const std::string text = pending.substr(begin, end - begin);
            begin = end + 1;
            if (take(text))
                whole += text.size() + 1;
            else
                bad_at = number;  // tolerated as the very last line only: torn by a crash of the machine
        }
        pending.erase(0, begin);
    }
    if (bad_at && whole == 0)
        fail("{}, line {}: not a line that llmgen batch wrote; it can't be resumed", printable(path_),
             bad_at);
    if (::ftruncate(fd_, off_t(whole)) != 0 || ::lseek(fd_, off_t(whole), SEEK_SET) < 0)
        fail("{}: cutting off the torn last line failed: {}", printable(path_), std::strerror(errno));
    if (!last_text.empty()) done_.last_id = id_of_line(last_text);
}

}  // namespace llmgen::app
