// Memory of the CPU backend: pages from the kernel, touched when used; and the arena that weights share so
// that they stand on huge pages without each wasting the rest of one.
#pragma once

#include <cstddef>
#include <memory>

#include "ops/ops.h"

namespace llmgen::cpu {

/// 64-byte aligned at least. Throws Error naming `what` with the bytes needed, free and in total.
std::unique_ptr<Buffer> allocate_buffer(std::size_t bytes, const char* what);

struct MemoryStatus {
    std::size_t total = 0;
    std::size_t available = 0;
};
/// What this process may use: the machine's memory or its cgroup's limit, whichever is less.
MemoryStatus memory_status();

/// Chunks of memory on huge pages where the kernel gives them; freed with the last piece.
class Arena {
public:
    struct Piece {
        std::shared_ptr<const void> owner;
        void* data = nullptr;
    };
    /// Large pieces have their pages made by all threads: the kernel clears a huge page in one thread while
    /// the others that write to it wait, and that is most of what loading costs.
    Piece allocate(std::size_t bytes, int threads = 1);

private:
    void make_pages(std::size_t bytes, int threads);

    std::shared_ptr<void> chunk_;
    std::byte* next_ = nullptr;
    std::byte* made_ = nullptr;  // up to here make_pages has been
    std::size_t left_ = 0;
};

}  // namespace llmgen::cpu
