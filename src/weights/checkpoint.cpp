#include "weights/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/sha256.h"
#include "weights/json_file.h"

namespace llmgen {
namespace {

using weights::printable;
namespace fs = std::filesystem;

/// "a, b, c and 7 more".
std::string list_of(const std::vector<std::string>& names) {
    constexpr std::size_t kShown = 5;
    std::string text;
    for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i)
        text += (i ? ", " : "") + printable(names[i]);
    return names.size() > kShown ? fmt::format("{} and {} more", text, names.size() - kShown) : text;
}

/// Neither model.safetensors nor an index: says what there is instead.
[[noreturn]] void fail_without_weights(const fs::path& directory) {
    const auto there = [&](const char* name) { return weights::exists(directory / name); };
    if (there("pytorch_model.bin") || there("pytorch_model.bin.index.json"))
        fail("{}: holds PyTorch weights only; convert them to model.safetensors", directory.string());
    if (there("adapter_model.safetensors"))
        fail("{}: holds a LoRA adapter, not a model; merge it into its base model", directory.string());
    if (there("consolidated.safetensors"))
        fail(
            "{}: holds consolidated.safetensors only, in its maker's own layout; use the Hugging Face layout "
            "with "
            "model.safetensors",
            directory.string());
    fail("{}: no model.safetensors and no model.safetensors.index.json", directory.string());
}

/// A file of the index: a plain name in the same folder.
void check_shard_name(const std::string& name, const fs::path& index) {
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
        name.find('\\') != std::string::npos || name.find('\0') != std::string::npos)
        fail("{}: weight_map names '{}', which is no plain file name", index.string(), printable(name));
}

bool is_computed_anyway(std::string_view name) { return name.ends_with("rotary_emb.inv_freq"); }

}  // namespace

Checkpoint Checkpoint::open(const fs::path& directory,
                            std::span<const std::string> known,
                            FileAccess access) {
    if (!weights::is_folder(directory)) fail("{}: no such directory", directory.string());
    if (!weights::exists(directory / "config.json"))
        fail("{}: no config.json; is this a checkpoint in the Hugging Face layout?", directory.string());
    Checkpoint checkpoint;
    checkpoint.directory_ = directory;
    checkpoint.config_ = ModelConfig::load(directory, known);
    checkpoint.generation_ = GenerationDefaults::load(directory, checkpoint.config_.vocab_size);

    const fs::path index = directory / "model.safetensors.index.json";
    if (weights::exists(index)) {
        checkpoint.add_by_index(index, access);
    } else if (weights::exists(directory / "model.safetensors")) {
        checkpoint.open_files({"model.safetensors"}, access);
        for (const TensorInfo& info : checkpoint.files_[0].tensors())
            checkpoint.entries_.emplace(info.name, Entry{info, 0, false});
    } else {
        fail_without_weights(directory);
    }
    checkpoint.refuse_quantized();
    return checkpoint;
}

void Checkpoint::open_files(const std::vector<std::string>& files, FileAccess access) {
    std::vector<std::string> missing;
    for (const std::string& name : files)
        if (!weights::exists(directory_ / name)) missing.push_back(name);
    if (!missing.empty())
        fail("{}: {} of {} shards missing: {}; download them", directory_.string(), missing.size(),
             files.size(), list_of(missing));
    for (const std::string& name : files) files_.emplace_back(directory_ / name, access);
}

// The index decides per tensor: a name is read from its own file only, whatever the other files hold.
void Checkpoint::add_by_index(const fs::path& index, FileAccess access) {
    const nlohmann::json document =
        weights::parse_json_object(weights::read_json_text(index), index.string());
    const nlohmann::json* map = weights::JsonObject(document, index.string()).find("weight_map");
    if (!map || !map->is_object() || map->empty()) fail("{}: no weight_map", index.string());
    std::set<std::string> names;
    for (const auto& [tensor, file] : map->items()) {
        if (!file.is_string())
            fail("{}: weight_map of {} is no file name", index.string(), printable(tensor));
        check_shard_name(file.get<std::string>(), index);
        names.insert(file.get<std::string>());
    }
    const std::vector<std::string> files(names.begin(), names.end());
    open_files(files, access);

    std::vector<std::string> unlisted;
    for (std::size_t file = 0; file < files.size(); ++file)
        for (const TensorInfo& info : files_[file].tensors()) {
            const auto mapped = map->find(info.name);
            if (mapped == map->end())
                unlisted.push_back(info.name);
            else if (*mapped == files[file])
                entries_.emplace(info.name, Entry{info, file, false});
        }
    std::vector<std::string> missing;
    for (const auto& [tensor, file] : map->items())
        if (!entries_.contains(tensor)) missing.push_back(tensor + " in " + file.get<std::string>());
    if (!missing.empty())
        fail("{}: {} tensors are not in the file that it names: {}", index.string(), missing.size(),
             list_of(missing));
    if (!unlisted.empty())
        warnings_.push_back(
            fmt::format("{}: doesn't list {} tensors that its files hold, which are ignored: {}",
                        index.string(), unlisted.size(), list_of(unlisted)));
}

