// Lines from the person who chats: edited on a terminal, plain otherwise.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace llmgen::app {

class Editor {
public:
    enum class Event { line, end, interrupted };
    struct Input {
        Event event = Event::end;
        std::string text;  // valid UTF-8; interrupted: what had been typed
    };

    /// With line editing and history where stdin and stderr are terminals. `history_file` "": not kept.
    explicit Editor(const std::string& history_file);
    ~Editor();
    Editor(const Editor&) = delete;

    bool is_interactive() const;
    /// The next line. `prompt` is shown on stderr, on a terminal only.
    Input read(const std::string& prompt);
    /// A turn as a whole joins the history.
    void remember(const std::string& text);
    /// From any thread: read() returns with Event::interrupted.
    void interrupt();

private:
    struct Terminal;
    struct Plain;
    std::unique_ptr<Terminal> terminal_;
    std::unique_ptr<Plain> plain_;
};

/// XDG_STATE_HOME/llmgen/history, else ~/.local/state/llmgen/history, its folder made; "" where neither is
/// set.
std::string default_history_file();

}  // namespace llmgen::app
