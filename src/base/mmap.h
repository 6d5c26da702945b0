// A file's bytes at their offsets in memory: mapped read-only, or read piece by piece where asked for.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace llmgen {

/// How the bytes come to memory: by page faults on a mapping, or by read(2) into memory of our own, which is
/// many times faster on network disks and isn't counted twice where host and device share their memory.
enum class FileAccess { map, read };

class MappedFile {
public:
    /// Throws Error naming the file and the reason. An empty file maps to an empty span.
    explicit MappedFile(const std::filesystem::path& path, FileAccess access = FileAccess::map);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    MappedFile(const MappedFile&) = delete;

    std::span<const std::byte> bytes() const { return {data_, size_}; }
    const std::filesystem::path& path() const { return path_; }
    /// Whether bytes() are the file's own, which the kernel brings when they are looked at.
    bool mapped() const { return fd_ < 0; }
    /// Reads [offset, offset + size) where the file isn't mapped: bytes() is zero there before, and after
    /// drop(). Throws Error where the file got shorter or can't be read.
    void fetch(std::size_t offset, std::size_t size) const;
    /// Tells the kernel that [offset, offset + size) won't be read again soon, so that resident memory falls.
    void drop(std::size_t offset, std::size_t size) const;

private:
    std::filesystem::path path_;
    const std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    int fd_ = -1;  // open where the file is read
};

/// A deleter: keeps a file mapped for as long as a part of it is held, and drops the part then.
struct DropPart {
    std::shared_ptr<const MappedFile> file;
    std::size_t offset = 0, size = 0;
    void operator()(const void*) const { file->drop(offset, size); }
    /// A piece of it before that.
    void drop(std::size_t first, std::size_t bytes) const { file->drop(offset + first, bytes); }
};

/// The whole file as a string; throws Error naming it. `limit` bytes at most, an Error beyond.
std::string read_file(const std::filesystem::path& path, std::size_t limit = std::size_t(1) << 30);

}  // namespace llmgen
