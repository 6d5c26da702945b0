// A checkpoint directory, opened for reading: config.json, generation_config.json and the tensors of
// model.safetensors, or of the shards that model.safetensors.index.json names.
//
//   Checkpoint checkpoint = Checkpoint::open(directory, known);
//   layer.output = checkpoint.tensor("model.layers.0.self_attn.o_proj.weight", {hidden_size, q_size});
//   …
//   checkpoint.check_all_consumed();   // what nobody asked for is an error: biases have been lost that way
//
// Files are mapped, not read (but for FileAccess::read: then tensor() reads). Views stay valid as long as the
// Checkpoint lives (moving it is fine).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"
#include "weights/config.h"
#include "weights/safetensors.h"

namespace llmgen {

class Checkpoint {
public:
    /// Checks everything that can be known before a tensor is read. Throws Error: a missing file or shard, a
    /// file that breaks a rule of the format, a quantized checkpoint, an architecture not in `known` (where
    /// given).
    static Checkpoint open(const std::filesystem::path& directory,
                           std::span<const std::string> known = {},
                           FileAccess access = FileAccess::map);

    const std::filesystem::path& directory() const { return directory_; }
    const ModelConfig& config() const { return config_; }
    const GenerationDefaults& generation() const { return generation_; }
    /// The ends of sequence that generation_config.json or config.json name, ascending. The tokenizer may
    /// know one more.
    std::vector<int> eos_token_ids() const;
    /// Lines for the user: what the config's files and the loading found odd.
    std::vector<std::string> warnings() const;

    bool has(std::string_view name) const { return entries_.contains(name); }
    std::vector<std::string> names() const;  // ascending
    /// Throws Error where there's no such tensor. Doesn't mark it as consumed.
    const TensorInfo& info(std::string_view name) const { return entry(name).info; }

    /// A read-only view of host memory, marked as consumed. A tensor that is missing, has another shape or a
    /// type that can't be computed with (not F32, F16, BF16) is an Error that names it, its shape and the
    /// config's. Data that isn't aligned for its type is copied once.
    Tensor tensor(std::string_view name, std::initializer_list<std::int64_t> dims);
    /// As above, of any shape (rank 4 at most).
    Tensor tensor(std::string_view name);
    /// One Error for all of `names` that are missing.
    void require(std::span<const std::string> names) const;
    /// Consumed without being read.
    void skip(std::string_view name);
    /// Throws Error listing what is left, but for `*.rotary_emb.inv_freq`, which old files carry and which is
    /// computed anyway, and for what the tied-embedding rule allows.
    void check_all_consumed() const;
    /// Lets go of the pages of a tensor that has been copied elsewhere. Its view reads the file again where
    /// that is mapped, and is not to be used any more where it isn't; tensor() gives a new one.
    void drop(std::string_view name) const;
    /// Keeps the view that tensor(name) gave, longer than this object if need be, and drops the tensor at the
    /// end. Null where the view is of memory that isn't the mapped file's: then it ends with this object.
    std::shared_ptr<const void> hold(std::string_view name) const;

    /// The tied-embedding rule, as transformers 5 has it. Names of the tensors to use as embedding and output
    /// projection (the same name where they're one), both [vocab_size, hidden_size]:
    ///   tied, only the embedding stored   both from it
    ///   tied, only lm_head stored         both from it
    ///   tied, both stored                 each its own where they differ (a warning), else the embedding
    ///   not tied                          each its own; a missing one is an Error
    struct Embeddings {
        std::string input, output;
    };
    Embeddings embeddings(const std::string& input = "model.embed_tokens.weight",
                          const std::string& output = "lm_head.weight");

    std::int64_t n_parameters() const;
    std::uint64_t total_bytes() const;  // of all tensors
    /// Over each file's name, header and size, in order of name: cheap, and it changes with any tensor's
    /// name, type, shape or place, but not with its values.
    std::string sha256() const;
    /// Over each file's name and all its bytes.
    std::string sha256_full() const;

private:
    struct Entry {
        TensorInfo info;
        std::size_t file = 0;
        bool consumed = false;
        std::vector<std::uint64_t> copy = {};  // of data that isn't aligned for its type
    };

    const Entry& entry(std::string_view name) const;
    Entry& entry(std::string_view name);
    void* aligned(Entry& entry);
    void open_files(const std::vector<std::string>& files, FileAccess access);
    void add_by_index(const std::filesystem::path& index, FileAccess access);
    void refuse_quantized() const;

    std::filesystem::path directory_;
    ModelConfig config_;
    GenerationDefaults generation_;
    std::vector<std::string> warnings_;
    std::vector<SafetensorsFile> files_;  // ascending by name
    std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace llmgen
