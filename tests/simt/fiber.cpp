#include "simt/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#endif
#ifdef SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if !defined(__x86_64__) || defined(SIMT_UCONTEXT)
#include <ucontext.h>
#define SIMT_USE_UCONTEXT 1
#else
// Saves the callee-saved registers on the old stack, changes stacks, restores them from the new one.
extern "C" void llmgen_simt_switch(void** save, void* load);
asm(R"(
.text
.globl llmgen_simt_switch
.type llmgen_simt_switch,@function
llmgen_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size llmgen_simt_switch,.-llmgen_simt_switch
)");
#endif

namespace llmgen::simt {

namespace {
thread_local Fiber* entering = nullptr;  // what the trampoline can't be given as an argument

std::size_t guard_bytes() { return std::size_t(sysconf(_SC_PAGESIZE)); }
}  // namespace

StackPool::~StackPool() {
    for (char* stack : free_) munmap(stack - guard_bytes(), kStackBytes + guard_bytes());
}

char* StackPool::take() {
    if (!free_.empty()) {
        char* stack = free_.back();
        free_.pop_back();
        return stack;
    }
    void* map = mmap(nullptr, kStackBytes + guard_bytes(), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(map != MAP_FAILED, "no memory for a fiber's stack");
    CHECK(mprotect(map, guard_bytes(), PROT_NONE) ==
          0);  // an overflow faults instead of eating the neighbour
    return static_cast<char*>(map) + guard_bytes();
}

void Fiber::trampoline() {
    Fiber* fiber = entering;
    fiber->arrived();
    fiber->entry_(fiber->argument_);
    std::abort();  // entry never returns
}

void Fiber::arrived() {
#ifdef SIMT_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &host_bottom_, &host_size_);
#endif
}

#ifdef SIMT_USE_UCONTEXT
namespace {
struct Contexts {
    ucontext_t self, host;
};
}  // namespace
#endif

void Fiber::prepare(char* stack, void (*entry)(void*), void* argument) {
    stack_ = stack;
    entry_ = entry;
    argument_ = argument;
    fake_stack_ = nullptr;
#ifdef SIMT_ASAN
    // What a fiber that came to its end leaves marked: the frames of trampoline and entry. Wiping all 128 KiB
    // for each thread of each block would cost more than running it.
    constexpr std::size_t kLastFrames = 8 << 10;
    __asan_unpoison_memory_region(stack + StackPool::kStackBytes - kLastFrames, kLastFrames);
#endif
#ifdef SIMT_USE_UCONTEXT
    auto* contexts = new (stack) Contexts;  // at the far end of the stack, which grows towards it
    getcontext(&contexts->self);
    contexts->self.uc_stack.ss_sp = stack + sizeof(Contexts);
    contexts->self.uc_stack.ss_size = StackPool::kStackBytes - sizeof(Contexts);
    contexts->self.uc_link = nullptr;
    makecontext(&contexts->self, &Fiber::trampoline, 0);
    self_ = contexts;
#else
    auto* top = reinterpret_cast<std::uint64_t*>(stack + StackPool::kStackBytes - 64);
    *--top = 0;  // the return address of a function that never returns; keeps the ABI's alignment
    *--top = reinterpret_cast<std::uint64_t>(&Fiber::trampoline);
    for (int i = 0; i < 6; ++i) *--top = 0;  // what the switch pops
    self_ = top;
#endif
}

void Fiber::wipe([[maybe_unused]] char* stack) {
#ifdef SIMT_ASAN
    __asan_unpoison_memory_region(stack, StackPool::kStackBytes);
#endif
}

void Fiber::enter() {
    entering = this;
#ifdef SIMT_ASAN
    __sanitizer_start_switch_fiber(&host_fake_stack_, stack_, StackPool::kStackBytes);
#endif
#ifdef SIMT_USE_UCONTEXT
    auto* contexts = static_cast<Contexts*>(self_);
    swapcontext(&contexts->host, &contexts->self);
#else
    llmgen_simt_switch(&host_, self_);
#endif
#ifdef SIMT_ASAN
    __sanitizer_finish_switch_fiber(host_fake_stack_, nullptr, nullptr);
#endif
}

void Fiber::leave([[maybe_unused]] bool last) {
#ifdef SIMT_ASAN
    __sanitizer_start_switch_fiber(last ? nullptr : &fake_stack_, host_bottom_, host_size_);
#endif
#ifdef SIMT_USE_UCONTEXT
    auto* contexts = static_cast<Contexts*>(self_);
    swapcontext(&contexts->self, &contexts->host);
#else
    llmgen_simt_switch(&self_, host_);
#endif
#ifdef SIMT_ASAN
    __sanitizer_finish_switch_fiber(fake_stack_, &host_bottom_, &host_size_);
#endif
}

}  // namespace llmgen::simt
