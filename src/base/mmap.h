// A file mapped read-only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace llmgen {

class MappedFile {
public:
    /// Throws Error naming the file and the reason. An empty file maps to an empty span.
    explicit MappedFile(const std::filesystem::path& path);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    MappedFile(const MappedFile&) = delete;

    std::span<const std::byte> bytes() const { return {data_, size_}; }
    const std::filesystem::path& path() const { return path_; }
    /// Tells the kernel that [offset, offset + size) won't be read again soon, so that resident memory falls.
    void drop(std::size_t offset, std::size_t size) const;

private:
    std::filesystem::path path_;
    const std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

/// The whole file as a string; throws Error naming it. `limit` bytes at most, an Error beyond.
std::string read_file(const std::filesystem::path& path, std::size_t limit = std::size_t(1) << 30);

}  // namespace llmgen
