// The emulated GPU: runs a kernel's own source on the CPU, each CUDA thread a fiber, and reports what a real
// card would hide.
//
//   grid ─► blocks (in the order of the config, a few resident at once) ─► warps ─► threads (fibers)
//
// A thread runs until it must wait: at a block barrier, at a warp collective whose other lanes have not come,
// at the grid dependency. The order in which runnable threads go on is the config's; a race that one order
// hides, another shows. What is checked without any order: divergent or abandoned barriers, collectives that
// a lane of the mask never reaches, shuffles from outside the mask, shared memory (poisoned before use, red
// zones between arrays), asynchronous copies (they land only at the wait), misaligned vector accesses,
// programmatic dependent launches that read too early or leave without waiting, deadlock.
//
// A finding is a Fault: thrown by launch() on the host, with the kernel, the block and who waits where.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "simt/fiber.h"

namespace llmgen::simt {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kFullMask = 0xffffffffu;

/// A place in a kernel's source; a default argument `Site site = Site::here()` names the caller's.
struct Site {
    const char* file = "";
    int line = 0;
    static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
    friend bool operator==(const Site&, const Site&) = default;
};

struct Fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Dim3 {
    unsigned x = 1, y = 1, z = 1;
    std::size_t count() const { return std::size_t(x) * y * z; }
};

enum class Order {
    forward,      // lanes and warps ascending, in step
    reverse,      // descending
    random,       // reshuffled at every pass, blocks too; three blocks resident
    warp_greedy,  // a warp runs on until it meets a block barrier
    late_warp,    // as warp_greedy, but one warp of each block runs only when nobody else can
};

struct Config {
    Order order = Order::forward;
    std::uint64_t seed = 1;
    int late_warp = 0;  // for Order::late_warp
    bool overlap =
        false;  // queue launches until synchronize(), and start dependent ones before their predecessor
    bool count_global = true;  // gather what each site moves; costs more than the loads themselves
    int overlap_depth = 3;     // how many launches may be under way at once
    int early_blocks = 4;      // how many blocks of a dependent launch start early
};

/// What a launch did, summed over its threads.
struct Counters {
    std::uint64_t barriers = 0;  // per block
    std::uint64_t collectives = 0;
    std::uint64_t mma = 0;
    std::uint64_t ldmatrix = 0;
    std::uint64_t ldmatrix_conflicts = 0;  // extra cycles from bank conflicts
    std::uint64_t async_bytes = 0;
    struct Access {
        std::uint64_t bytes = 0;
        std::uint64_t sectors = 0;  // of 32 bytes, one warp's request at a time
    };
    std::map<std::pair<std::string, int>, Access> global;            // by file and line of the load or store
    std::map<std::pair<std::string, int>, std::uint64_t> conflicts;  // by file and line of the ldmatrix
};

class Machine;
struct Block;

enum class Wait : std::uint8_t { ready, barrier, collective, dependency, done };

struct AsyncCopy {
    void* dst;
    const void* src;
    int bytes;  // the rest of the 16 is zeros
    int group;
    Site site;
};

struct Thread {
    Fiber fiber;
    Dim3 index;
    int linear = 0, lane = 0;
    Wait wait = Wait::ready;
    Site site;
    Block* block = nullptr;
    std::vector<AsyncCopy> copies;
    int copy_group = 0;
    bool waited_for_dependency = false;
    void* operand = nullptr;  // of the pending collective, on this thread's stack
};

/// Executes a collective over the lanes of `mask`: operands[lane] is what that lane passed.
using Collective = void (*)(void* const operands[kWarpSize], unsigned mask);

struct Pending {
    Collective op = nullptr;
    unsigned mask = 0, arrived = 0;
    Site site;
};

struct Warp {
    unsigned ready = 0;    // lanes that can go on
    unsigned present = 0;  // lanes that have not left
    std::vector<Pending> pending;
};

/// The bytes of a kernel's argument.
template <typename T>
std::vector<char> bytes_of(const T& value) {
    const char* first = reinterpret_cast<const char*>(&value);
    return {first, first + sizeof value};
}

struct Launch {
    std::string name;
    Dim3 grid, block;
    std::size_t dynamic_shared = 0;
    std::size_t granted_shared = 0;  // dynamic, as asked for before the launch; 0: nobody asked
    bool asked = false;              // the device was asked about the kernel
    bool dependent = false;
    std::function<void()> body;
    const void* kernel = nullptr;               // the kernel function
    std::vector<std::vector<char>> parameters;  // its arguments' bytes
    // While it runs:
    std::vector<std::size_t> order;
    std::size_t next = 0;
    std::vector<std::unique_ptr<Block>> resident;
    bool released = false;  // its predecessor has ended
};

/// The shared memory of one block: [dynamic][red zone][array][red zone]…, filled with NaN patterns.
class SharedMemory {
public:
    /// Of a block: on the smallest card since sm_80, and without asking.
    static constexpr std::size_t kCapacity = 99 << 10, kUnasked = 48 << 10, kRedZone = 64;
    static constexpr std::size_t kAllocation = 512 << 10;
    /// `memory`: kAllocation bytes, 128-byte aligned, all marked as poisoned for AddressSanitizer; left so at
    /// the end.
    /// `granted`: the dynamic bytes that were asked for before the launch.
    SharedMemory(char* memory, std::size_t dynamic_bytes, std::size_t granted);
    ~SharedMemory();
    char* memory() const { return data_; }
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;
    void* dynamic() { return data_; }
    /// The array that `key` (one address a declaration) names, made at first touch; null if there is no room.
    void* array(const void* key, std::size_t bytes);
    /// Whether a write went between the arrays.
    bool intact() const;
    std::size_t dynamic_bytes() const { return dynamic_bytes_; }
    bool contains(const void* p) const { return p >= data_ && p < data_ + kAllocation; }

private:
    void red_zone(std::size_t offset, std::size_t bytes);
    char* data_;
    std::size_t dynamic_bytes_, granted_, static_bytes_ = 0, used_;
    std::vector<std::pair<const void*, std::size_t>> arrays_;
    std::vector<std::pair<std::size_t, std::size_t>> red_zones_;
};

struct Block {
    Launch* launch = nullptr;
    Dim3 index;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    SharedMemory shared;
    std::size_t n_done = 0, n_barrier = 0;
    Site barrier_site;
    std::shared_ptr<void> witness;  // what another interpreter of the kernel keeps for the block
    Block(char* memory, const Launch& what) : shared(memory, what.dynamic_shared, what.granted_shared) {}
};

/// One emulated device; each host thread has its own.
class Machine {
public:
    static Machine& get() { return instance_ != nullptr ? *instance_ : create(); }
    Machine() = default;
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;
    ~Machine();

