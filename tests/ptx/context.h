// What the rules execute on: one thread's registers, and the memory it may touch.
#pragma once

#include <bit>
#include <cstring>
#include <map>
#include <type_traits>

#include "ptx/handover.h"
#include "ptx/kernel.h"
#include "simt/device_memory.h"

namespace llmgen::ptx {

/// Whether a byte of shared memory may be read.
enum class Byte : std::uint8_t { outside, undefined, defined, in_flight };

/// Who touched two bytes of shared memory last, to find accesses that no barrier orders. A block barrier
/// orders all threads, bar.warp.sync those of a warp; a shuffle orders nothing.
struct Touch {
    std::int16_t writer = -1, reader = -1;  // thread; for readers of one warp kSeveral + warp, of more kMany
    bool atomic = false;
    std::int32_t write_barrier = 0, write_warp = 0, read_barrier = 0, read_warp = 0;
    static constexpr std::int16_t kSeveral = 2000, kMany = 3000;
};

class Profile;

/// Which bytes of an array the launch has read as never changing (ld.global.nc) and which it has written,
/// each by the index of the instruction plus one. The hardware may keep what it read so in a cache that no
/// write reaches.
struct ReadOnlyMarks {
    std::vector<std::uint32_t> reader, writer;
};

/// One launch of a kernel.
struct Running {
    Kernel* kernel = nullptr;
    std::vector<char> parameters;
    std::vector<const simt::Region*> regions;  // that each op found last
    std::uint64_t memory_version = 0;
    bool perturb = false;  // approximate instructions err as far as they may
    std::map<std::uintptr_t, ReadOnlyMarks>
        read_only;        // by where the array begins; only if the kernel reads so
    Handovers handovers;  // only if its blocks meet
    Profile* profile = nullptr;
};

/// What a block keeps beside the emulator's own state.
struct BlockState {
    std::vector<std::uint64_t> registers;
    std::vector<std::uint8_t> undefined;
    std::vector<Byte> bytes;  // of the shared window
    std::vector<Touch> touches;
    std::vector<char> local;
    std::vector<Byte> local_bytes;
    std::vector<std::int64_t> shared_offsets;  // of Kernel::shared
};

struct Context {
    Running* launch;
    Kernel* kernel;
    BlockState* block;
    simt::Machine* machine;
    simt::Thread* thread;
    std::uint64_t* R;
    std::uint8_t* U;
    char* shared;
    char* local;
    Byte* local_bytes;
    std::int32_t barrier = 0, warp_sync = 0;
    int block_index = 0;  // in the grid, x first

    Standing standing() const { return {block_index, thread->linear, barrier, warp_sync}; }
    [[noreturn]] void fault(const Op& op, const std::string& what) {
        machine->fault(kernel->place(op) + ": " + what);
    }
    template <typename T>
    T get(std::int32_t slot) const {
        if constexpr (std::is_same_v<T, float>)
            return std::bit_cast<float>(std::uint32_t(R[slot]));
        else if constexpr (std::is_same_v<T, double>)
            return std::bit_cast<double>(R[slot]);
        else
            return T(R[slot]);
    }
    template <typename T>
    void set(std::int32_t slot, T value) {
        if constexpr (std::is_same_v<T, float>)
            R[slot] = std::bit_cast<std::uint32_t>(value);
        else if constexpr (std::is_same_v<T, double>)
            R[slot] = std::bit_cast<std::uint64_t>(value);
        else
            R[slot] = std::uint64_t(std::make_unsigned_t<T>(value));
    }
    void want_defined(const Op& op, std::int32_t slot, const char* what) {
        if (U[slot] != 0) [[unlikely]]
            fault(op, std::string(what) + " comes from a register or memory that nobody has set");
    }

    // Memory: each checks bounds and alignment. `undefined` is set where some byte was never written.
    const char* read(const Op& op, std::uint64_t address, int bytes, std::uint8_t& undefined);
    const char* read_global(const Op& op, std::uint64_t address, int bytes, std::uint8_t& undefined);
    char* write_global(const Op& op, std::uint64_t address, int bytes);
    const char* read_shared(const Op& op, std::uint64_t address, int bytes, std::uint8_t& undefined);
    char* write_shared(const Op& op, std::uint64_t address, int bytes, bool undefined, bool atomic = false);
    const char* read_local(const Op& op, std::uint64_t address, int bytes, std::uint8_t& undefined);
    char* write_local(const Op& op, std::uint64_t address, int bytes, bool undefined);
    char* write(const Op& op, std::uint64_t address, int bytes, bool undefined);
    void check_handover(const Op& op, const simt::Region& region, std::uint64_t address, int bytes);
    void mark_read_only(const Op& op, std::uint64_t address, int bytes);
    void mark_written(const Op& op, const simt::Region& region, std::uint64_t address, int bytes);
    void check_shared(const Op& op, std::uint64_t address, int bytes);
    void touch(const Op& op, std::uint64_t address, int bytes, bool writes, bool atomic);
};

/// Runs the current fiber's thread of `launch` from its entry to its end.
void run_thread(Running& launch);

}  // namespace llmgen::ptx
