// libedit reads one key at a time through read_key, which also watches a descriptor of ours: so an interrupt
// from the signal thread ends the line without a signal handler.
//
// Traps: libedit decodes keys by the locale, which a program has to set, and "C" knows no UTF-8: keys are
// decoded here. An interrupted el_gets leaves its text in the buffer; it is reset before the next line.
#include "app/chat/editor.h"

#include <histedit.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "app/cli/io.h"
#include "base/error.h"
#include "base/utf8.h"

namespace llmgen::app {

namespace {
constexpr char kEndKey = 'D' & 0x1f;
}

struct Editor::Terminal {
    EditLine* edit = nullptr;
    History* history = nullptr;
    std::string history_file, prompt;
    int wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool interrupted = false;

    explicit Terminal(const std::string& file) : history_file(file) {
        if (!std::setlocale(LC_CTYPE, "C.UTF-8")) std::setlocale(LC_CTYPE, "");
        edit = ::el_init("llmgen", stdin, stderr, stderr);
        if (!edit) fail("can't edit lines on this terminal; llmgen chat < file reads turns line by line");
        history = ::history_init();
        HistEvent event;
        ::history(history, &event, H_SETSIZE, 1000);
        ::history(history, &event, H_SETUNIQUE, 1);
        if (!history_file.empty()) ::history(history, &event, H_LOAD, history_file.c_str());
        ::el_set(edit, EL_CLIENTDATA, this);
        ::el_set(edit, EL_PROMPT, &Terminal::show_prompt);
        ::el_set(edit, EL_EDITOR, "emacs");
        ::el_set(edit, EL_SIGNAL, 0);
        ::el_set(edit, EL_HIST, ::history, history);
        ::el_set(edit, EL_GETCFN, &Terminal::read_key);
        ::el_source(edit, nullptr);  // ~/.editrc
    }
    ~Terminal() {
        if (history) ::history_end(history);
        if (edit) ::el_end(edit);
        ::close(wake);
    }
    Terminal(const Terminal&) = delete;

    static Terminal& of(EditLine* edit) {
        void* self = nullptr;
        ::el_get(edit, EL_CLIENTDATA, &self);
        return *static_cast<Terminal*>(self);
    }
    static char* show_prompt(EditLine* edit) { return of(edit).prompt.data(); }

    static int read_byte(char& byte) {
        while (true) {
            const ssize_t n = ::read(0, &byte, 1);
            if (n >= 0 || errno != EINTR) return int(n);
        }
    }
    static int read_key(EditLine* edit, wchar_t* key) {
        Terminal& self = of(edit);
        pollfd fds[2] = {{0, POLLIN, 0}, {self.wake, POLLIN, 0}};
        while (::poll(fds, 2, -1) < 0 && errno == EINTR) {
        }
        if (fds[1].revents) {
            self.interrupted = true;
            return 0;
        }
        std::string bytes;
        do {
            char byte = 0;
            if (const int n = read_byte(byte); n <= 0) return n;
            bytes += byte;
        } while (utf8::decode(bytes).truncated);
        // Ctrl-D at an empty prompt ends the session. libedit mostly says so itself, but on a busy machine it
        // was seen to take it for text (why is not known); typed while the terminal is still cooked, it is a
        // zero.
        const LineInfo* typed = ::el_line(edit);
        if ((bytes[0] == kEndKey || bytes[0] == 0) && typed->lastchar == typed->buffer) return 0;
        *key = wchar_t(utf8::decode(bytes).code_point);
        return 1;
    }
    void drain() {
        std::uint64_t count = 0;
        (void)!::read(wake, &count, sizeof count);
        interrupted = false;
    }
};

struct Editor::Plain {
    LineReader lines{"-"};
};

Editor::Editor(const std::string& history_file) {
    if (is_terminal(0) && is_terminal(2))
        terminal_ = std::make_unique<Terminal>(history_file);
    else
        plain_ = std::make_unique<Plain>();
}

Editor::~Editor() = default;

bool Editor::is_interactive() const { return terminal_ != nullptr; }

Editor::Input Editor::read(const std::string& prompt) {
    if (plain_) {
        auto line = plain_->lines.next();
        return line ? Input{Event::line, std::move(*line)} : Input{};
    }
    terminal_->prompt = prompt;
    int length = 0;
    const char* text = ::el_gets(terminal_->edit, &length);
    if (terminal_->interrupted) {
        terminal_->drain();
        const LineInfo* typed = ::el_line(terminal_->edit);
        const std::string dropped(typed->buffer, typed->lastchar);
        ::el_reset(terminal_->edit);
        write_stderr("\n");
        return {Event::interrupted, utf8::repair(dropped)};
    }
    if (!text || length <= 0) {
        write_stderr("\n");
        return {};
    }
    return {Event::line, utf8::repair(without_final_newline(std::string_view(text, std::size_t(length))))};
}

void Editor::remember(const std::string& text) {
    if (!terminal_ || text.empty()) return;
    HistEvent event;
    ::history(terminal_->history, &event, H_ENTER, text.c_str());
    if (!terminal_->history_file.empty())
        ::history(terminal_->history, &event, H_SAVE, terminal_->history_file.c_str());
}

void Editor::interrupt() {
    const std::uint64_t one = 1;
    if (terminal_)
        (void)!::write(terminal_->wake, &one, sizeof one);
    else
        plain_->lines.stop();
}

std::string default_history_file() {
    const char* state = std::getenv("XDG_STATE_HOME");
    const char* home = std::getenv("HOME");
    std::filesystem::path dir;
    if (state && *state == '/')
        dir = state;
    else if (home && *home == '/')
        dir = std::filesystem::path(home) / ".local/state";
    else
        return "";
    std::error_code error;
    std::filesystem::create_directories(dir / "llmgen", error);
    return error ? "" : (dir / "llmgen/history").string();
}

}  // namespace llmgen::app
