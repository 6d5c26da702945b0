#include "app/cli/io.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef LLMGEN_HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef LLMGEN_HAVE_ZSTD
#include <zstd.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/utf8.h"

namespace llmgen::app {

void prepare_descriptors() {
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN);  // a file too large for ulimit -f: an error of the write that made it so
    // Read-only for 1 and 2: writing to a stdout that was closed stays an error (EBADF).
    for (int fd = 0; fd <= 2; ++fd)
        if (::fcntl(fd, F_GETFD) == -1 && errno == EBADF)
            (void)!::open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY);
}

void end_in_a_line_without_the_file() {
    struct sigaction action {};
    action.sa_flags = int(SA_SIGINFO | SA_RESETHAND);
    action.sa_sigaction = [](int number, siginfo_t* info, void*) {
        if (info->si_code != BUS_ADRERR) {  // no file's doing: as if nobody had asked
            ::raise(number);
            return;
        }
        static constexpr std::string_view kLine =
            "\nllmgen: error: a file of the checkpoint got shorter while it was in use, or can't be read any "
            "more; "
            "start again when it is whole (--no-mmap reads files at the start)\n";
        (void)!::write(2, kLine.data(), kLine.size());
        ::_exit(1);
    };
    ::sigaction(SIGBUS, &action, nullptr);
}

bool is_terminal(int fd) { return ::isatty(fd) == 1; }

bool is_capable_terminal(int fd) {
    const char* term = std::getenv("TERM");
    return is_terminal(fd) && term && std::strcmp(term, "dumb") != 0;
}

int terminal_width(int fd) {
    winsize size{};
    return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string printable(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const utf8::Decoded d = utf8::decode(text);
        text.remove_prefix(std::size_t(d.length));
        if (d.code_point == '\n' || d.code_point == '\t')
            out += ' ';
        else if (d.code_point < 0x20 || (d.code_point >= 0x7f && d.code_point < 0xa0))
            out += fmt::format("\\x{:02x}", unsigned(d.code_point));
        else
            utf8::append(out, d.code_point);
    }
    return out;
}

void write_all(int fd, std::string_view bytes, const std::string& name) {
    while (!bytes.empty()) {
        const ssize_t n = ::write(fd, bytes.data(), bytes.size());
        if (n >= 0) {
            bytes.remove_prefix(std::size_t(n));
        } else if (errno == EAGAIN) {  // somebody made the terminal non-blocking
            pollfd p{fd, POLLOUT, 0};
            ::poll(&p, 1, -1);
        } else if (errno != EINTR) {
            fail("writing to {} failed: {}", name, std::strerror(errno));
        }
    }
}

void write_stderr(std::string_view bytes) noexcept {
    try {
        write_all(2, bytes, "standard error");
    } catch (const std::exception&) {  // nobody is left to tell
    }
}

std::string read_all(int fd, const std::string& name, std::size_t limit) {
    std::string out;
    char chunk[1 << 16];
    while (true) {
        const ssize_t n = ::read(fd, chunk, sizeof chunk);
        if (n == 0) return out;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail("reading {} failed: {}", name, std::strerror(errno));
        out.append(chunk, std::size_t(n));
        if (out.size() > limit)
            fail("{} is larger than {} MiB, which is more than is read at once", name, limit >> 20);
    }
}

std::string read_input(const std::string& path) {
    if (path == "-") return read_all(0, "standard input");
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail("{}: {}", printable(path), std::strerror(errno));
    struct Closer {
        int fd;
        ~Closer() { ::close(fd); }
    } closer{fd};
    return read_all(fd, printable(path));
}

std::string_view without_final_newline(std::string_view text) {
    if (text.ends_with("\n")) text.remove_suffix(1);
    if (text.ends_with("\r")) text.remove_suffix(1);
    return text;
}

#ifdef LLMGEN_HAVE_ZSTD
namespace {

// What a zstd file holds: one frame or several, one behind the other.
class Unpacked {
public:
    Unpacked() : stream_(ZSTD_createDStream()) {
        if (!stream_) fail("out of memory for unpacking");
    }
    // 0 at the end; `refill` gives packed bytes, 0 at their end.
    template <typename Refill>
    std::size_t read(char* to, std::size_t size, const std::string& name, const Refill& refill) {
        ZSTD_outBuffer out{to, size, 0};
        while (out.pos == 0) {
            if (in_.pos == in_.size && !holds_output_) {
                in_ = {packed_, refill(packed_, sizeof packed_), 0};
                if (in_.size == 0 && inside_) fail("{}: the zstd data is cut short", name);
                if (in_.size == 0) return 0;
            }
            const std::size_t left = ZSTD_decompressStream(stream_.get(), &out, &in_);
            if (ZSTD_isError(left)) fail("{}: the zstd data is damaged: {}", name, ZSTD_getErrorName(left));
            inside_ = left != 0;
            holds_output_ = inside_ && out.pos == out.size;
        }
        return out.pos;
    }

private:
    struct Free {
        void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
    };
    std::unique_ptr<ZSTD_DStream, Free> stream_;
    char packed_[1 << 16];
    ZSTD_inBuffer in_{packed_, 0, 0};
    bool inside_ = false;        // a frame whose end has not been seen
    bool holds_output_ = false;  // the last call filled what it was given and may have more
};

}  // namespace
#endif

