// `llmgen batch IN.jsonl -o OUT.jsonl`: many requests at once through one engine.
//
//   reading thread (this one): line -> request -> Engine::submit, while fewer than `window` are under way
//   writing thread (ordered) or one thread a request (--unordered): result -> one line, one write(2)
//
// So memory is that of `window` requests whatever the file's size, and a finished answer is written even
// while the input (a pipe) is silent. What is not written yet when the process ends is what --resume does
// again.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <list>
#include <mutex>
#include <thread>

#include "app/batch/item.h"
#include "app/batch/shard.h"
#include "app/batch/sink.h"
#include "app/cli/command.h"
#include "app/cli/flags.h"
#include "app/cli/io.h"
#include "app/cli/options.h"
#include "app/cli/session.h"
#include "base/error.h"
#include "base/utf8.h"

namespace llmgen::app {
namespace {

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Tally {
    std::size_t done = 0, failed = 0;
    std::size_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
};

class Runner {
public:
    Runner(Engine& engine, Sink& sink, bool ordered, std::size_t window)
        : engine_(engine), sink_(sink), ordered_(ordered), window_(window) {
        if (ordered_) writer_ = std::thread([this] { write_in_order(); });
    }
    ~Runner() {
        cancel();
        join();
    }
    Runner(const Runner&) = delete;

    /// Blocks while the window is full. False once nothing more is to be given.
    bool add(BatchItem item) {
        auto job = std::make_shared<Job>();
        job->item = std::move(item);
        {
            std::unique_lock lock(mutex_);
            room_.wait(lock, [&] { return under_way_ < window_ || stopped_; });
            if (stopped_) return false;
            ++under_way_;
        }
        if (job->item.error.empty()) {
            try {
                job->stream.emplace(engine_.submit(std::move(job->item.request)));
            } catch (const Error& error) {
                job->item.error = error.what();
            }
        }
        const std::scoped_lock lock(mutex_);
        jobs_.push_back(job);
        if (stopped_ && job->stream) job->stream->cancel();
        if (ordered_)
            work_.notify_one();
        else
            start_thread(std::move(job));
        return true;
    }

    /// Waits for all that was added. Throws what a write threw.
    Tally finish() {
        join();
        if (failure_) std::rethrow_exception(failure_);
        return tally_;
    }

    /// From any thread: what is under way ends and is not written.
    void cancel() {
        const std::scoped_lock lock(mutex_);
        stop_locked();
    }

    bool stopped() const {
        const std::scoped_lock lock(mutex_);
        return stopped_;
    }

    Tally tally() const {
        const std::scoped_lock lock(mutex_);
        return tally_;
    }

private:
    struct Job {
        BatchItem item;
        std::optional<Stream> stream;
    };
    using JobPtr = std::shared_ptr<Job>;

    void stop_locked() {
        stopped_ = true;
        for (const JobPtr& job : jobs_)
            if (job->stream) job->stream->cancel();
        room_.notify_all();
        work_.notify_all();
    }

    // Waits for the job's end and makes its line; "" where it was cancelled.
    Tally answer_of(Job& job, std::string& line) const {
        if (!job.stream) {
            line = error_line(job.item, job.item.error);
            return {.failed = 1};
        }
        const Result& result = job.stream->result();
        if (result.finish_reason == FinishReason::cancelled) return {};
        line = result_line(job.item, result, engine_.info(), engine_.tokenizer());
        const bool failed = result.finish_reason == FinishReason::error;
        return {failed ? 0u : 1u, failed ? 1u : 0u, result.prompt_ids.size(),
                std::size_t(result.cached_tokens), result.token_ids.size()};
    }

    // Waits for the job's end and writes its line.
    void complete(const JobPtr& job) {
        std::string line;
        Tally add;
        std::exception_ptr failure;
        try {
            add = answer_of(*job, line);
        } catch (...) {  // out of memory; nothing may leave a thread
            failure = std::current_exception();
        }
        const std::scoped_lock lock(mutex_);
        // In order nothing may follow a line that is missing: --resume would find a hole.
        hole_ = hole_ || (ordered_ && line.empty());
        if (!failure && !line.empty() && !failure_ && !hole_) {
            try {
                sink_.write(line);
                tally_.done += add.done;
                tally_.failed += add.failed;
                tally_.prompt_tokens += add.prompt_tokens;
                tally_.cached_tokens += add.cached_tokens;
                tally_.output_tokens += add.output_tokens;
            } catch (...) {
                failure = std::current_exception();
            }
        }
        if (failure && !failure_) {
            failure_ = failure;
            stop_locked();
        }
        std::erase(jobs_, job);
        --under_way_;
        room_.notify_one();
    }

