#include "models/loader.h"

#include <cmath>

namespace llmgen {

Loader::Loader(Checkpoint& checkpoint, Ops& ops, LoadProgress progress)
    : checkpoint_(&checkpoint), config_(checkpoint.config()), ops_(ops), progress_(std::move(progress)) {}

Loader::Loader(const ModelConfig& config, Ops& ops, LoadProgress progress)
    : config_(config), ops_(ops), progress_(std::move(progress)) {}

Loader::~Loader() = default;

bool Loader::has(const std::string& name) const { return checkpoint_ && checkpoint_->has(name); }

Tensor Loader::tensor(const std::string& name, std::initializer_list<std::int64_t> dims) {
    std::int64_t size = 1;
    for (const std::int64_t dim : dims) size *= dim;
    parameters_ += std::size_t(size);
    if (checkpoint_) return checkpoint_->tensor(name, dims);

    // Values as they are at initialisation (deviation 0.02): large enough that nothing is denormal, small
    // enough that nothing overflows. Every matrix reads the same ones.
    if (dummy_.size() < std::size_t(size)) {
        std::uint64_t state = 0x9E3779B97F4A7C15u * (dummy_.size() + 1);
        const std::size_t first = dummy_.size();
        dummy_.resize(std::size_t(size));
        for (std::size_t i = first; i < dummy_.size(); ++i) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            const float uniform = float(state >> 40) * 0x1p-23f - 1;
            dummy_[i] = to_bf16(uniform * 0.035f).bits;
        }
    }
    return Tensor(dummy_.data(), DType::bf16, dims);
}

Weight Loader::weight(std::span<const std::string> names,
                      std::span<const Tensor> parts,
                      std::span<const Tensor> biases) {
    using Holds = std::vector<std::shared_ptr<const void>>;
    auto holds = std::make_shared<Holds>();
    for (const std::string& name : names)
        if (std::shared_ptr<const void> hold = checkpoint_ ? checkpoint_->hold(name) : nullptr)
            holds->push_back(std::move(hold));
    if (holds->size() == names.size()) {
        std::shared_ptr<const void> owner = holds;
        if (holds->size() == 1) owner = holds->front();  // whose pieces a backend may let go of one by one
        holds.reset();
        return ops_.borrow_weight(parts, biases, std::move(owner));
    }
    Weight made = ops_.make_weight(parts, biases);
    if (checkpoint_)
        for (const std::string& name : names) checkpoint_->drop(name);
    return made;
}

Vector Loader::vector(const std::string& name, std::int64_t size) {
    if (!checkpoint_) {  // norms of ones keep the activations of a random model in range
        const std::vector<float> ones(std::size_t(size), 1.0f);
        parameters_ += std::size_t(size);
        return ops_.make_vector(Tensor(const_cast<float*>(ones.data()), DType::f32, {size}));
    }
    return ops_.make_vector(tensor(name, {size}));
}

Weight Loader::linear(std::initializer_list<Part> parts, std::int64_t in) {
    std::vector<Tensor> values;
    std::vector<Tensor> biases;
    std::vector<std::string> names;
    bool any_bias = false;
    for (const Part& part : parts) {
        names.push_back(part.name + ".weight");
        values.push_back(tensor(names.back(), {part.out, in}));
        const std::string bias = part.name + ".bias";
        const bool wanted = part.bias == Bias::required || (part.bias == Bias::if_stored && has(bias));
        biases.push_back(wanted ? tensor(bias, {part.out}) : Tensor());
        any_bias = any_bias || wanted;
    }
    if (!any_bias) biases.clear();
    return weight(names, values, biases);
}

Loader::Embeddings Loader::embeddings() {
    const std::int64_t vocab = config_.vocab_size;
    const std::int64_t hidden = config_.hidden_size;
    Checkpoint::Embeddings names{"model.embed_tokens.weight", "lm_head.weight"};
    if (checkpoint_)
        names = checkpoint_->embeddings();
    else if (config_.tie_word_embeddings)
        names.output = names.input;

    const Tensor input = tensor(names.input, {vocab, hidden});
    Embeddings made;
    made.input = weight({&names.input, 1}, {&input, 1});
    if (names.input == names.output) {
        made.output = made.input;
    } else {
        const Tensor output = tensor(names.output, {vocab, hidden});
        made.output = weight({&names.output, 1}, {&output, 1});
    }
    return made;
}

void Loader::report(int done, int total) const {
    if (progress_) progress_(double(done) / total);
}

void Loader::finish() {
    if (checkpoint_) checkpoint_->check_all_consumed();
    if (progress_) progress_(1);
}

}  // namespace llmgen
