// Opening an engine: from a directory to a model on a device with pages for keys and values.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>

#include "base/cores.h"
#include "base/error.h"
#include "engine/engine_impl.h"
#include "engine/memory_plan.h"
#include "engine/sampling.h"
#include "weights/locate.h"

namespace llmgen {
namespace {

void check(const EngineOptions& options) {
    if (options.max_context < 0) fail_usage("--max-context {}: must not be negative", options.max_context);
    if (options.threads < 0) fail_usage("--threads {}: must not be negative", options.threads);
    if (options.max_sequences < 1 || options.max_sequences > 4096)
        fail_usage("max_sequences {}: must lie between 1 and 4096", options.max_sequences);
    if (options.prefill_chunk < 1 || options.prefill_chunk > EngineOptions::kLargestChunk)
        fail_usage("prefill_chunk {}: must lie between 1 and {}", options.prefill_chunk,
                   EngineOptions::kLargestChunk);
    if (options.max_slowdown != 0 && !(options.max_slowdown >= 1 && options.max_slowdown <= 1e6))
        fail_usage("max_slowdown {}: must be 0 (no limit) or at least 1", options.max_slowdown);
}

void add_unique(std::vector<int>& ids, int id) {
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
}

/// What the file says it was saved in, else what its first matrix is.
std::string dtype_of(const Checkpoint& checkpoint) {
    if (checkpoint.config().dtype) return std::string(name_of(*checkpoint.config().dtype));
    for (const std::string& name : checkpoint.names())
        if (const auto dtype = checkpoint.info(name).dtype()) return std::string(name_of(*dtype));
    return "unknown";
}

}  // namespace

void Engine::Impl::progress(const std::string& phase, double fraction) const {
    if (options_.on_progress) options_.on_progress(phase, fraction);
}

void Engine::Impl::load_text(const std::filesystem::path& directory, int vocab_size) {
    try {
        tokenizer_ = Tokenizer::load(directory);
    } catch (const Error&) {
        if (!options_.dummy_weights) throw;
        return;
    }
    info_.tokenizer_sha256 = tokenizer_->sha256();
    if (const auto eos = tokenizer_->eos_token())
        if (const auto id = tokenizer_->id_of(*eos); id && *id < vocab_size)
            add_unique(info_.eos_token_ids, *id);
    std::ranges::sort(info_.eos_token_ids);
    if (tokenizer_->vocab_size() > vocab_size)
        info_.warnings.push_back(
            fmt::format("the tokenizer knows {} ids, the model {}: prompts that use the others are refused",
                        tokenizer_->vocab_size(), vocab_size));
    try {
        if (options_.chat_template.empty())
            chat_template_ = ChatTemplate::load(directory);
        else
            chat_template_ =
                ChatTemplate::parse(options_.chat_template, tokenizer_->bos_token(), tokenizer_->eos_token());
    } catch (const Error& error) {
        template_fault_ = error.what();
    }
    if (chat_template_) control_ids_ = chat_template_->control_ids(*tokenizer_);
}

std::unique_ptr<LoadedModel> Engine::Impl::load() {
    const Clock::time_point begin = Clock::now();
    check(options_);
    const std::filesystem::path directory = locate_model(options_.model);
    const std::vector<std::string> known = known_architectures();

    std::optional<Checkpoint> checkpoint;
    ModelConfig config;
    GenerationDefaults generation;
    if (options_.dummy_weights) {
        config = ModelConfig::load(directory, known);
        generation = GenerationDefaults::load(directory, config.vocab_size);
        info_.eos_token_ids = config.eos_token_ids;
        info_.dtype = "dummy";
        info_.warnings = config.warnings;
    } else {
        checkpoint =
            Checkpoint::open(directory, known, options_.map_weights ? FileAccess::map : FileAccess::read);
        config = checkpoint->config();
        generation = checkpoint->generation();
        info_.eos_token_ids = checkpoint->eos_token_ids();
        info_.dtype = dtype_of(*checkpoint);
    }
    info_.model_path = directory.string();
    info_.architecture = config.architecture;
    if (options_.use_generation_config) info_.sampling_defaults = defaults_of(generation);
    // Beside the weights, on a thread of its own: neither fills all cores all the time. A fault of it ends
    // the loading at the next layer.
    std::future<void> text = std::async(
        std::launch::async, [this, &directory, vocab = config.vocab_size] { load_text(directory, vocab); });

    auto loaded = std::make_unique<LoadedModel>();
    Backend backend = open_backend({options_.device, options_.compute, options_.threads});
    loaded->ops = std::move(backend.ops);
    Ops& ops = *loaded->ops;
    const DeviceInfo device = ops.info();

    // Before the weights, which take long: does it fit?
    MemoryNeeds needs;
    needs.free_bytes = device.memory_free;
    needs.weight_bytes = expected_weight_bytes(config, ops.compute());
    if (device.name != "cpu")
        needs.step_bytes = expected_step_bytes(
            config, ops, options_, options_.max_context > 0 ? options_.max_context : context_limit(config));
    needs.bytes_per_token = kv_bytes_per_token(config, ops.compute());
    needs.model_context = context_limit(config);
    needs.host = device.name == "cpu";
    if (needs.host) bound_by_address_space(needs);
    const MemoryPlan plan = plan_memory(needs, options_);

    const auto report = [&](double fraction) {
        if (text.valid() && text.wait_for(std::chrono::seconds(0)) == std::future_status::ready) text.get();
        progress("loading weights", fraction);
    };
    loaded->model = checkpoint ? load_model(*checkpoint, ops, report) : dummy_model(config, ops, report);
    if (text.valid()) text.get();
    if (checkpoint) {
        const auto warnings = checkpoint->warnings();
        info_.warnings.insert(info_.warnings.end(), warnings.begin(), warnings.end());
        if (options_.full_checkpoint_hash) progress("hashing weights", 0);
        info_.checkpoint_sha256 =
            options_.full_checkpoint_hash ? checkpoint->sha256_full() : checkpoint->sha256();
    }
    if (!plan.note.empty()) info_.warnings.push_back(plan.note);
    if (needs.host && options_.threads > usable_cores())
        info_.warnings.push_back(fmt::format(
            "{} threads on {} cores that this process may use: the more there are, the longer they wait for "
            "each other (--threads)",
            options_.threads, usable_cores()));

    SchedulerLimits& limits = loaded->limits;
    limits.max_sequences = std::min(options_.max_sequences, plan.n_pages);
    limits.prefill_chunk = std::min(options_.prefill_chunk, plan.max_context);
    RunnerLimits room;
    room.max_tokens = limits.prefill_chunk + limits.max_sequences;
    room.max_seqs = limits.max_sequences;
    room.max_logits = limits.max_sequences + limits.all_logits_rows;
    room.max_context = plan.max_context;
    room.n_pages = plan.n_pages;
    loaded->runner = std::make_unique<Runner>(*loaded->model, ops, room);
    const std::string domain = fmt::format("{}/{}", info_.checkpoint_sha256, name_of(ops.compute()));
    loaded->pool = std::make_unique<PagePool>(plan.n_pages, options_.prefix_cache, domain);

    const Model& model = *loaded->model;
    info_.device = device.name;
    info_.device_description = device.description;
    info_.device_note = backend.note;
    info_.compute = name_of(ops.compute());
    info_.threads = options_.threads > 0 ? options_.threads : usable_cores();
    info_.vocab_size = config.vocab_size;
    info_.max_context = plan.max_context;
    info_.model_context = needs.model_context;
    info_.n_layers = config.n_layers;
    info_.hidden_size = config.hidden_size;
    info_.parameters = model.parameters();
    info_.weight_bytes = model.weight_bytes();
    info_.kv_bytes_per_token = needs.bytes_per_token;
    info_.kv_tokens = std::size_t(plan.n_pages) * kPageSize;
    info_.prefill_flop_per_token = model.prefill_flop_per_token();
    info_.load_seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    mailbox_->stats.pages_total = std::size_t(plan.n_pages);
    return loaded;
}

}  // namespace llmgen
