// What a checkpoint is, without running it: `llmgen inspect`.
#include <nlohmann/json.hpp>

#include "engine/memory_plan.h"
#include "llmgen/llmgen.h"
#include "models/model.h"
#include "weights/locate.h"

namespace llmgen {
namespace {

using Json = nlohmann::ordered_json;

Json describe_config(const ModelConfig& config) {
    Json json = {{"architecture", config.architecture},
                 {"model_type", config.model_type},
                 {"hidden_size", config.hidden_size},
                 {"intermediate_size", config.intermediate_size},
                 {"n_layers", config.n_layers},
                 {"n_heads", config.n_heads},
                 {"n_kv_heads", config.n_kv_heads},
                 {"head_dim", config.head_dim},
                 {"vocab_size", config.vocab_size},
                 {"max_position_embeddings", config.max_position_embeddings},
                 {"context", context_limit(config)},
                 {"rms_norm_eps", config.rms_norm_eps},
                 {"rope",
                  {{"type", std::string(name_of(config.rope.type))},
                   {"theta", config.rope.theta},
                   {"rotary_dim", config.n_rotary()}}},
                 {"tie_word_embeddings", config.tie_word_embeddings},
                 {"attention_bias", config.attention_bias},
                 {"mlp_bias", config.mlp_bias},
                 {"eos_token_ids", config.eos_token_ids}};
    if (config.dtype) json["dtype"] = std::string(name_of(*config.dtype));
    if (!config.transformers_version.empty()) json["transformers_version"] = config.transformers_version;
    return json;
}

Json memory_in(const ModelConfig& config, Compute compute) {
    const std::size_t token = kv_bytes_per_token(config, compute);
    return {{"weight_bytes", expected_weight_bytes(config, compute)},
            {"kv_bytes_per_token", token},
            {"kv_bytes_of_full_context", token * std::size_t(context_limit(config))}};
}

/// A decode step reads every weight once; of an embedding table that isn't the head too, only one row.
Json describe_memory(const ModelConfig& config) {
    std::size_t decode = expected_weight_bytes(config, Compute::bf16);
    if (!config.tie_word_embeddings)
        decode -= std::size_t(config.vocab_size) * std::size_t(config.hidden_size) * size_of(DType::bf16);
    return {{"decode_bytes_per_token", decode},
            {"bf16", memory_in(config, Compute::bf16)},
            {"f32", memory_in(config, Compute::f32)}};
}

}  // namespace

std::string inspect_checkpoint(const std::string& checkpoint_dir) {
    const std::vector<std::string> known = known_architectures();
    const Checkpoint checkpoint = Checkpoint::open(checkpoint_dir, known);
    const ModelConfig& config = checkpoint.config();
    Json tensors = Json::array();
    for (const std::string& name : checkpoint.names()) {
        const TensorInfo& info = checkpoint.info(name);
        tensors.push_back(
            {{"name", name}, {"dtype", info.type}, {"shape", info.shape}, {"bytes", info.bytes()}});
    }
    const Json report = {{"path", checkpoint.directory().string()},
                         {"config", describe_config(config)},
                         {"parameters", checkpoint.n_parameters()},
                         {"bytes", checkpoint.total_bytes()},
                         {"checkpoint_sha256", checkpoint.sha256()},
                         {"eos_token_ids", checkpoint.eos_token_ids()},
                         {"memory", describe_memory(config)},
                         {"warnings", checkpoint.warnings()},
                         {"tensors", tensors}};
    return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string locate_model(const std::string& model) {
    return locate_model(std::string_view(model), process_environment).string();
}

const char* version() { return "0.1.0"; }

}  // namespace llmgen
