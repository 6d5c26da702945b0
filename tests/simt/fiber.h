// One cooperative thread of execution: a stack and a saved stack pointer. A CUDA thread of the emulator is
// one fiber; switching costs some ten nanoseconds on x86-64 (own code), a few hundred elsewhere (ucontext).
//
// Traps met: AddressSanitizer must be told of each switch, and a stack that is reused carries the poison of
// the frames that were abandoned on it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace llmgen::simt {

/// Stacks are expensive to map, so they are kept for the next block.
class StackPool {
public:
    static constexpr std::size_t kStackBytes = 128 << 10;
    StackPool() = default;
    StackPool(const StackPool&) = delete;
    StackPool& operator=(const StackPool&) = delete;
    ~StackPool();
    char* take();
    void give(char* stack) { free_.push_back(stack); }

private:
    std::vector<char*> free_;
};

class Fiber {
public:
    /// Will call `entry(argument)` on first entry; `entry` must end with leave(true) and never return.
    void prepare(char* stack, void (*entry)(void*), void* argument);
    /// Takes AddressSanitizer's marks off the stack of a fiber that was abandoned in the middle.
    static void wipe(char* stack);
    /// From the host: runs the fiber until it leaves.
    void enter();
    /// From the fiber: back to the host. `last` when the fiber won't be entered again.
    void leave(bool last);
    /// First statement of `entry`.
    void arrived();
    char* stack() const { return stack_; }

private:
    static void trampoline();

    char* stack_ = nullptr;
    void (*entry_)(void*) = nullptr;
    void* argument_ = nullptr;
    void* self_ = nullptr;  // saved stack pointer, or the ucontext pair
    void* host_ = nullptr;
    void* fake_stack_ = nullptr;  // AddressSanitizer's
    void* host_fake_stack_ = nullptr;
    const void* host_bottom_ = nullptr;
    std::size_t host_size_ = 0;
};

}  // namespace llmgen::simt
