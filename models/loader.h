// From a checkpoint's tensors to a backend's weights, while a model is being built: names parts, stacks them,
// and lets go of the file's pages once the backend has copied them, now or later.
//
// The source is a checkpoint or, for benchmarks of models whose weights aren't at hand, pseudo-random values
// of the right shapes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/model.h"

namespace llmgen {

enum class Bias { none, if_stored, required };

/// Rows of a stacked matrix: `name`.weight [out, in] and, by `bias`, `name`.bias [out].
struct Part {
    std::string name;
    std::int64_t out = 0;
    Bias bias = Bias::if_stored;
};

class Loader {
public:
    /// From the file.
    Loader(Checkpoint& checkpoint, Ops& ops, LoadProgress progress);
    /// Pseudo-random weights of the shapes that `config` gives; the same in every run.
    Loader(const ModelConfig& config, Ops& ops, LoadProgress progress);
    ~Loader();
    Loader(const Loader&) = delete;

    const ModelConfig& config() const { return config_; }
    Ops& ops() const { return ops_; }

    /// `name` as f32 [size].
    Vector vector(const std::string& name, std::int64_t size);
    /// The parts' rows, one below the other: [sum of out, in].
    Weight linear(std::initializer_list<Part> parts, std::int64_t in);
    /// Embedding table and output projection, both [vocab, hidden]: one and the same where they are tied.
    struct Embeddings {
        Weight input, output;
    };
    Embeddings embeddings();

    /// Once a layer is done.
    void report(int done, int total) const;
    /// Throws Error where the checkpoint has tensors that nobody asked for.
    void finish();
    /// Values seen so far; a matrix that serves twice counts once.
    std::size_t parameters() const { return parameters_; }

private:
    bool has(const std::string& name) const;
    Tensor tensor(const std::string& name, std::initializer_list<std::int64_t> dims);
    /// The weight of `parts`, each the tensor of its name.
    Weight weight(std::span<const std::string> names,
                  std::span<const Tensor> parts,
                  std::span<const Tensor> biases = {});

    Checkpoint* checkpoint_ = nullptr;  // null: dummy weights
    ModelConfig config_;
    Ops& ops_;
    LoadProgress progress_;
    std::vector<std::uint16_t> dummy_;  // bf16 values, as many as the largest matrix has
    std::size_t parameters_ = 0;
};

}  // namespace llmgen