struct LineReader::Source {
    int fd = -1;
    int wake = ::eventfd(0, EFD_CLOEXEC);
    bool owned = false;
    std::size_t consumed = 0;
#ifdef LLMGEN_HAVE_ZLIB
    gzFile gz = nullptr;
#endif
#ifdef LLMGEN_HAVE_ZSTD
    std::unique_ptr<Unpacked> zstd;
#endif
    ~Source() {
#ifdef LLMGEN_HAVE_ZLIB
        if (gz) ::gzclose(gz);
#endif
        if (owned && fd >= 0) ::close(fd);
        if (wake >= 0) ::close(wake);
    }
    // 0 at the end; throws on failure.
    std::size_t read(char* to, std::size_t size, const std::string& name) {
#ifdef LLMGEN_HAVE_ZLIB
        if (gz) {
            const int n = ::gzread(gz, to, unsigned(size));
            int code = Z_OK;
            const char* text = ::gzerror(gz, &code);
            if (n < 0 || (n == 0 && code == Z_BUF_ERROR))
                fail("{}: the gzip data is damaged or cut short: {}", name, text);
            consumed = std::size_t(std::max<z_off_t>(0, ::gzoffset(gz)));
            return std::size_t(n);
        }
#endif
#ifdef LLMGEN_HAVE_ZSTD
        if (zstd)
            return zstd->read(to, size, name,
                              [&](char* packed, std::size_t room) { return read_as_is(packed, room, name); });
#endif
        return read_as_is(to, size, name);
    }
    std::size_t read_as_is(char* to, std::size_t size, const std::string& name) {
        while (true) {
            pollfd fds[2] = {{fd, POLLIN, 0}, {wake, POLLIN, 0}};
            if (::poll(fds, 2, -1) > 0 && fds[1].revents) return 0;
            const ssize_t n = ::read(fd, to, size);
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) fail("reading {} failed: {}", name, std::strerror(errno));
            consumed += std::size_t(n);
            return std::size_t(n);
        }
    }
};

LineReader::LineReader(const std::string& path)
    : source_(std::make_unique<Source>()), name_(path == "-" ? "standard input" : printable(path)) {
    if (path == "-") {
        source_->fd = 0;
        return;
    }
    source_->fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    source_->owned = true;
    if (source_->fd < 0) fail("{}: {}", name_, std::strerror(errno));
    struct stat status {};
    if (::fstat(source_->fd, &status) == 0 && S_ISREG(status.st_mode)) size_ = std::size_t(status.st_size);
    if (status.st_mode && S_ISDIR(status.st_mode)) fail("{} is a directory, not a file of lines", name_);
    if (path.ends_with(".zst")) {
#ifdef LLMGEN_HAVE_ZSTD
        source_->zstd = std::make_unique<Unpacked>();
#else
        fail("{}: built without zstd; unpack it: zstd -dc FILE | llmgen … -", name_);
#endif
    }
    if (path.ends_with(".gz")) {
#ifdef LLMGEN_HAVE_ZLIB
        source_->gz = ::gzdopen(source_->fd, "rb");
        if (!source_->gz) fail("{}: out of memory for unpacking", name_);
        source_->owned = false;  // gzclose closes it
#else
        fail("{}: built without zlib; unpack it: gzip -dc FILE | llmgen … -", name_);
#endif
    }
}

LineReader::~LineReader() = default;

void LineReader::stop() {
    const std::uint64_t one = 1;
    (void)!::write(source_->wake, &one, sizeof one);
}

std::size_t LineReader::position() const { return source_->consumed; }

bool LineReader::raw_line(std::string& line) {
    line.clear();
    while (true) {
        const std::size_t end = buffer_.find('\n', begin_);
        if (end != std::string::npos) {
            line.append(buffer_, begin_, end - begin_);
            begin_ = end + 1;
            return true;
        }
        line.append(buffer_, begin_);
        begin_ = 0;
        if (line.size() > kMaxLine)
            fail("{}, line {}: longer than {} MiB; is this a file of lines?", name_, line_number_ + 1,
                 kMaxLine >> 20);
        if (ended_) {
            buffer_.clear();
            return !line.empty();
        }
        buffer_.resize(1 << 16);
        buffer_.resize(source_->read(buffer_.data(), buffer_.size(), name_));
        ended_ = buffer_.empty();
    }
}

std::string_view without_bom(std::string_view text) {
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    return text;
}

std::optional<std::string> LineReader::next() {
    std::string line;
    while (raw_line(line)) {
        ++line_number_;
        std::string_view text = line;
        if (line_number_ == 1) text = without_bom(text);
        if (text.ends_with("\r")) text.remove_suffix(1);
        if (text.find_first_not_of(" \t\r\f\v") == std::string_view::npos) continue;
        return utf8::repair(text);
    }
    return std::nullopt;
}

}  // namespace llmgen::app