    Config config;
    Counters counters;
    /// Sees every launch first, and may put another body in its place or run it itself and leave none.
    std::function<void(Machine&, Launch&)> witness;

    // --- host side
    /// Runs at once, or queues when the config overlaps.
    void launch(Launch launch);
    /// Throws Fault where no card would take the launch: what can be known before it runs.
    static void check_limits(const Launch& launch);
    /// Runs what is queued, dependent launches as early as they may start.
    void synchronize();

    // --- device side, called from fibers
    Thread& current() { return *current_; }
    /// Where the collective under way was called.
    Site collective_site() const { return collective_site_; }
    void barrier(Site site);
    void collective(Collective op, void* operand, unsigned mask, Site site);
    void dependency_wait(Site site);
    void* shared_array(const void* key, std::size_t bytes, Site site);
    void copy_async(void* dst, const void* src, int bytes, Site site);
    void copy_commit();
    void copy_wait(int groups_left);
    void access_global(const void* p, int bytes, Site site) {
        if (config.count_global) gather(p, bytes, site);
    }
    void check_aligned(const void* p, std::size_t alignment, const char* what, Site site) {
        if (reinterpret_cast<std::uintptr_t>(p) % alignment != 0) misaligned(alignment, what, site);
    }
    [[noreturn]] void fault(std::string what);

private:
    struct Request {  // one warp's access to global memory, being gathered
        unsigned lanes = 0;
        std::array<const void*, kWarpSize> address{};
        int bytes = 0;
    };
    /// The requests of one warp at one site: a lane's n-th visit belongs to the n-th request.
    struct Gathering {
        std::array<std::size_t, kWarpSize> visits{};
        std::size_t counted = 0;  // requests that are complete and gone
        std::deque<Request> open;
    };
    static Machine& create();
    static void thread_main(void* thread);
    void gather(const void* p, int bytes, Site site);
    [[noreturn]] void misaligned(std::size_t alignment, const char* what, Site site);
    void park(Wait wait, Site site);
    void prepare(Launch& launch);
    void admit(Launch& launch, std::size_t max_resident);
    bool pass(Block& block);
    bool run_warp(Block& block, std::size_t warp);
    void release_barrier(Block& block);
    void retire_done(Launch& launch);
    void run_until_stuck(Launch& launch, std::size_t max_blocks);
    void run_to_end(Launch& launch);
    void retire(Block& block);
    char* take_shared();
    void flush_requests(const Block& block);
    void count(Site site, const Request& request);
    std::string describe(const Launch& launch) const;
    std::vector<std::size_t> sequence(std::size_t n);

    static constinit inline thread_local Machine* instance_ = nullptr;
    StackPool stacks_;
    std::vector<char*> shared_;  // arenas for the next blocks
    Thread* current_ = nullptr;
    Site collective_site_;
    std::deque<Launch> queue_;
    std::mt19937_64 random_{1};
    std::string fault_;
    bool running_ = false;
    std::map<std::tuple<const Block*, std::size_t, const char*, int>, Gathering> requests_;
};

}  // namespace llmgen::simt

/// What a kernel's launch names as its stream: takes launches and runs them later. Null runs them at once.
struct CUstream_st {
    virtual ~CUstream_st() = default;
    virtual void launch(llmgen::simt::Launch launch) = 0;
};
