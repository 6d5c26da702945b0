#include "models/layers.h"

#include <algorithm>
#include <cmath>

#include "weights/rope.h"

namespace llmgen {
namespace {

/// Rows of bf16 as rows of half as many words of f32's size: enough to move them.
Tensor as_words(Tensor rows) {
    if (rows.dtype == DType::f32) return rows;
    rows.dtype = DType::f32;
    rows.shape[1] /= 2;
    rows.stride[0] /= 2;
    return rows;
}

/// Floats from one row to the next, for rows that are written a few columns at a time: where rows of 49,152
/// stand a multiple of 4 KiB apart, twelve of them fill two sets of a cache and push each other out. A few
/// lines more apart, their columns lie in different sets.
std::int64_t spread_rows(std::int64_t width) {
    constexpr std::int64_t kLine = 64 / sizeof(float);
    const std::int64_t lines = (width + kLine - 1) / kLine;
    return (lines + (11 - lines % 8) % 8) * kLine;
}

}  // namespace

Decoder::Decoder(Loader& load) : op_(load.ops()), config_(load.config()) {
    Loader::Embeddings embeddings = load.embeddings();
    embedding_ = std::move(embeddings.input);
    lm_head_ = std::move(embeddings.output);
    final_norm_ = load.vector("model.norm.weight", config_.hidden_size);

    const RopeFrequencies rope = rope_frequencies(config_);
    inverse_frequencies_ = op_.make_vector(
        Tensor(const_cast<float*>(rope.inverse.data()), DType::f32, {std::int64_t(rope.inverse.size())}));
    rope_factor_ = rope.attention_factor;
    layers_.reserve(std::size_t(config_.n_layers));
}

AttentionShape Decoder::shape_of(int layer) const {
    AttentionShape shape;
    shape.n_heads = config_.n_heads;
    shape.n_kv_heads = config_.n_kv_heads;
    shape.head_dim = config_.head_dim;
    shape.rotary_dim = config_.n_rotary();
    shape.scale = float(1 / std::sqrt(double(config_.head_dim)));
    shape.window = config_.windows[std::size_t(layer)];
    return shape;
}

// The frequencies are made once. Two kinds of scaling change theirs with the length: `dynamic` past
// max_position_embeddings, which no context reaches here, and `longrope` past the length it was trained at,
// where every key already stored would have to turn again.
int context_limit(const ModelConfig& config) {
    const RopeConfig& rope = config.rope;
    if (rope.type == RopeType::longrope && rope.original_max_position > 0)
        return std::min(config.max_position_embeddings, rope.original_max_position);
    return config.max_position_embeddings;
}

std::size_t Decoder::weight_bytes() const {
    std::size_t bytes = lm_head_.bytes + std::size_t(final_norm_.size) * 4;
    for (const Layer& layer : layers_)
        bytes += layer.attention.qkv.bytes + layer.attention.output.bytes + layer.mlp.gate_up.bytes +
                 layer.mlp.down.bytes + std::size_t(layer.attention_norm.size + layer.mlp_norm.size) * 4;
    return bytes;
}

double Decoder::prefill_flop_per_token() const {
    double values = 0;
    for (const Layer& layer : layers_)
        for (const Weight* w :
             {&layer.attention.qkv, &layer.attention.output, &layer.mlp.gate_up, &layer.mlp.down})
            values += double(w->out) * double(w->in);
    return 2 * values;
}

Tensor Decoder::buffer(DType dtype, std::initializer_list<std::int64_t> dims) {
    Tensor view(nullptr, dtype, dims);
    buffers_.push_back(op_.allocate(std::size_t(view.bytes()), "activations"));
    view.data = buffers_.back()->data();
    return view;
}

void Decoder::reserve(int max_tokens, int max_seqs, int max_logits, int max_context) {
    const AttentionShape shape = attention_shape();
    const DType act = activation_type(op_.compute());
    const std::int64_t hidden = config_.hidden_size;
    op_.reserve(shape, max_tokens, max_seqs, max_context);
    buffers_.clear();
    all_.x = buffer(DType::f32, {max_tokens, hidden});
    all_.h = buffer(act, {max_tokens, hidden});
    all_.qkv = buffer(DType::f32, {max_tokens, shape.qkv_width()});
    all_.attn = buffer(act, {max_tokens, shape.q_width()});
    all_.mlp = buffer(act, {max_tokens, config_.intermediate_size});
    all_.cos_sin = buffer(DType::f32, {max_tokens, 2, shape.rotary_dim / 2});
    all_.last = buffer(DType::f32, {max_logits, hidden});
    all_.last_h = buffer(act, {max_logits, hidden});
    all_.last_attn = buffer(act, {max_logits, shape.q_width()});
    all_.logits =
        buffer(DType::f32, {max_logits, spread_rows(config_.vocab_size)}).columns(0, config_.vocab_size);
}

void Decoder::set_kv(std::vector<KvCache> layers) {
    CHECK(layers.size() == layers_.size(), "{} caches for {} layers", layers.size(), layers_.size());
    for (std::size_t i = 0; i < layers.size(); ++i) layers_[i].attention.kv = layers[i];
}

Activations Decoder::begin(const Batch& batch) const {
    const std::int64_t n_tokens = batch.token_ids.dim(0);
    const std::int64_t n_logits = batch.logit_rows.dim(0);
    return {.x = all_.x.rows(n_tokens),
            .h = all_.h.rows(n_tokens),
            .qkv = all_.qkv.rows(n_tokens),
            .attn = all_.attn.rows(n_tokens),
            .mlp = all_.mlp.rows(n_tokens),
            .cos_sin = all_.cos_sin.rows(n_tokens),
            .last = all_.last.rows(n_logits),
            .last_h = all_.last_h.rows(n_logits),
            .last_attn = all_.last_attn.rows(n_logits),
            .logits = all_.logits.rows(n_logits)};
}

void Decoder::embed(const Activations& a, const Batch& batch) {
    op_.embed(a.x, embedding_, batch.token_ids);
    op_.rope_angles(a.cos_sin, batch.positions, inverse_frequencies_, rope_factor_);
}

bool Decoder::only_wanted(const Activations& a, const Layer& layer) const {
    return &layer == &layers_.back() && a.logits.dim(0) != a.x.dim(0) &&
           layer.attention.shape.q_width() % 2 == 0;
}

void Decoder::attention(const Activations& a, const Layer& layer, const Batch& batch) {
    const Attention& w = layer.attention;
    const float eps = float(config_.rms_norm_eps);
    const Tensor q = a.qkv.columns(0, w.shape.q_width());
    op_.norm_qkv_rope_store(a.qkv, {a.h, a.x, layer.attention_norm, eps}, w.qkv, w.kv, a.cos_sin, w.q_norm,
                            w.k_norm, batch, w.shape);
    if (only_wanted(a, layer)) {
        if (a.logits.dim(0) == 0) return;
        op_.attention_of_wanted(a.attn, q, w.kv, batch, w.shape);
        op_.gather_rows(a.last, a.x, batch.logit_rows);
        op_.gather_rows(as_words(a.last_attn), as_words(a.attn), batch.logit_rows);
        op_.linear_add(a.last, a.last_attn, w.output);
        return;
    }
    op_.attention(a.attn, q, w.kv, batch, w.shape);
    op_.linear_add(a.x, a.attn, w.output);
}

void Decoder::mlp(const Activations& a, const Layer& layer) {
    const bool wanted = only_wanted(a, layer);
    const Tensor x = wanted ? a.last : a.x, h = wanted ? a.last_h : a.h;
    if (x.dim(0) == 0) return;
    op_.norm_mlp(x, a.mlp.rows(x.dim(0)), {h, x, layer.mlp_norm, float(config_.rms_norm_eps)},
                 layer.mlp.gate_up, layer.mlp.down);
}

Tensor Decoder::logits(const Activations& a, const Batch& batch) {
    if (a.logits.dim(0) == 0) return a.logits;       // a chunk of a prompt that isn't the last
    const bool all = a.logits.dim(0) == a.x.dim(0);  // each row of x once: nothing to gather
    if (!all && !only_wanted(a, layers_.back())) op_.gather_rows(a.last, a.x, batch.logit_rows);
    op_.norm_head(a.logits, batch.greedy_ids,
                  {a.last_h, all ? a.x : a.last, final_norm_, float(config_.rms_norm_eps)}, lm_head_);
    return a.logits;
}

}  // namespace llmgen
