// The public API: opens a checkpoint, checks requests, hands them to the worker.
//
// Everything that the device does, loading included, happens on the worker's thread: the CPU backend's
// threads belong to the thread that made them.
#include <algorithm>
#include <future>
#include <thread>

#include "base/error.h"
#include "base/utf8.h"
#include "engine/answer.h"
#include "engine/engine_impl.h"
#include "engine/sampling.h"

namespace llmgen {

Engine Engine::open(const EngineOptions& options) { return Engine(std::make_unique<Impl>(options)); }
Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

Engine::Impl::Impl(const EngineOptions& options) : options_(options) {
    auto loaded = std::make_shared<std::promise<void>>();
    std::future<void> ready = loaded->get_future();
    worker_ = std::jthread([this, loaded] {
        try {
            const std::unique_ptr<LoadedModel> model = load();
            loaded->set_value();
            Worker(*model->runner, *model->pool, model->limits, options_.max_slowdown, info_.threads,
                   *mailbox_)
                .serve();
        } catch (...) {
            loaded->set_exception(std::current_exception());
        }
    });
    ready.get();  // on an exception the thread has ended; ~jthread joins it
}

Engine::Impl::~Impl() {
    {
        const std::lock_guard lock(mailbox_->mutex);
        mailbox_->closing = true;
    }
    mailbox_->wake.notify_all();
}

const Tokenizer& Engine::Impl::tokenizer() const {
    if (!tokenizer_) fail("{}: has no tokenizer; only token ids can be used", info_.model_path);
    return *tokenizer_;
}

Engine::Formatted Engine::Impl::format(const Request& request) const {
    if (const auto* ids = std::get_if<TokenIds>(&request.prompt)) return {"", *ids};
    if (const auto* raw = std::get_if<RawText>(&request.prompt))
        return {raw->text, tokenizer().encode(raw->text)};
    const Chat& chat = std::get<Chat>(request.prompt);
    if (!template_fault_.empty()) throw Error(template_fault_);
    if (!chat_template_)
        fail("{}: has no chat template: give one (--chat-template FILE), or complete plain text (--raw)",
             info_.model_path);
    RenderedPrompt prompt = chat_template_->render(chat.input);
    // The template wrote what begins a text (BOS); the post-processor would write it again.
    EncodeOptions how{.add_special_tokens = false, .parse_special = true};
    if (!request.parse_special_in_chat) {
        how.plain_ranges = prompt.user_ranges;
        how.control_ids = control_ids_;
    }
    std::vector<int> ids = tokenizer().encode(prompt.text, how);
    return {std::move(prompt.text), std::move(ids)};
}

namespace {

void check_ids(std::span<const int> ids, int vocab_size, const char* what) {
    for (const int id : ids)
        if (id < 0 || id >= vocab_size)
            fail_usage("{}: id {} is outside the vocabulary of {}", what, id, vocab_size);
}

}  // namespace

Answer::Terms Engine::Impl::terms_of(const Request& request) const {
    const int vocab = info_.vocab_size;
    Answer::Terms terms;
    terms.sampling = resolve(request.sampling, info_.sampling_defaults, vocab);
    if (request.max_new_tokens && *request.max_new_tokens < 0)
        fail_usage("max_new_tokens {}: must be at least 0", *request.max_new_tokens);
    terms.max_new_tokens = request.max_new_tokens;
    terms.context_limit = info_.max_context;
    for (const std::string& stop : request.stop)
        if (stop.empty())
            fail_usage("stop: an empty stop string would end every answer at once");
        else if (!utf8::is_valid(stop))
            fail_usage("stop: a stop string is no valid UTF-8, which the text of an answer always is");
    if (!request.stop.empty()) tokenizer();  // throws where there's no text to find them in
    terms.stop_strings = request.stop;
    check_ids(request.stop_token_ids, vocab, "stop_token_ids");
    terms.stop_ids = request.stop_token_ids;
    if (!request.ignore_eos)
        terms.stop_ids.insert(terms.stop_ids.end(), info_.eos_token_ids.begin(), info_.eos_token_ids.end());
    if (request.logprobs < -1 || request.logprobs > vocab)
        fail_usage("logprobs {}: must lie between -1 (none) and the vocabulary's {}", request.logprobs,
                   vocab);
    terms.logprobs = request.logprobs;
    terms.prompt_logprobs = request.prompt_logprobs;
    terms.explain = request.explain;
    terms.skip_special = request.skip_special;
    return terms;
}

Stream Engine::Impl::submit(Request request) {
    const Clock::time_point arrival = Clock::now();
    Answer::Terms terms = terms_of(request);
    Engine::Formatted prompt = format(request);
    const int n_prompt = int(prompt.ids.size());
    if (n_prompt == 0) fail("empty prompt: it has no tokens");
    check_ids(prompt.ids, info_.vocab_size, "prompt");
    if (n_prompt > info_.max_context)
        fail("the prompt has {} tokens, the context holds {}{}", n_prompt, info_.max_context,
             info_.max_context < info_.model_context
                 ? fmt::format("; --max-context up to {} would hold more", info_.model_context)
                 : "; shorten it");

    auto state = std::make_shared<Stream::State>(mailbox_);
    auto answer = std::make_unique<Answer>(std::move(terms), std::move(prompt.ids),
                                           tokenizer_ ? &*tokenizer_ : nullptr, state);
    answer->arrival = arrival;
    answer->result.formatted_prompt = std::move(prompt.text);
    answer->sequence.priority = request.priority;
    answer->sequence.pages.salt = request.cache_salt;
    {
        const std::lock_guard lock(mailbox_->mutex);
        if (!mailbox_->fault.empty()) fail("the engine has stopped: {}", mailbox_->fault);
        answer->sequence.arrival = n_submitted_++;
        answer->result.id = request.id.empty() ? std::to_string(answer->sequence.arrival) : request.id;
        mailbox_->arrivals.push_back(std::move(answer));
    }
    mailbox_->wake.notify_one();
    return Stream(std::move(state));
}

EngineStats Engine::Impl::stats() const {
    const std::lock_guard lock(mailbox_->mutex);
    EngineStats stats = mailbox_->stats;
    stats.waiting += int(mailbox_->arrivals.size());
    return stats;
}

Stream Engine::submit(Request request) { return impl_->submit(std::move(request)); }

Result Engine::generate(Request request, const std::function<bool(const Chunk&)>& on_chunk) {
    Stream stream = submit(std::move(request));
    if (on_chunk)
        while (const std::optional<Chunk> chunk = stream.next())
            if (!on_chunk(*chunk)) {  // who wants no more is given no more
                stream.cancel();
                break;
            }
    return stream.result();
}

Engine::Formatted Engine::format(const Request& request) const { return impl_->format(request); }
const EngineInfo& Engine::info() const { return impl_->info(); }
EngineStats Engine::stats() const { return impl_->stats(); }
const Tokenizer& Engine::tokenizer() const { return impl_->tokenizer(); }

}  // namespace llmgen
