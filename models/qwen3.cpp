// Qwen3, dense (Qwen3ForCausalLM).
//
//   x = embed(ids)
//   for each layer:  x += attention(rmsnorm(x));  x += mlp(rmsnorm(x))
//                    within attention each head of q and k is normalised before it turns
//   logits = lm_head(rmsnorm(x))                  only for the rows that asked for them
//
// Traps that have cost others days:
//  - q_norm and k_norm have head_dim weights, shared by all heads: the mean is over one head, not over q.
//  - head_dim is 128 whatever hidden_size / n_heads says.
//  - no biases unless attention_bias says so: Qwen2's are gone.
#include <fmt/format.h>

#include "models/layers.h"

namespace llmgen {
namespace {

class Qwen3 : public Decoder {
public:
    explicit Qwen3(Loader& load) : Decoder(load) {
        const std::int64_t hidden = config_.hidden_size;
        const std::int64_t q_size = config_.q_size();
        const std::int64_t kv_size = config_.kv_size();
        const std::int64_t intermediate = config_.intermediate_size;
        const Bias qkv_bias = config_.attention_bias ? Bias::required : Bias::if_stored;
        const Bias output_bias = config_.attention_output_bias ? Bias::required : Bias::if_stored;

        for (int i = 0; i < config_.n_layers; ++i) {
            const std::string at = fmt::format("model.layers.{}.", i);
            Layer& layer = layers_.emplace_back();
            layer.attention_norm = load.vector(at + "input_layernorm.weight", hidden);
            layer.attention.shape = shape_of(i);
            layer.attention.qkv = load.linear({{at + "self_attn.q_proj", q_size, qkv_bias},
                                               {at + "self_attn.k_proj", kv_size, qkv_bias},
                                               {at + "self_attn.v_proj", kv_size, qkv_bias}},
                                              hidden);
            layer.attention.q_norm = load.vector(at + "self_attn.q_norm.weight", config_.head_dim);
            layer.attention.k_norm = load.vector(at + "self_attn.k_norm.weight", config_.head_dim);
            layer.attention.output = load.linear({{at + "self_attn.o_proj", hidden, output_bias}}, q_size);
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
            attention(a, layer, batch);  // x += Wo softmax(rope(norm(q)) rope(norm(k))ᵀ / √head_dim) v
            mlp(a, layer);               // x += Wdown (silu(Wgate h) · Wup h)
        }
        return logits(a, batch);  // [n_logits, vocab] f32
    }
};

}  // namespace

std::unique_ptr<Model> make_qwen3(Loader& load) { return std::make_unique<Qwen3>(load); }

}  // namespace llmgen
