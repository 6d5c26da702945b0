// Phi-3, Phi-3.5 mini and Phi-4 (Phi3ForCausalLM).
//
//   x = embed(ids)
//   for each layer:  x += attention(rmsnorm(x));  x += mlp(rmsnorm(x))      q, k, v stored as one matrix,
//   logits = lm_head(rmsnorm(x))                                            gate and up as another
//
// Traps that have cost others days:
//  - qkv_proj stacks all of q, then all of k, then all of v; gate_up_proj the gate first.
//  - only the first partial_rotary_factor × head_dim channels turn (Phi-4 mini).
//  - longrope: one list of factors up to original_max_position_embeddings, another beyond. The context ends
//    at the first limit here, since keys stored before it would have to turn again.
//  - sliding_window is set on the 4k models and slides on all layers.
#include <fmt/format.h>

#include "models/layers.h"

namespace llmgen {
namespace {

class Phi3 : public Decoder {
public:
    explicit Phi3(Loader& load) : Decoder(load) {
        const std::int64_t hidden = config_.hidden_size;
        const std::int64_t q_size = config_.q_size();
        const std::int64_t kv_size = config_.kv_size();
        const std::int64_t intermediate = config_.intermediate_size;

        for (int i = 0; i < config_.n_layers; ++i) {
            const std::string at = fmt::format("model.layers.{}.", i);
            Layer& layer = layers_.emplace_back();
            layer.attention_norm = load.vector(at + "input_layernorm.weight", hidden);
            layer.attention.shape = shape_of(i);
            layer.attention.qkv = load.linear({{at + "self_attn.qkv_proj", q_size + 2 * kv_size}}, hidden);
            layer.attention.output = load.linear({{at + "self_attn.o_proj", hidden}}, q_size);
            layer.mlp_norm = load.vector(at + "post_attention_layernorm.weight", hidden);
            layer.mlp.gate_up = load.linear({{at + "mlp.gate_up_proj", 2 * intermediate}}, hidden);
            layer.mlp.down = load.linear({{at + "mlp.down_proj", hidden}}, intermediate);
            load.report(i + 1, config_.n_layers);
        }
        load.finish();
        parameters_ = load.parameters();
    }

    Tensor forward(const Batch& batch) override {
        const Activations a = begin(batch);
        embed(a, batch);  // x   [n_tokens, hidden] f32
        for (const Layer& layer : layers_) {
            attention(a, layer, batch);  // x += Wo softmax(rope(q) rope(k)ᵀ / √head_dim) v
            mlp(a, layer);               // x += Wdown (silu(Wgate h) · Wup h)
        }
        return logits(a, batch);  // [n_logits, vocab] f32
    }
};

}  // namespace

std::unique_ptr<Model> make_phi3(Loader& load) { return std::make_unique<Phi3>(load); }

}  // namespace llmgen