void Checkpoint::refuse_quantized() const {
    if (config_.quantization.empty()) return;
    std::set<std::string> types;
    for (const auto& [name, entry] : entries_)
        if (!entry.info.dtype()) types.insert(printable(entry.info.type));
    fail("{}: quantized with {}{}, which is not supported yet; use the unquantized checkpoint",
         (directory_ / "config.json").string(), printable(config_.quantization),
         types.empty() ? "" : fmt::format(" (tensors of {})", fmt::join(types, ", ")));
}

std::vector<int> Checkpoint::eos_token_ids() const {
    std::set<int> ids(config_.eos_token_ids.begin(), config_.eos_token_ids.end());
    ids.insert(generation_.eos_token_ids.begin(), generation_.eos_token_ids.end());
    return {ids.begin(), ids.end()};
}

std::vector<std::string> Checkpoint::warnings() const {
    std::vector<std::string> all = config_.warnings;
    all.insert(all.end(), generation_.warnings.begin(), generation_.warnings.end());
    all.insert(all.end(), warnings_.begin(), warnings_.end());
    return all;
}

std::vector<std::string> Checkpoint::names() const {
    std::vector<std::string> names;
    for (const auto& [name, entry] : entries_) names.push_back(name);
    return names;
}

const Checkpoint::Entry& Checkpoint::entry(std::string_view name) const {
    const auto found = entries_.find(name);
    if (found == entries_.end())
        fail("{}: the checkpoint has no tensor {}, which {} needs", directory_.string(), printable(name),
             config_.architecture);
    return found->second;
}

Checkpoint::Entry& Checkpoint::entry(std::string_view name) {
    return const_cast<Entry&>(std::as_const(*this).entry(name));
}

Tensor Checkpoint::tensor(std::string_view name) {
    Entry& found = entry(name);
    const TensorInfo& info = found.info;
    const fs::path& file = files_[found.file].path();
    const auto dtype = info.dtype();
    if (!dtype)
        fail("{}: tensor {} is {}, a type that is not supported; F32, F16 and BF16 are", file.string(),
             printable(name), describe(info));
    if (info.shape.size() > std::size_t(Tensor::kMaxRank))
        fail("{}: tensor {} is {}, of more than {} axes", file.string(), printable(name), describe(info),
             Tensor::kMaxRank);
    Tensor view;
    view.dtype = *dtype;
    view.rank = int(info.shape.size());
    std::int64_t step = 1;
    for (std::size_t axis = info.shape.size(); axis-- > 0;) {
        // Past the checks only a tensor without values can have an axis this long.
        if (info.shape[axis] > std::uint64_t(std::numeric_limits<std::int32_t>::max()))
            fail("{}: tensor {} is {}, too long", file.string(), printable(name), describe(info));
        view.shape[axis] = std::int64_t(info.shape[axis]);
        view.stride[axis] = step;
        step *= std::max<std::int64_t>(view.shape[axis], 1);
    }
    view.data = aligned(found);
    found.consumed = true;
    return view;
}

Tensor Checkpoint::tensor(std::string_view name, std::initializer_list<std::int64_t> dims) {
    const TensorInfo& found = info(name);
    const bool equal = std::equal(dims.begin(), dims.end(), found.shape.begin(), found.shape.end(),
                                  [](std::int64_t a, std::uint64_t b) { return std::uint64_t(a) == b; });
    if (!equal)
        fail("{}: tensor {} is {}, config.json says [{}]", files_[entry(name).file].path().string(),
             printable(name), describe(found), fmt::join(dims, ", "));
    return tensor(name);
}

