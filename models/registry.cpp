// Which page of models/ builds which checkpoint.
#include <array>
#include <string_view>

#include "base/error.h"
#include "models/layers.h"

namespace llmgen {
namespace {

struct Entry {
    std::string_view architecture;  // config.json: architectures[0]
    std::string_view model_type;    // where there are no architectures
    MakeModel make;
};

constexpr std::array kModels = {
    Entry{"LlamaForCausalLM", "llama", make_llama}, Entry{"Qwen2ForCausalLM", "qwen2", make_qwen2},
    Entry{"Qwen3ForCausalLM", "qwen3", make_qwen3}, Entry{"MistralForCausalLM", "mistral", make_mistral},
    Entry{"Phi3ForCausalLM", "phi3", make_phi3},
};

std::unique_ptr<Model> make(const ModelConfig& config, Loader& loader) {
    for (const Entry& entry : kModels)
        if (entry.architecture == config.architecture) return entry.make(loader);
    for (const Entry& entry : kModels)
        if (config.architecture.empty() && entry.model_type == config.model_type) return entry.make(loader);
    std::string known;
    for (const Entry& entry : kModels) known += (known.empty() ? "" : ", ") + std::string(entry.architecture);
    fail("architecture {} is not known; known are {}", config.architecture, known);
}

}  // namespace

std::unique_ptr<Model> load_model(Checkpoint& checkpoint, Ops& ops, const LoadProgress& progress) {
    Loader loader(checkpoint, ops, progress);
    return make(checkpoint.config(), loader);
}

std::unique_ptr<Model> dummy_model(const ModelConfig& config, Ops& ops, const LoadProgress& progress) {
    Loader loader(config, ops, progress);
    return make(config, loader);
}

std::vector<std::string> known_architectures() {
    std::vector<std::string> names;
    for (const Entry& entry : kModels) names.emplace_back(entry.architecture);
    return names;
}

}  // namespace llmgen
