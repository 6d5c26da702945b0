// What the engine knows of a model: load it, size its buffers once, run a batch.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/ops.h"
#include "weights/checkpoint.h"

namespace llmgen {

class Model {
public:
    virtual ~Model() = default;

    /// Sizes every buffer of a step: at most `max_tokens` new tokens, `max_seqs` sequences, `max_logits` rows
    /// of logits, `max_context` keys a sequence. Once, before the first forward.
    virtual void reserve(int max_tokens, int max_seqs, int max_logits, int max_context) = 0;

    /// One cache a layer, set once: the runner owns the pages.
    virtual void set_kv(std::vector<KvCache> layers) = 0;

    /// Enqueues one step: stores the new tokens' keys and values, and writes the logits of batch.logit_rows.
    ///   returns [n_logits, vocab_size] f32 in the backend's memory, valid until the next forward
    virtual Tensor forward(const Batch& batch) = 0;

    virtual int n_layers() const = 0;
    virtual int vocab_size() const = 0;
    virtual AttentionShape attention_shape() const = 0;
    /// Bytes of weights that one decode step must read: all but the embedding table, which is read only where
    /// the head is tied to it.
    virtual std::size_t weight_bytes() const = 0;
    virtual std::size_t parameters() const = 0;
    /// 2 × the values of the layers' matrices: the matmuls of a prompt token, output projection apart.
    virtual double prefill_flop_per_token() const = 0;
};

/// Positions that a model of this config can compute: max_position_embeddings, or fewer where its rope
/// scaling would have to change with the length (longrope past the length it was trained at).
int context_limit(const ModelConfig& config);

using LoadProgress = std::function<void(double fraction)>;

/// Builds the model that the checkpoint's config names (by architectures, else model_type), moves its weights
/// into `ops`, and checks that every tensor of the checkpoint was used. An unknown architecture is an Error
/// with its name and the list of known ones.
std::unique_ptr<Model> load_model(Checkpoint& checkpoint, Ops& ops, const LoadProgress& progress = {});

/// The same model with pseudo-random weights, for benchmarks where only a config.json is at hand.
std::unique_ptr<Model> dummy_model(const ModelConfig& config, Ops& ops, const LoadProgress& progress = {});

/// The architectures that load_model knows ("LlamaForCausalLM", …), as Checkpoint::open takes them.
std::vector<std::string> known_architectures();

}  // namespace llmgen
