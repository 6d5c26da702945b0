// Mistral 7B and its kin (MistralForCausalLM).
//
//   x = embed(ids)
//   for each layer:  x += attention(rmsnorm(x));  x += mlp(rmsnorm(x))      attention over a window of keys
//   logits = lm_head(rmsnorm(x))                  only for the rows that asked for them
//
// Traps that have cost others days:
//  - sliding_window w lets position i see the w keys i - w + 1 … i, itself included; null is no window
//    (v0.2 on), and then nothing slides.
//  - head_dim is a config key of its own (Nemo: 128 with hidden_size 5120 and 32 heads).
//  - directories often hold consolidated.safetensors beside the shards; the index alone counts.
#include <fmt/format.h>

#include "models/layers.h"

namespace llmgen {
namespace {

class Mistral : public Decoder {
public:
    explicit Mistral(Loader& load) : Decoder(load) {
        const std::int64_t hidden = config_.hidden_size;
        const std::int64_t q_size = config_.q_size();
        const std::int64_t kv_size = config_.kv_size();
        const std::int64_t intermediate = config_.intermediate_size;

        for (int i = 0; i < config_.n_layers; ++i) {
            const std::string at = fmt::format("model.layers.{}.", i);
            Layer& layer = layers_.emplace_back();
            layer.attention_norm = load.vector(at + "input_layernorm.weight", hidden);
            layer.attention.shape = shape_of(i);  // the window is in it
            layer.attention.qkv = load.linear({{at + "self_attn.q_proj", q_size},
                                               {at + "self_attn.k_proj", kv_size},
                                               {at + "self_attn.v_proj", kv_size}},
                                              hidden);
            layer.attention.output = load.linear({{at + "self_attn.o_proj", hidden}}, q_size);
            layer.mlp_norm = load.vector(at + "post_attention_layernorm.weight", hidden);
            layer.mlp.gate_up = load.linear(
                {{at + "mlp.gate_proj", intermediate}, {at + "mlp.up_proj", intermediate}}, hidden);
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
            attention(a, layer, batch);  // x += Wo softmax(rope(q) rope(k)ᵀ / √head_dim, last w keys) v
            mlp(a, layer);               // x += Wdown (silu(Wgate h) · Wup h)
        }
        return logits(a, batch);  // [n_logits, vocab] f32
    }
};

}  // namespace

std::unique_ptr<Model> make_mistral(Loader& load) { return std::make_unique<Mistral>(load); }

}  // namespace llmgen
