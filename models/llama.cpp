// Llama 1 to 3.x, SmolLM2, TinyLlama and every other LlamaForCausalLM.
//
//   x = embed(ids)
//   for each layer:  x += attention(rmsnorm(x));  x += mlp(rmsnorm(x))
//   logits = lm_head(rmsnorm(x))                  only for the rows that asked for them
//
// Traps that have cost others days:
//  - rotary pairs are (d, d + head_dim / 2), not (2d, 2d + 1); files in GGUF have q and k permuted for the
//    latter.
//  - head_dim is a config key of its own; n_heads × head_dim need not be hidden_size.
//  - llama3 rope scaling changes the low frequencies only, and by wavelength, not by index.
//  - with tied embeddings a stored lm_head that differs wins.
//  - attention_bias puts a bias on the output projection too; Qwen2's biases stop at q, k and v.
#include <fmt/format.h>

#include "models/layers.h"

namespace llmgen {
namespace {

class Llama : public Decoder {
public:
    explicit Llama(Loader& load) : Decoder(load) {
        const std::int64_t hidden = config_.hidden_size;
        const std::int64_t q_size = config_.q_size();
        const std::int64_t kv_size = config_.kv_size();
        const std::int64_t intermediate = config_.intermediate_size;
        const Bias qkv_bias = config_.attention_bias ? Bias::required : Bias::if_stored;
        const Bias output_bias = config_.attention_output_bias ? Bias::required : Bias::if_stored;
        const Bias mlp_bias = config_.mlp_bias ? Bias::required : Bias::if_stored;

        for (int i = 0; i < config_.n_layers; ++i) {
            const std::string at = fmt::format("model.layers.{}.", i);
            Layer& layer = layers_.emplace_back();
            layer.attention_norm = load.vector(at + "input_layernorm.weight", hidden);
            layer.attention.shape = shape_of(i);
            layer.attention.qkv = load.linear({{at + "self_attn.q_proj", q_size, qkv_bias},
                                               {at + "self_attn.k_proj", kv_size, qkv_bias},
                                               {at + "self_attn.v_proj", kv_size, qkv_bias}},
                                              hidden);
            layer.attention.output = load.linear({{at + "self_attn.o_proj", hidden, output_bias}}, q_size);
            layer.mlp_norm = load.vector(at + "post_attention_layernorm.weight", hidden);
            layer.mlp.gate_up = load.linear({{at + "mlp.gate_proj", intermediate, mlp_bias},
                                             {at + "mlp.up_proj", intermediate, mlp_bias}},
                                            hidden);
            layer.mlp.down = load.linear({{at + "mlp.down_proj", hidden, mlp_bias}}, intermediate);
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

std::unique_ptr<Model> make_llama(Loader& load) { return std::make_unique<Llama>(load); }

}  // namespace llmgen