    void write_in_order() {
        while (true) {
            JobPtr job;
            {
                std::unique_lock lock(mutex_);
                work_.wait(lock, [&] { return !jobs_.empty() || closed_; });
                if (jobs_.empty()) return;
                job = jobs_.front();
            }
            complete(job);
        }
    }

    void start_thread(JobPtr job) {
        // Threads that have ended are joined here, so that their number stays below the window.
        for (auto it = threads_.begin(); it != threads_.end();) {
            if (it->done->load()) {
                it->thread.join();
                it = threads_.erase(it);
            } else {
                ++it;
            }
        }
        auto done = std::make_shared<std::atomic<bool>>(false);
        threads_.push_back({std::thread([this, job = std::move(job), done] {
                                complete(job);
                                done->store(true);
                            }),
                            done});
    }

    void join() {
        std::list<Worker> threads;
        {
            const std::scoped_lock lock(mutex_);
            closed_ = true;
            work_.notify_all();
            threads.swap(threads_);
        }
        if (writer_.joinable()) writer_.join();
        for (Worker& worker : threads) worker.thread.join();
    }

    struct Worker {
        std::thread thread;
        std::shared_ptr<std::atomic<bool>> done;
    };
    Engine& engine_;
    Sink& sink_;
    const bool ordered_;
    const std::size_t window_;
    mutable std::mutex mutex_;
    std::condition_variable room_, work_;
    std::deque<JobPtr> jobs_;
    std::size_t under_way_ = 0;
    bool closed_ = false, stopped_ = false, hole_ = false;
    Tally tally_;
    std::exception_ptr failure_;
    std::list<Worker> threads_;
    std::thread writer_;
};

class Batch : public Command {
public:
    explicit Batch(CLI::App& root)
        : Command(add_subcommand(
              root,
              "batch",
              "Many requests at once: JSON lines in, JSON lines out",
              "  llmgen batch prompts.jsonl -o answers.jsonl\n"
              "  llmgen batch prompts.jsonl -o answers.jsonl --resume          # after a kill\n"
              "  srun -n 4 llmgen batch prompts.jsonl -o 'answers-{shard}.jsonl' --shard auto --resume\n"
              "  zcat prompts.jsonl.gz | llmgen batch - -o - | gzip > answers.jsonl.gz\n"
              "\n"
              "A line is {\"id\"?, \"prompt\" | \"messages\" | \"token_ids\", \"system\"?, \"raw\"?, "
              "\"max_new_tokens\"?, \"stop\"?,\n"
              "\"temperature\"? and the other sampling fields}, or a line of the OpenAI batch form "
              "({\"custom_id\", \"method\",\n"
              "\"url\", \"body\"}), answered in that form. Fields that are absent take this command's flags. "
              "One line comes\n"
              "out for each line that isn't blank, in the order of the input, with its id (else its index "
              "from 0); one that\n"
              "can't be done has an \"error\". Exit code 1 where any failed, 130 after Ctrl-C (then --resume "
              "goes on).")) {
        Flags flags(*app_);
        flags.group("Files");
        flags.text("IN", in_, "", "the requests (- for stdin; .gz and .zst are unpacked)")->required();
        flags.text("-o,--output", out_, "FILE", "the answers (- for stdout)");
        flags.flag("--resume", resume_, "go on with an output that a killed run left");
        flags.flag("--overwrite", overwrite_, "start anew where the output exists");
        flags.flag("--unordered", unordered_, "write each answer as soon as it is there");
        flags.text("--shard", shard_, "i/n",
                   "only lines i, i+n, i+2n …; auto: from Slurm's or MPI's environment");
        flags.integer("--concurrency", engine_.engine.max_sequences, 1, 4096,
                      "requests that run at the same time");
        flags.group("Prompt");
        flags.text("--system", defaults_.system, "TEXT", "system message before each \"prompt\"");
        flags.flag("--raw", defaults_.raw, "no chat template for \"prompt\"");
        generation_.add_to(flags);
        engine_.add_to(flags);
    }

