// An engine and its answers on a terminal: progress, streaming, interrupts. Shared by the one-shot command
// and the chat.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "app/cli/interrupt.h"
#include "llmgen/llmgen.h"

namespace llmgen::app {

/// One line on stderr that is written over; nothing at all where `enabled` is false. Safe from many threads.
class Progress {
public:
    /// `prefill_chunk`: prompt tokens of one step, from which the progress of a prefill is counted.
    explicit Progress(bool enabled, int prefill_chunk = EngineOptions{}.prefill_chunk)
        : enabled_(enabled), prefill_chunk_(prefill_chunk) {}
    ~Progress() { clear(); }
    /// Shows the line; more than 20 a second are skipped unless `now`.
    void show(const std::string& line, bool now = false);
    void clear();
    bool enabled() const { return enabled_; }
    int prefill_chunk() const { return prefill_chunk_; }

private:
    std::mutex mutex_;
    bool enabled_;
    int prefill_chunk_;
    bool shown_ = false;
    double last_ = -1;
};

/// Turns chunks into what `--stream` shows.
///   token  every chunk as it comes
///   word   up to the last space; all of it after a newline or a CJK character (transformers' TextStreamer)
///   off    everything at the end
class StreamHold {
public:
    enum class Mode { token, word, off };
    explicit StreamHold(Mode mode) : mode_(mode) {}
    static Mode parse(const std::string& name);
    /// What may be shown now that `text` was appended.
    std::string push(const std::string& text);
    std::string flush();

private:
    Mode mode_;
    std::string held_;
};

/// Opens the engine; the load is shown, and its warnings and the device's note are said unless `quiet`.
Engine open_engine(EngineOptions options, bool quiet);

/// The chat template that the engine uses; nullopt where there is none.
std::optional<ChatTemplate> template_of(const Engine& engine, const EngineOptions& options);

/// Runs one request. Text goes to `on_text`; an interrupt cancels the request and its result is `cancelled`.
/// `on_text` may throw (a failed write): the request is cancelled and the exception goes on.
Result run_request(Engine& engine,
                   Request request,
                   Interrupts& interrupts,
                   Progress& progress,
                   const std::function<void(const std::string&)>& on_text);

/// "" where the model itself ended the answer, else one line why it may be incomplete.
std::string incomplete_note(const Result& result);

}  // namespace llmgen::app
