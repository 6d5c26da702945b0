// llmgen: a checkpoint directory and a prompt in, text out, token by token.
//
//     auto engine = llmgen::Engine::open({.model = "path/to/checkpoint"});
//     llmgen::Request request;
//     request.prompt = llmgen::Chat::user("What is the capital of France?");
//     llmgen::Result result = engine.generate(request, [](const llmgen::Chunk& c) { std::cout << c.text;
//     return true; });
//
// Every call throws llmgen::Error (llmgen/error.h) with one line of what, where and what to do. No tensor and
// no CUDA type appears here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "llmgen/chat_template.h"
#include "llmgen/error.h"
#include "llmgen/tokenizer.h"

namespace llmgen {

struct EngineOptions {
    static constexpr int kLargestChunk = 65536;
    std::string
        model;  // a directory, ORG/NAME in the Hugging Face cache, or "" = LLMGEN_MODEL, else quickstart's
    std::string device = "auto";   // auto | cpu | cuda | cuda:N
    std::string compute = "auto";  // auto | f32 | bf16; auto = bf16 where the device is fast at it, else f32
    int max_context = 0;  // tokens of prompt + answer; 0 = the model's own limit, or what kv_memory holds
    std::size_t kv_memory = 0;  // bytes for keys and values; 0 = as much as the device sensibly gives
    int threads = 0;            // CPU threads; 0 = one per core that this process may use
    int max_sequences = 64;     // requests that run at the same time; more wait
    int prefill_chunk = 512;    // prompt tokens computed in one step, at most
    double max_slowdown = 3;    // a step that reads a prompt beside running answers may take this many
                                // times one without; 0 = no limit, for throughput
    bool prefix_cache = true;   // share the keys and values of equal prefixes between requests
    bool use_generation_config = true;  // sampling defaults of the checkpoint
    std::string chat_template;  // a template's text that replaces the checkpoint's; "" = the checkpoint's
    bool map_weights = true;    // else read them, tensor by tensor: for network disks
    bool full_checkpoint_hash = false;  // hash all bytes of the weights, not just headers and sizes
    bool dummy_weights =
        false;  // `model` needs only a config.json; weights are pseudo-random (for benchmarks)
    std::function<void(const std::string& phase, double fraction)>
        on_progress;  // while loading; may be empty
};

/// Unset fields take the checkpoint's generation_config.json, else the neutral value in the comment. Order of
/// application, as in transformers: logit_bias → penalties → temperature → top_k → top_p → min_p.
/// Whether to sample at all is the checkpoint's word too, as there: without "do_sample": true in its file, a
/// request that sets none of temperature, top_k, top_p and min_p is greedy.
struct Sampling {
    /// The largest bias and penalty, and the largest and (its inverse) smallest repetition penalty: far
    /// beyond any logit, and small enough for their sums and products to stay finite in f32.
    static constexpr double kLargestPenalty = 1e15;
    std::optional<double>
        temperature;           // 1; 0 = greedy: the largest logit after bias and penalties, lowest id on ties
    std::optional<int> top_k;  // 0 or -1 = off
    std::optional<double> top_p;                     // 1 = off; in [0, 1]; at least one token always stays
    std::optional<double> min_p;                     // 0 = off; in [0, 1]
    std::optional<double> repetition_penalty;        // 1 = off; over prompt and output, each id once
    std::optional<double> presence_penalty;          // 0 = off; over the output only
    std::optional<double> frequency_penalty;         // 0 = off; over the output only
    std::optional<std::uint64_t> seed;               // unset = drawn at random, and reported
    std::vector<std::pair<int, double>> logit_bias;  // added to the logits of these ids
};

/// A conversation, formatted by the checkpoint's chat template. Control tokens come from the template only.
struct Chat {
    RenderInput input;
    /// One user message, with a system message before it where `system` is not empty.
    static Chat user(const std::string& content, const std::string& system = "");
};
/// Text read as the tokenizer reads it, special tokens included (BOS added where the tokenizer adds one).
struct RawText {
    std::string text;
};
using TokenIds = std::vector<int>;
using Prompt = std::variant<Chat, RawText, TokenIds>;

struct Request {
    std::string id;  // comes back in the result; "" = a number
    Prompt prompt;
    Sampling sampling;
    std::optional<int>
        max_new_tokens;  // unset = until the model stops or the context is full; 0 = compute the prompt only
    std::vector<std::string> stop;       // the answer ends before the first of these
    std::vector<int> stop_token_ids;     // beside the checkpoint's EOS ids
    bool ignore_eos = false;             // don't stop on EOS ids (stop_token_ids still stop)
    bool parse_special_in_chat = false;  // read special tokens in the words of a chat too
    bool skip_special = true;            // leave special tokens out of the text
    int logprobs = -1;                   // per output token, the N most likely besides its own; -1 = none
    bool prompt_logprobs =
        false;  // log-probability of each prompt token given those before (and the `logprobs` best)
    bool explain = false;    // record Result::steps
    int priority = 0;        // higher starts first
    std::string cache_salt;  // requests of different salt share no cache
};

struct TokenLogprob {
    int id = 0;
    double logit = 0;    // as the model gave it, before bias and penalties
    double logprob = 0;  // natural logarithm of the softmax of the logits
};

/// What a step appended. Text may be empty: a token can be half a character, or be held back as a possible
/// stop string.
struct Chunk {
    std::string text;                    // final text only: chunks concatenate to Result::text
    std::vector<int> token_ids;          // the ids sampled since the last chunk
    std::vector<TokenLogprob> logprobs;  // of token_ids, where asked for
};

enum class FinishReason { eos, stop_string, max_new_tokens, context_full, cancelled, error };
const char* name_of(FinishReason reason);  // "eos", "stop_string", …

/// One step of the loop, for --explain and the trace.
struct Step {
    int index = 0;            // 0 = prefill
    int computed_tokens = 0;  // tokens that went through the model in this step
    int cached_tokens = 0;    // tokens whose keys and values were read from the cache instead
    TokenLogprob chosen;
    double probability = 0;  // of the chosen token, after all sampling transforms
    std::vector<TokenLogprob> runners_up;
    double milliseconds = 0;
};

struct Timing {                         // seconds, steady clock, read only when the token was on the host
    double queued_s = 0;                // arrival to the first computed step
    double ttft_s = 0;                  // arrival to the first token
    double completion_s = 0;            // arrival to the end
    double tpot_s = 0;                  // (t_last - t_first) / (n_out - 1); 0 where n_out < 2
    double tokens_per_s = 0;            // (n_out - 1) / (t_last - t_first); the prompt never counts
    std::vector<double> token_times_s;  // of each output token since arrival
};

struct Result {
    std::string id;
    std::string formatted_prompt;  // after the template; "" for TokenIds
    std::vector<int> prompt_ids;
    std::string text;
    std::vector<int> token_ids;                                  // everything sampled, the final EOS included
    std::vector<TokenLogprob> logprobs;                          // of token_ids, where asked for
    std::vector<std::vector<TokenLogprob>> top_logprobs;         // per output token
    std::vector<std::optional<TokenLogprob>> prompt_logprobs;    // per prompt token, nullopt for the first
    std::vector<std::vector<TokenLogprob>> prompt_top_logprobs;  // per prompt position: what comes after it
    Sampling sampling;                                           // as used: every field set
    std::optional<int> max_new_tokens;                           // as asked for
    int context_limit = 0;
    int cached_tokens = 0;  // prompt tokens whose keys and values came from the prefix cache
    Timing timing;
    std::vector<Step> steps;  // where Request::explain
    FinishReason finish_reason = FinishReason::error;
    std::optional<int> stop_token_id;  // eos: which
    std::string stop_string;           // stop_string: which
    std::string error;                 // error: one line
    bool complete = false;             // the model itself (or a stop) ended it: not a limit, not a fault
};

/// The answer of one submitted request. Movable; destroying it before the end cancels the request.
class Stream {
public:
    class State;
    explicit Stream(std::shared_ptr<State> state);
    ~Stream();
    Stream(Stream&&) noexcept;
    Stream& operator=(Stream&&) noexcept;
    /// Blocks for the next chunk; nullopt once the answer has ended.
    std::optional<Chunk> next();
    /// From any thread: the answer ends at once with FinishReason::cancelled and the text so far.
    void cancel();
    /// Waits for the end. Chunks not yet taken are dropped; Result::text holds the whole text.
    const Result& result();

private:
    std::shared_ptr<State> state_;
};

/// What an opened engine is, for records and reports.
struct EngineInfo {
    std::string model_path;
    std::string architecture;
    std::string dtype;  // of the checkpoint
    std::string checkpoint_sha256;
    std::string tokenizer_sha256;
    std::string device;  // "cpu"
    std::string device_description;
    std::string device_note;  // why auto fell back to the CPU; else ""
    std::string compute;      // "f32" | "bf16"
    int threads = 0;
    int vocab_size = 0;
    int max_context = 0;
    int model_context = 0;  // what the checkpoint itself allows
    int n_layers = 0;
    int hidden_size = 0;
    std::size_t parameters = 0;
    std::size_t weight_bytes = 0;  // that one decode step must read
    std::size_t kv_bytes_per_token = 0;
    std::size_t kv_tokens = 0;          // that the pool holds
    double prefill_flop_per_token = 0;  // matmuls, lm_head apart
    double load_seconds = 0;
    std::vector<int> eos_token_ids;
    Sampling sampling_defaults;
    std::vector<std::string> warnings;  // of loading, one line each
};

struct EngineStats {
    int running = 0;
    int waiting = 0;
    std::size_t pages_total = 0;
    std::size_t pages_used = 0;    // by running requests
    std::size_t pages_cached = 0;  // free, but kept for their prefix
    std::uint64_t preemptions = 0;
    std::uint64_t steps = 0;
    std::uint64_t steps_ahead = 0;  // of them: on the device before the ids of the one before were read
};

class Engine {
public:
    /// Loads a checkpoint. Throws Error before any work where it can't run.
    static Engine open(const EngineOptions& options);
    ~Engine();
    Engine(Engine&&) noexcept;
    Engine& operator=(Engine&&) noexcept;

