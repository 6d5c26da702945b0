// One safetensors file, mapped or read tensor by tensor.
//
//   | 8 bytes: N, little-endian | N bytes: JSON header, padded with spaces | data |
//   header: {"name": {"dtype": "BF16", "shape": [3, 4], "data_offsets": [begin, end]}, …,
//            "__metadata__": {"key": "text", …}}
//
// What the format demands, and each breach its own message (checked before anything is allocated that the
// header's numbers could make large):
//   N ≤ 100,000,000 and 8 + N ≤ size of the file; the header begins with '{' and is JSON without trailing
//   text, without a name twice, with exactly the three keys per tensor
//   begin ≤ end, end − begin = product of the shape × size of the type, all in unsigned 64 bits without wrap
//   sorted by begin, the tensors cover the data without overlap, gap or rest
//   an element type that isn't known here counts as an error when the tensor is needed, not before: its
//   offsets are checked all the same
// Empty tensors (a 0 in the shape) and scalars (shape []) are fine, and the header may list in any order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/mmap.h"

namespace llmgen {

struct TensorInfo {
    std::string name;
    std::string type;                  // as the file says: "BF16", "F8_E4M3", …
    std::vector<std::uint64_t> shape;  // [] is a scalar
    std::uint64_t begin = 0, end = 0;  // within the data

    std::uint64_t bytes() const { return end - begin; }
    /// The type, where it can be computed with.
    std::optional<DType> dtype() const;
};

/// "[3, 576] BF16", for messages.
std::string describe(const TensorInfo& info);

/// The tensors of a file of `file_size` bytes of which `front` is the beginning: at least 8 + N bytes of it,
/// or all. Throws Error, each text beginning with `origin`.
std::vector<TensorInfo> parse_safetensors(std::string_view front,
                                          std::uint64_t file_size,
                                          const std::string& origin);

class SafetensorsFile {
public:
    explicit SafetensorsFile(const std::filesystem::path& path, FileAccess access = FileAccess::map);

    const std::filesystem::path& path() const { return file_->path(); }
    const std::vector<TensorInfo>& tensors() const { return tensors_; }  // ascending by begin
    std::span<const std::byte> header() const;                           // with the 8 bytes of N
    std::uint64_t size() const { return file_->bytes().size(); }
    /// Where the file isn't mapped, this reads the tensor, and drop() gives its memory back.
    std::span<const std::byte> data(const TensorInfo& info) const;
    void drop(const TensorInfo& info) const;
    /// Keeps data(info) in place, longer than this object if need be, and drops it at the end; null where the
    /// file isn't mapped.
    std::shared_ptr<const void> hold(const TensorInfo& info) const;

private:
    std::shared_ptr<const MappedFile> file_;
    std::vector<TensorInfo> tensors_;
    std::uint64_t header_size_ = 0;  // 8 + N
};

}  // namespace llmgen
