#include "base/mmap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace llmgen {
namespace {

struct Descriptor {
    int fd;
    explicit Descriptor(const std::filesystem::path& path) : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
        if (fd < 0) fail("{}: {}", path.string(), std::strerror(errno));
    }
    ~Descriptor() { ::close(fd); }
    Descriptor(const Descriptor&) = delete;
};

std::size_t size_of_file(const Descriptor& file, const std::filesystem::path& path) {
    struct stat status {};
    if (::fstat(file.fd, &status) != 0) fail("{}: {}", path.string(), std::strerror(errno));
    if (S_ISDIR(status.st_mode)) fail("{}: is a directory, not a file", path.string());
    return std::size_t(status.st_size);
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
    const Descriptor file(path);
    size_ = size_of_file(file, path);
    if (size_ == 0) return;
    void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (data == MAP_FAILED) fail("{}: can't map {} bytes: {}", path.string(), size_, std::strerror(errno));
    data_ = static_cast<const std::byte*>(data);
}

MappedFile::~MappedFile() {
    if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

void MappedFile::drop(std::size_t offset, std::size_t size) const {
    const auto page = std::size_t(::sysconf(_SC_PAGESIZE));
    const std::size_t first = (offset + page - 1) / page * page;
    const std::size_t last = (offset + size) / page * page;
    if (data_ && first < last && last <= size_)
        ::madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

std::string read_file(const std::filesystem::path& path, std::size_t limit) {
    const Descriptor file(path);
    std::string text;
    std::string block(std::size_t(1) << 16, '\0');
    for (;;) {  // by blocks, not by size: works for pipes too
        const ssize_t n = ::read(file.fd, block.data(), block.size());
        if (n < 0) {
            if (errno == EINTR) continue;
            fail("{}: {}", path.string(), std::strerror(errno));
        }
        if (n == 0) return text;
        text.append(block.data(), std::size_t(n));
        if (text.size() > limit)
            fail("{}: larger than {} bytes, which no file of this kind should be", path.string(), limit);
    }
}

}  // namespace llmgen
