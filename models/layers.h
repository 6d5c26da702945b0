// What the decoder-only models share: the weights of a layer, the buffers of a step, and the two blocks that
// every layer is made of.
//
//   x = embed(ids)                                        x       [n_tokens, hidden]            f32
//   for each layer:
//     h    = rmsnorm(x)                                   h       [n_tokens, hidden]            act
//     qkv  = Wqkv h + b                                   qkv     [n_tokens, (H + 2 K) D]       f32
//     q, k = rope(norm?(q), norm?(k));  k, v to their pages
//     attn = softmax(scale q kᵀ) v                        attn    [n_tokens, H D]               act
//     x   += Wo attn + b
//     h    = rmsnorm(x)
//     mlp  = silu(Wgate h) · (Wup h)                      mlp     [n_tokens, intermediate]      act
//     x   += Wdown mlp + b
//   logits = Whead rmsnorm(x[rows that asked])            logits  [n_logits, vocab]             f32
//
// What follows the last layer's keys and values goes on with the rows whose logits are wanted: of a prompt
// that is the last one, of a chunk that isn't the prompt's last none.
//
// H heads, K kv heads, D head_dim. The residual stream, q, k, v before they are stored, and the logits are
// f32 in both compute modes: rounding them costs accuracy and saves no weight traffic, which is what decode
// waits for.
#pragma once

#include <memory>
#include <vector>

#include "models/loader.h"

namespace llmgen {

struct Attention {
    Weight qkv;             // [(n_heads + 2 n_kv_heads) head_dim, hidden], with biases where there are any
    Vector q_norm, k_norm;  // [head_dim], Qwen3 only
    Weight output;          // [hidden, n_heads head_dim]
    AttentionShape shape;
    KvCache kv;
};

struct Mlp {
    Weight gate_up;  // [2 intermediate, hidden]: the gate's rows, then the up projection's
    Weight down;     // [hidden, intermediate]
};

struct Layer {
    Vector attention_norm;  // [hidden]
    Attention attention;
    Vector mlp_norm;  // [hidden]
    Mlp mlp;
};

/// The buffers of a step, cut to the rows that this one has.
struct Activations {
    Tensor x;          // [n_tokens, hidden] f32
    Tensor h;          // [n_tokens, hidden] act
    Tensor qkv;        // [n_tokens, qkv_width] f32
    Tensor attn;       // [n_tokens, q_width] act
    Tensor mlp;        // [n_tokens, intermediate] act
    Tensor cos_sin;    // [n_tokens, 2, rotary_dim / 2] f32
    Tensor last;       // [n_logits, hidden] f32
    Tensor last_h;     // [n_logits, hidden] act
    Tensor last_attn;  // [n_logits, q_width] act
    Tensor logits;     // [n_logits, vocab] f32
};

class Decoder : public Model {
public:
    void reserve(int max_tokens, int max_seqs, int max_logits, int max_context) final;
    void set_kv(std::vector<KvCache> layers) final;
    int n_layers() const final { return int(layers_.size()); }
    int vocab_size() const final { return config_.vocab_size; }
    AttentionShape attention_shape() const final { return layers_.front().attention.shape; }
    std::size_t weight_bytes() const final;
    std::size_t parameters() const final { return parameters_; }
    double prefill_flop_per_token() const final;

protected:
    /// Embeddings, final norm and rope; the layers are the model's own to load, with layers_ and the
    /// functions below.
    explicit Decoder(Loader& load);
    /// The attention of a layer as the config has it; weights still empty.
    AttentionShape shape_of(int layer) const;

    // The steps of a forward.
    Activations begin(const Batch& batch) const;                           // the buffers' rows for this batch
    void embed(const Activations& a, const Batch& batch);                  // x = table[ids]; angles of rope
    void attention(const Activations& a, const Layer& l, const Batch& b);  // x += Wo attention(rmsnorm(x))
    void mlp(const Activations& a, const Layer& l);                        // x += Wdown swiglu(rmsnorm(x))
    Tensor logits(const Activations& a, const Batch& batch);               // Whead rmsnorm(x[logit_rows])

    Ops& op_;
    ModelConfig config_;
    Weight embedding_;  // [vocab, hidden]
    std::vector<Layer> layers_;
    Vector final_norm_;  // [hidden]
    Weight lm_head_;     // [vocab, hidden]; the embedding where tied
    std::size_t parameters_ = 0;

private:
    Tensor buffer(DType dtype, std::initializer_list<std::int64_t> dims);
    /// Whether this is the last layer of a step that wants the logits of fewer rows than it has.
    bool only_wanted(const Activations& a, const Layer& layer) const;

    Vector inverse_frequencies_;  // [rotary_dim / 2]
    float rope_factor_ = 1;
    Activations all_;
    std::vector<std::unique_ptr<Buffer>> buffers_;
};

/// Every page of models/ offers one of these to the registry.
using MakeModel = std::unique_ptr<Model> (*)(Loader&);
std::unique_ptr<Model> make_llama(Loader&);
std::unique_ptr<Model> make_qwen2(Loader&);
std::unique_ptr<Model> make_qwen3(Loader&);
std::unique_ptr<Model> make_mistral(Loader&);
std::unique_ptr<Model> make_phi3(Loader&);

}  // namespace llmgen