/// The format promises no alignment, so f32 data may lie at any byte.
void* Checkpoint::aligned(Entry& entry) {
    const auto data = files_[entry.file].data(entry.info);
    const auto address = reinterpret_cast<std::uintptr_t>(data.data());
    // Never written through: Tensor has one kind of pointer, and the mapping is read-only.
    if (address % size_of(*entry.info.dtype()) == 0) return const_cast<std::byte*>(data.data());
    if (entry.copy.empty()) {
        entry.copy.resize(data.size() / sizeof(std::uint64_t) + 1);
        std::memcpy(entry.copy.data(), data.data(), data.size());
    }
    return entry.copy.data();
}

void Checkpoint::require(std::span<const std::string> names) const {
    std::vector<std::string> missing;
    for (const std::string& name : names)
        if (!has(name)) missing.push_back(name);
    if (!missing.empty())
        fail("{}: {} tensors that {} needs are missing: {}", directory_.string(), missing.size(),
             config_.architecture, list_of(missing));
}

void Checkpoint::skip(std::string_view name) { entry(name).consumed = true; }

void Checkpoint::check_all_consumed() const {
    std::vector<std::string> left;
    for (const auto& [name, entry] : entries_)
        if (!entry.consumed && !is_computed_anyway(name)) left.push_back(name);
    if (!left.empty())
        fail("{}: {} tensors have no place in {} as config.json describes it: {}", directory_.string(),
             left.size(), config_.architecture, list_of(left));
}

void Checkpoint::drop(std::string_view name) const {
    const Entry& found = entry(name);
    files_[found.file].drop(found.info);
}

std::shared_ptr<const void> Checkpoint::hold(std::string_view name) const {
    const Entry& found = entry(name);
    return found.copy.empty() ? files_[found.file].hold(found.info) : nullptr;
}

Checkpoint::Embeddings Checkpoint::embeddings(const std::string& input, const std::string& output) {
    const bool has_input = has(input), has_output = has(output);
    if (!config_.tie_word_embeddings) {
        if (!has_output && has_input)
            fail(
                "{}: no tensor {}, and config.json doesn't say tie_word_embeddings: the output projection is "
                "missing",
                directory_.string(), output);
        require(std::vector<std::string>{input, output});
        return {input, output};
    }
    if (!has_input && !has_output) require(std::vector<std::string>{input});
    if (!has_output) return {input, input};
    if (!has_input) return {output, output};
    const Entry &a = entry(input), &b = entry(output);
    const auto bytes = [&](const Entry& entry) { return files_[entry.file].data(entry.info); };
    const auto one = bytes(a), two = bytes(b);
    if (a.info.type == b.info.type && a.info.shape == b.info.shape &&
        std::equal(one.begin(), one.end(), two.begin(), two.end())) {
        skip(output);
        return {input, input};
    }
    warnings_.push_back(
        fmt::format("{}: tie_word_embeddings, but {} is stored and differs from {}: it is used",
                    directory_.string(), output, input));
    return {input, output};
}

std::int64_t Checkpoint::n_parameters() const {
    std::uint64_t total = 0;
    for (const auto& [name, entry] : entries_) {
        if (is_computed_anyway(name)) continue;
        std::uint64_t count = 1;
        for (const std::uint64_t dim : entry.info.shape) count *= dim;
        total += count;
    }
    return std::int64_t(total);
}

std::uint64_t Checkpoint::total_bytes() const {
    std::uint64_t total = 0;
    for (const auto& [name, entry] : entries_) total += entry.info.bytes();
    return total;
}

std::string Checkpoint::sha256() const {
    Sha256 hash;
    for (const SafetensorsFile& file : files_)
        hash.update(fmt::format("{} {}\n", file.path().filename().string(), file.size()))
            .update(file.header());
    return hash.hex();
}

std::string Checkpoint::sha256_full() const {
    Sha256 hash;
    for (const SafetensorsFile& file : files_) {
        hash.update(fmt::format("{} {}\n", file.path().filename().string(), file.size()))
            .update(file.header());
        for (const TensorInfo& info : file.tensors()) {  // which lie without gaps
            hash.update(file.data(info));
            file.drop(info);
        }
    }
    return hash.hex();
}

}  // namespace llmgen