    /// From any thread. Throws UsageError or Error at once where the request can't be served (empty prompt,
    /// prompt longer than the context, an id outside the vocabulary, a parameter out of range, a template's
    /// own complaint); otherwise never throws later: faults end that one stream with FinishReason::error.
    Stream submit(Request request);
    /// submit() and wait; `on_chunk` returning false cancels and isn't called again. What it throws is thrown
    /// on, and cancels too.
    Result generate(Request request, const std::function<bool(const Chunk&)>& on_chunk = {});

    /// The prompt's ids as submit() would compute them, with the text they came from.
    struct Formatted {
        std::string text;
        std::vector<int> ids;
    };
    Formatted format(const Request& request) const;

    const EngineInfo& info() const;
    EngineStats stats() const;
    const Tokenizer& tokenizer() const;

    class Impl;

private:
    explicit Engine(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// --- without an engine
// -----------------------------------------------------------------------------------------------------------

/// The version of this library, "0.1.0".
const char* version();

/// The checkpoint directory that EngineOptions::model names, by the same look-up. Throws Error showing the
/// download command.
std::string locate_model(const std::string& model);

/// Config, tensors, bytes and memory plan of a checkpoint as a JSON text; needs no weights beyond their
/// headers.
std::string inspect_checkpoint(const std::string& checkpoint_dir);

/// The machine's devices as a JSON text: CPU features, GPUs, driver, built architectures, problems; with
/// measured read bandwidth and matmul peak where `measure`.
std::string describe_devices(bool measure, int threads = 0);

/// A result with its engine's facts as the record of DESIGN section 7, a JSON text on one line.
std::string to_json(const Result& result, const EngineInfo& info, const Tokenizer& tokenizer);

}  // namespace llmgen
