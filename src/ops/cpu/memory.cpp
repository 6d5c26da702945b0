#include "ops/cpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include "base/error.h"

namespace llmgen::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t(2) << 20;
constexpr std::size_t kChunk = std::size_t(32) << 20;
constexpr std::size_t kAlign = 128;

// Buffers of this size are pools, which fill from the front: keys and values, rows of logits. From here on
// the part of a huge page that stays empty is nothing.
constexpr std::size_t kHugeBuffer = std::size_t(64) << 20;

// Asking the kernel what is left takes 60 us, and a model has hundreds of vectors.
constexpr std::size_t kCheckedBuffer = std::size_t(1) << 20;

std::size_t round_up(std::size_t n, std::size_t step) { return (n + step - 1) / step * step; }

void* next_border(void* p) {
    return reinterpret_cast<void*>(round_up(reinterpret_cast<std::uintptr_t>(p), kHugePage));
}

class MappedBuffer final : public Buffer {
public:
    MappedBuffer(void* data, std::size_t bytes, void* base, std::size_t mapped)
        : base_(base), mapped_(mapped) {
        data_ = data;
        bytes_ = bytes;
    }
    ~MappedBuffer() override { munmap(base_, mapped_); }

private:
    void* base_;
    std::size_t mapped_;
};

[[noreturn]] void fail_memory(std::size_t bytes, const char* what, const MemoryStatus& status) {
    constexpr double kMiB = 1 << 20;
    fail(
        "{}: needs {:.0f} MiB of memory, {:.0f} of {:.0f} MiB are free; close other programs or use a "
        "smaller "
        "model or context",
        what, double(bytes) / kMiB, double(status.available) / kMiB, double(status.total) / kMiB);
}

/// The number in a one-line file; SIZE_MAX where there is none ("max").
std::size_t read_number(const char* path) {
    std::ifstream file(path);
    std::size_t value = 0;
    return file >> value ? value : SIZE_MAX;
}

}  // namespace

MemoryStatus memory_status() {
    MemoryStatus status;
    std::ifstream file("/proc/meminfo");
    std::string key, unit;
    std::size_t kib = 0;
    while (file >> key >> kib) {
        if (key == "MemTotal:") status.total = kib << 10;
        if (key == "MemAvailable:") status.available = kib << 10;
        std::getline(file, unit);
    }
    // A cgroup's use counts the page cache, which gives way; so only its limit is taken, not what is left.
    const std::size_t limit = std::min(read_number("/sys/fs/cgroup/memory.max"),
                                       read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
    status.total = std::min(status.total, limit);
    status.available = std::min(status.available, limit);
    return status;
}

std::unique_ptr<Buffer> allocate_buffer(std::size_t bytes, const char* what) {
    if (bytes >= kCheckedBuffer)
        if (const MemoryStatus status = memory_status(); bytes > status.available)
            fail_memory(bytes, what, status);
    const bool huge = bytes >= kHugeBuffer;
    const std::size_t mapped = round_up(std::max<std::size_t>(bytes, 1), 4096) + (huge ? kHugePage : 0);
    void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) fail_memory(bytes, what, memory_status());
    void* data = huge ? next_border(base) : base;
    if (huge) madvise(data, bytes, MADV_HUGEPAGE);
    return std::make_unique<MappedBuffer>(data, bytes, base, mapped);
}

/// From where the last call ended to the end of the next `bytes`, and a page a thread on top so that none is
/// idle. Where the kernel can't (before Linux 5.14), pages come when they are written.
void Arena::make_pages(std::size_t bytes, int threads) {
    const auto border = [](const std::byte* p) {
        return round_up(reinterpret_cast<std::uintptr_t>(p), kHugePage);
    };
    if (next_ + bytes <= made_) return;
    const std::size_t wanted = border(next_ + bytes) - reinterpret_cast<std::uintptr_t>(made_);
    const auto room = std::size_t(next_ + left_ - made_);
    const auto n_pages =
        std::int64_t(std::min(wanted + std::size_t(threads - 1) * kHugePage, room) / kHugePage);
    std::byte* first = made_;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (std::int64_t i = 0; i < n_pages; ++i)
        madvise(first + std::size_t(i) * kHugePage, kHugePage, MADV_POPULATE_WRITE);
    made_ += std::size_t(n_pages) * kHugePage;
}

Arena::Piece Arena::allocate(std::size_t bytes, int threads) {
    bytes = round_up(std::max<std::size_t>(bytes, 1), kAlign);
    if (bytes > left_) {
        const std::size_t size = round_up(std::max(bytes, kChunk), kHugePage);
        if (const MemoryStatus status = memory_status(); bytes > status.available)
            fail_memory(bytes, "weights", status);
        // One huge page more, so that the chunk can begin on a border; what is never touched costs nothing.
        const std::size_t mapped = size + kHugePage;
        void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base == MAP_FAILED) fail_memory(size, "weights", memory_status());
        chunk_ = std::shared_ptr<void>(base, [mapped](void* p) { munmap(p, mapped); });
        next_ = static_cast<std::byte*>(next_border(base));
        madvise(next_, size, MADV_HUGEPAGE);  // advice: where it is refused, ordinary pages serve
        left_ = size;
        made_ = next_;
    }
    if (threads > 1 && bytes >= kHugePage / 4) make_pages(bytes, threads);
    Piece piece{chunk_, next_};
    next_ += bytes;
    left_ -= bytes;
    return piece;
}

}  // namespace llmgen::cpu
