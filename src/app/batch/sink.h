// Where the lines of a batch go, and what a run that was killed left there.
//
// Each line is one write(2) at the end of the file, so a kill (SIGKILL included) leaves whole lines and at
// most one torn one, without its newline, at the end: --resume cuts that off and does its line again.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "app/cli/json.h"

namespace llmgen::app {

/// What --resume found: which input lines are done.
struct DoneLines {
    std::vector<bool> lines;  // by number, from 1
    std::size_t count = 0;
    std::size_t failed = 0;
    std::size_t last = 0;  // the largest number
    Json last_id;          // of that line
    bool has(std::size_t line) const { return line < lines.size() && lines[line]; }
};

class Sink {
public:
    enum class Mode { create, overwrite, resume };
    /// "-" is stdout. Throws Error: the file exists (create), is locked by another process, is no output of
    /// ours (resume).
    /// `input`: the file that is read; writing over it is refused before anything is cut.
    Sink(const std::string& path, Mode mode, const std::string& input);
    ~Sink();
    Sink(const Sink&) = delete;
    void write(const std::string& line);
    const DoneLines& done() const { return done_; }

private:
    bool is_same_file(const std::string& path) const;
    void recover();
    std::string path_;
    int fd_ = -1;
    DoneLines done_;
};

}  // namespace llmgen::app
