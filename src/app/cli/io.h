// Descriptors: what reaches stdout and stderr, and how input is read.
//
// stdout carries the answer and nothing else. It is written with write(2), unbuffered, so that a token is
// seen when it is made and a failed write (full disk, closed pipe) is noticed at once and ends with exit
// code 1. All that we say to a person goes to stderr as valid, printable UTF-8: a name from a file can't
// smuggle an escape code to the terminal.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace llmgen::app {

/// SIGPIPE and SIGXFSZ off; descriptors 0 to 2 that the caller closed are taken, so that no model file lands
/// on them.
void prepare_descriptors();
/// From now on a mapped file that was cut short under the program, or whose disk fails, ends it with one line
/// and exit code 1, not by a signal (SIGBUS): a checkpoint is read where it lies until its weights are
/// packed.
void end_in_a_line_without_the_file();

bool is_terminal(int fd);
/// A terminal that understands cursor movement: not TERM=dumb.
bool is_capable_terminal(int fd);
/// Columns of the terminal, 80 where unknown.
int terminal_width(int fd);

/// Valid UTF-8 without control characters: newline and tab become spaces, others \xHH. For messages.
std::string printable(std::string_view text);

/// Writes all bytes. Throws Error naming `name`.
void write_all(int fd, std::string_view bytes, const std::string& name);
inline void write_stdout(std::string_view bytes) { write_all(1, bytes, "standard output"); }
/// One line on stderr; a failure to write it is no failure.
void write_stderr(std::string_view bytes) noexcept;

template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
    write_stderr("llmgen: " + printable(fmt::format(format, std::forward<Args>(args)...)) + "\n");
}

/// Everything up to the end of the descriptor.
std::string read_all(int fd, const std::string& name, std::size_t limit = std::size_t(1) << 30);
/// A file, or stdin where `path` is "-".
std::string read_input(const std::string& path);

/// Without one final newline (LF or CRLF), which `echo` adds and nobody means.
std::string_view without_final_newline(std::string_view text);

/// A text without the byte order mark that some editors put before it.
std::string_view without_bom(std::string_view text);

/// Lines of a file or of stdin ("-"), in bounded memory. A ".gz" or ".zst" file is unpacked
/// where zlib or zstd was built in.
class LineReader {
public:
    explicit LineReader(const std::string& path);
    ~LineReader();
    LineReader(const LineReader&) = delete;
    /// The next line that isn't blank, without its end (LF or CRLF), as valid UTF-8, with no byte order mark.
    /// nullopt at the end. Throws Error on a failed read, and on a line longer than kMaxLine.
    std::optional<std::string> next();
    /// From any thread: next() ends soon, even where it waits for a silent pipe.
    void stop();
    /// Of the line that next() gave, from 1, blank ones counted.
    std::size_t line_number() const { return line_number_; }
    /// Bytes of the source consumed so far, and its size (0 where unknown).
    std::size_t position() const;
    std::size_t size() const { return size_; }

    static constexpr std::size_t kMaxLine = std::size_t(1) << 28;

private:
    struct Source;
    bool raw_line(std::string& line);
    std::unique_ptr<Source> source_;
    std::string name_;
    std::string buffer_;
    std::size_t begin_ = 0;
    std::size_t line_number_ = 0;
    std::size_t size_ = 0;
    bool ended_ = false;
};

}  // namespace llmgen::app
