#include "base/mmap.h"

#include <fcntl.h>
#include <poll.h>
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
    // O_NONBLOCK: to open a named pipe that nobody writes to would wait for ever; so it is an empty file.
    explicit Descriptor(const std::filesystem::path& path)
        : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
        if (fd < 0) fail("{}: {}", path.string(), std::strerror(errno));
    }
    ~Descriptor() {
        if (fd >= 0) ::close(fd);
    }
    Descriptor(const Descriptor&) = delete;
};

std::size_t size_of_file(const Descriptor& file, const std::filesystem::path& path) {
    struct stat status {};
    if (::fstat(file.fd, &status) != 0) fail("{}: {}", path.string(), std::strerror(errno));
    if (S_ISDIR(status.st_mode)) fail("{}: is a directory, not a file", path.string());
    if (!S_ISREG(status.st_mode)) fail("{}: is a pipe or a device, not a file", path.string());
    return std::size_t(status.st_size);
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path, FileAccess access) : path_(path) {
    Descriptor file(path);
    size_ = size_of_file(file, path);
    if (size_ == 0) return;
    void* data = access == FileAccess::map ? ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0)
                                           : ::mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) fail("{}: can't map {} bytes: {}", path.string(), size_, std::strerror(errno));
    data_ = static_cast<const std::byte*>(data);
    if (access == FileAccess::read) fd_ = std::exchange(file.fd, -1);
}

MappedFile::~MappedFile() {
    if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
    if (fd_ >= 0) ::close(fd_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      fd_(std::exchange(other.fd_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(fd_, other.fd_);
    return *this;
}

void MappedFile::fetch(std::size_t offset, std::size_t size) const {
    if (fd_ < 0) return;
    char* to = reinterpret_cast<char*>(const_cast<std::byte*>(data_)) + offset;
    while (size > 0) {
        const ssize_t n = ::pread(fd_, to, size, off_t(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail("{}: {}", path_.string(), std::strerror(errno));
        if (n == 0) fail("{}: the file got shorter while it was read", path_.string());
        to += n;
        offset += std::size_t(n);
        size -= std::size_t(n);
    }
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
            if (errno == EAGAIN) {  // a pipe whose writer isn't ready
                pollfd p{file.fd, POLLIN, 0};
                ::poll(&p, 1, -1);
                continue;
            }
            fail("{}: {}", path.string(), std::strerror(errno));
        }
        if (n == 0) return text;
        text.append(block.data(), std::size_t(n));
        if (text.size() > limit)
            fail("{}: larger than {} bytes, which no file of this kind should be", path.string(), limit);
    }
}

}  // namespace llmgen