    int run(Context& context) override {
        defaults_.request = generation_.request();
        defaults_.system = utf8::repair(defaults_.system);
        if (resume_ && overwrite_) fail_usage("--resume and --overwrite contradict each other");
        if (resume_ && out_ == "-") fail_usage("--resume needs a file to go on with: -o FILE");
        const Shard shard = shard_.empty() ? Shard{} : parse_shard(shard_, [](const std::string& name) {
            const char* value = std::getenv(name.c_str());
            return value ? std::optional<std::string>(value) : std::nullopt;
        });
        LineReader lines(in_);  // before the output, so that a wrong path leaves no empty file
        Sink sink(shard_path(out_, shard),
                  resume_      ? Sink::Mode::resume
                  : overwrite_ ? Sink::Mode::overwrite
                               : Sink::Mode::create,
                  in_);
        EngineOptions options = engine_.options();
        options.max_slowdown = 0;  // nobody watches single tokens
        Engine engine = open_engine(options, engine_.quiet);
        const double begin = now_s();
        Runner runner(engine, sink, !unordered_, std::size_t(engine_.engine.max_sequences) * 2);
        context.interrupts.on_interrupt([&] {
            runner.cancel();
            lines.stop();
        });
        struct Unhook {
            Interrupts& interrupts;
            ~Unhook() { interrupts.on_interrupt({}); }
        } unhook{context.interrupts};
        const bool all_read = feed(lines, shard, sink.done(), runner);
        const Tally tally = runner.finish();
        report(tally, sink.done(), now_s() - begin, context.interrupts.exit_code() != 0 || !all_read);
        if (context.interrupts.exit_code()) return context.interrupts.exit_code();
        return tally.failed + sink.done().failed > 0 ? kFailed : kDone;
    }

private:
    // Gives the lines that are to be done; false where it was stopped before the end.
    bool feed(LineReader& lines, const Shard& shard, const DoneLines& done, Runner& runner) {
        Progress progress(!engine_.quiet && is_capable_terminal(2));
        std::atomic<std::size_t> position = 0;
        std::jthread ticker;
        if (progress.enabled())
            ticker = std::jthread([&](const std::stop_token& stop) {
                const double begin = now_s();
                while (!stop.stop_requested()) {
                    show(progress, runner.tally(), done.count, position, lines.size(), now_s() - begin);
                    std::this_thread::sleep_for(std::chrono::milliseconds(200));
                }
            });
        std::size_t index = 0;
        for (auto text = lines.next(); text; text = lines.next(), ++index) {
            position = lines.position();
            if (!shard.has(index)) continue;
            const std::size_t line = lines.line_number();
            if (done.has(line)) {
                if (line == done.last) check_same_input(*text, line, index, done);
                continue;
            }
            if (line < done.last && !unordered_)
                fail(
                    "{}: input line {} has no answer but line {} has; the output was written with "
                    "--unordered, resume it so",
                    printable(out_), line, done.last);
            if (!runner.add(parse_item(*text, line, index, defaults_))) return false;
        }
        if (runner.stopped()) return false;
        if (lines.line_number() < done.last)
            fail("{}: it answers input line {}, the input has {}; it is the output of another input",
                 printable(out_), done.last, lines.line_number());
        runner.finish();  // the progress line stays until the last answer
        return true;
    }

    void check_same_input(const std::string& text,
                          std::size_t line,
                          std::size_t index,
                          const DoneLines& done) const {
        const Json id = parse_item(text, line, index, defaults_).id;
        if (id != done.last_id)
            fail(
                "{}: its answer to input line {} has the id {}, the line has {}; it is the output of another "
                "input",
                printable(out_), line, printable(dump(done.last_id)), printable(dump(id)));
    }

    static void show(Progress& progress,
                     const Tally& tally,
                     std::size_t before,
                     std::size_t position,
                     std::size_t size,
                     double seconds) {
        std::string line = fmt::format("{} lines done", before + tally.done + tally.failed);
        if (tally.failed) line += fmt::format(", {} failed", tally.failed);
        line += fmt::format(", {:.1f} tok/s", double(tally.output_tokens) / std::max(seconds, 1e-9));
        if (size > 0 && position > 0) {
            const double part = std::min(1.0, double(position) / double(size));
            line += fmt::format(", {:.0f} % of the input read, about {:.0f} s to go", 100 * part,
                                seconds * (1 - part) / part);
        }
        progress.show(line);
    }

    void report(const Tally& tally, const DoneLines& before, double seconds, bool interrupted) const {
        if (engine_.quiet) return;
        std::string text = fmt::format("{} lines done, {} failed", tally.done, tally.failed);
        if (resume_)
            text += fmt::format(" ({} were done before, {} of them failed)", before.count, before.failed);
        text +=
            fmt::format("; {} prompt tokens ({} from the cache), {} output tokens, {:.1f} s, {:.1f} tok/s",
                        tally.prompt_tokens, tally.cached_tokens, tally.output_tokens, seconds,
                        double(tally.output_tokens) / std::max(seconds, 1e-9));
        say("{}{}", interrupted ? "interrupted: " : "", text);
        if (interrupted) say("--resume goes on where this stopped");
    }

    EngineFlags engine_;
    GenerationFlags generation_;
    BatchDefaults defaults_;
    std::string in_, out_ = "-", shard_;
    bool resume_ = false, overwrite_ = false, unordered_ = false;
};

}  // namespace

std::unique_ptr<Command> make_batch(CLI::App& root) { return std::make_unique<Batch>(root); }

}  // namespace llmgen::app
