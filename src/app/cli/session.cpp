#include "app/cli/session.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <thread>

#include "app/cli/io.h"
#include "app/cli/numbers.h"
#include "base/error.h"
#include "base/utf8.h"

namespace llmgen::app {
namespace {

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The characters that transformers' TextStreamer shows at once: CJK ideographs, written without spaces.
bool is_cjk(char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B820 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
           (c >= 0x2F800 && c <= 0x2FA1F);
}

char32_t last_character(const std::string& text) {
    std::size_t begin = text.size();
    while (begin > 0 && text.size() - begin < 4 &&
           (static_cast<unsigned char>(text[--begin]) & 0xC0) == 0x80) {
    }
    return text.empty() ? 0 : utf8::decode(std::string_view(text).substr(begin)).code_point;
}

// Shows how much of the prompt has been computed until stopped.
class PrefillTicker {
public:
    PrefillTicker(const Engine& engine, std::size_t prompt_tokens, int chunk, Progress& progress)
        : thread_([&engine, prompt_tokens, chunk, &progress, this] {
              const std::uint64_t first = engine.stats().steps;
              std::unique_lock lock(mutex_);
              while (!stop_.wait_for(lock, std::chrono::milliseconds(100), [&] { return done_; })) {
                  const std::size_t computed =
                      std::min(prompt_tokens, std::size_t(engine.stats().steps - first) * std::size_t(chunk));
                  progress.show(fmt::format("reading the prompt: {} of {} tokens", computed, prompt_tokens));
              }
          }) {}
    ~PrefillTicker() {
        {
            const std::scoped_lock lock(mutex_);
            done_ = true;
        }
        stop_.notify_all();
    }

private:
    std::mutex mutex_;
    std::condition_variable stop_;
    bool done_ = false;
    std::jthread thread_;  // last: starts when the others stand
};

}  // namespace

void Progress::show(const std::string& line, bool now) {
    if (!enabled_) return;
    const std::scoped_lock lock(mutex_);
    const double time = now_s();
    if (!now && shown_ && time - last_ < 0.05) return;
    last_ = time;
    shown_ = true;
    std::string text = printable(line);
    const std::size_t width = std::size_t(std::max(20, terminal_width(2) - 1));
    if (text.size() > width) text = utf8::repair(text.substr(0, width - 3)) + "...";
    write_stderr("\r\x1b[K" + text);
}

void Progress::clear() {
    const std::scoped_lock lock(mutex_);
    if (shown_) write_stderr("\r\x1b[K");
    shown_ = false;
}

StreamHold::Mode StreamHold::parse(const std::string& name) {
    return name == "word" ? Mode::word : name == "off" ? Mode::off : Mode::token;
}

std::string StreamHold::push(const std::string& text) {
    held_ += text;
    if (mode_ == Mode::off) return "";
    std::size_t end = held_.size();
    if (mode_ == Mode::word && !held_.empty() && held_.back() != '\n' && !is_cjk(last_character(held_))) {
        const std::size_t space = held_.rfind(' ');
        end = space == std::string::npos ? 0 : space + 1;
    }
    std::string out = held_.substr(0, end);
    held_.erase(0, end);
    return out;
}

std::string StreamHold::flush() { return std::exchange(held_, {}); }

Engine open_engine(EngineOptions options, bool quiet) {
    Progress progress(!quiet && is_capable_terminal(2));
    if (progress.enabled()) {
        const double begin = now_s();
        options.on_progress = [&progress, begin](const std::string& phase, double fraction) {
            progress.show(fmt::format("loading: {} {:.0f} % ({:.1f} s)", phase,
                                      100 * std::clamp(fraction, 0.0, 1.0), now_s() - begin));
        };
        progress.show("loading", true);
    }
    Engine engine = Engine::open(options);
    progress.clear();
    if (!quiet) {
        if (!engine.info().device_note.empty()) say("{}", engine.info().device_note);
        for (const std::string& warning : engine.info().warnings) say("warning: {}", warning);
    }
    return engine;
}

std::optional<ChatTemplate> template_of(const Engine& engine, const EngineOptions& options) {
    if (options.chat_template.empty()) return ChatTemplate::load(engine.info().model_path);
    return ChatTemplate::parse(options.chat_template, engine.tokenizer().bos_token(),
                               engine.tokenizer().eos_token(), "--chat-template");
}

Result run_request(Engine& engine,
                   Request request,
                   Interrupts& interrupts,
                   Progress& progress,
                   const std::function<void(const std::string&)>& on_text) {
    std::optional<PrefillTicker> ticker;
    const std::size_t prompt_tokens = progress.enabled() ? engine.format(request).ids.size() : 0;
    Stream stream = engine.submit(std::move(request));
    interrupts.on_interrupt([&stream] { stream.cancel(); });
    struct Unhook {
        Interrupts& interrupts;
        ~Unhook() { interrupts.on_interrupt({}); }
    } unhook{interrupts};
    if (progress.enabled()) {
        progress.show(fmt::format("reading the prompt: 0 of {} tokens", prompt_tokens), true);
        ticker.emplace(engine, prompt_tokens, progress.prefill_chunk(), progress);
    }
    while (const auto chunk = stream.next()) {
        if (ticker) {
            ticker.reset();
            progress.clear();
        }
        on_text(chunk->text);
    }
    ticker.reset();
    progress.clear();
    return stream.result();
}

std::string incomplete_note(const Result& result) {
    switch (result.finish_reason) {
        case FinishReason::max_new_tokens:
            if (result.max_new_tokens == 0) return "";
            return fmt::format("the answer may be incomplete: it was ended by --max-new-tokens {}",
                               result.max_new_tokens.value_or(0));
        case FinishReason::context_full:
            return fmt::format(
                "the answer may be incomplete: the context of {} tokens is full (--max-context, --kv-memory)",
                result.context_limit);
        case FinishReason::cancelled:
            return "interrupted: the answer is incomplete";
        default:
            return "";
    }
}

}  // namespace llmgen::app
