#include "engine/memory_plan.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "engine/scheduler.h"

namespace llmgen {
namespace {

// On the host the pool is bounded beside the share of memory: an answer needs one context, and more than this
// many tokens are only ever held by many requests at once. Pages that nobody touches cost nothing there.
constexpr std::size_t kHostPoolTokens = 65536;
constexpr std::size_t kActivations = std::size_t(256) << 20;

}  // namespace

std::string in_units(std::size_t bytes) {
    if (bytes >= std::size_t(1) << 30) return fmt::format("{:.1f} GiB", double(bytes) / double(1 << 30));
    if (bytes >= std::size_t(1) << 20) return fmt::format("{:.0f} MiB", double(bytes) / double(1 << 20));
    return fmt::format("{:.0f} KiB", double(bytes) / 1024);
}

void bound_by_address_space(MemoryNeeds& needs) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const std::size_t used = pages * std::size_t(::sysconf(_SC_PAGESIZE));
    const std::size_t left = limit.rlim_cur > used ? std::size_t(limit.rlim_cur) - used : 0;
    if (left >= needs.free_bytes) return;
    needs.free_bytes = left;
    needs.free_by = " by ulimit -v";
}

std::size_t kv_bytes_per_token(const ModelConfig& config, Compute compute) {
    return 2 * std::size_t(config.n_layers) * std::size_t(config.kv_size()) *
           size_of(activation_type(compute));
}

std::size_t expected_weight_bytes(const ModelConfig& config, Compute compute) {
    const std::size_t hidden = std::size_t(config.hidden_size);
    const std::size_t layer = hidden * std::size_t(config.q_size() + 2 * config.kv_size()) +
                              hidden * std::size_t(config.q_size()) +
                              3 * hidden * std::size_t(config.intermediate_size);
    const std::size_t tables =
        hidden * std::size_t(config.vocab_size) * (config.tie_word_embeddings ? 1u : 2u);
    return (layer * std::size_t(config.n_layers) + tables) * size_of(activation_type(compute));
}

std::size_t expected_step_bytes(const ModelConfig& config,
                                const Ops& ops,
                                const EngineOptions& options,
                                int max_context) {
    const int seqs = options.max_sequences;
    const int tokens = std::min(options.prefill_chunk, max_context) + seqs;
    AttentionShape shape;
    shape.n_heads = config.n_heads;
    shape.n_kv_heads = config.n_kv_heads;
    shape.head_dim = config.head_dim;
    shape.rotary_dim = config.n_rotary();
    const std::size_t act = size_of(activation_type(ops.compute())), hidden = std::size_t(config.hidden_size),
                      q = std::size_t(shape.q_width());
    // As Decoder::reserve and Runner have them; a test compares the sum with what is really taken.
    const std::size_t per_token = (4 + act) * hidden + 4 * std::size_t(shape.qkv_width()) + act * q +
                                  act * std::size_t(config.intermediate_size) +
                                  4 * std::size_t(shape.rotary_dim) + 3 * sizeof(int);
    const std::size_t per_logits =
        (4 + act) * hidden + act * q + 4 * std::size_t(config.vocab_size) + 2 * sizeof(int);
    const std::size_t per_seq = std::size_t((max_context + kPageSize - 1) / kPageSize + 8) * sizeof(int);
    return std::size_t(tokens) * per_token +
           std::size_t(seqs + SchedulerLimits{}.all_logits_rows) * per_logits + std::size_t(seqs) * per_seq +
           ops.scratch_bytes(shape, tokens, seqs, max_context);
}

MemoryPlan plan_memory(const MemoryNeeds& needs, const EngineOptions& options) {
    if (options.max_context > needs.model_context)
        fail("--max-context {}: the model can compute {} positions", options.max_context,
             needs.model_context);

    const std::size_t taken = needs.weight_bytes + needs.step_bytes + kActivations;
    const std::size_t left = needs.free_bytes > taken ? needs.free_bytes - taken : 0;
    // The host's memory is shared with others; a device's is ours but for fragmentation and workspaces.
    const std::size_t share = needs.host ? left / 2 : left / 10 * 9;
    const std::string steps =
        needs.step_bytes > kActivations
            ? fmt::format(
                  ", {} for steps of {} sequences and {} tokens: fewer at once or a smaller "
                  "--prefill-chunk take less",
                  in_units(needs.step_bytes), options.max_sequences, options.prefill_chunk)
            : "";
    if (options.kv_memory > left)
        fail("--kv-memory {}: {} are free{} and the weights take {}{}, which leaves {}",
             in_units(options.kv_memory), in_units(needs.free_bytes), needs.free_by,
             in_units(needs.weight_bytes), steps, in_units(left));
    const std::size_t budget = options.kv_memory > 0 ? options.kv_memory : share;
    const std::size_t page_bytes = needs.bytes_per_token * kPageSize;
    const std::size_t fits =
        std::min(budget / page_bytes * kPageSize, std::size_t(1) << 30);  // tokens; slots are 32-bit

    const std::size_t wanted =
        options.max_context > 0 ? std::size_t(options.max_context) : std::size_t(needs.model_context);
    const std::size_t wanted_pages = (wanted + kPageSize - 1) / kPageSize;
    const std::string flags =
        options.kv_memory > 0
            ? fmt::format("--kv-memory {}", in_units(wanted_pages * page_bytes))
            : "--kv-memory SIZE takes a larger share of the memory, --compute bf16 halves the need of f32";
    if (fits < kPageSize || (options.max_context > 0 && fits < wanted))
        fail(
            "a context of {} tokens needs {} for keys and values ({} bytes a token); there are {} ({} "
            "free{}, {} for the weights{}), which hold {} tokens: {}{}",
            wanted, in_units(wanted_pages * page_bytes), needs.bytes_per_token, in_units(budget),
            in_units(needs.free_bytes), needs.free_by, in_units(needs.weight_bytes), steps, fits,
            fits > 0 ? fmt::format("--max-context {} fits; ", fits) : "", flags);

    MemoryPlan plan;
    plan.max_context = int(std::min(wanted, fits));
    if (plan.max_context < int(wanted))
        plan.note = fmt::format("context is {} tokens, not the model's {}: {} hold no more; {}",
                                plan.max_context, wanted, in_units(budget), flags);
    std::size_t pool = fits;
    if (needs.host && options.kv_memory == 0) pool = std::min(fits, std::max(kHostPoolTokens, wanted));
    plan.n_pages = int((pool + kPageSize - 1) / kPageSize);
    return plan;
}

}  // namespace llmgen
