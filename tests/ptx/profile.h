// What a launch did, counted while it is interpreted, thread by thread: no card is needed to see that a
// change doubles a kernel's instructions or its traffic.
//
//   requests and sectors   the lanes of a warp that execute an access for the n-th time make one request; its
//   sectors
//                          are the 32-byte pieces of global memory it touches
//   conflicts              extra passes over the 32 banks of shared memory: of an access of 8 or 16 bytes
//   half or a
//                          quarter of the warp goes at a time, of ldmatrix 8 rows
//   in flight              bytes that a thread has asked of global memory and not had yet at the first use of
//   a load, or
//                          at the wait for a copy: the largest over the launch. A mov is no use.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "ptx/kernel.h"

namespace llmgen::ptx {

struct Context;

struct LaunchProfile {
    std::array<std::uint64_t, kClasses> instructions{};
    std::uint64_t bytes_read = 0, bytes_written = 0, requests = 0, sectors = 0;
    std::uint64_t shared_requests = 0, conflicts = 0;
    std::uint64_t in_flight = 0;
    std::uint64_t block_barriers = 0, threads = 0;  // barriers summed over threads
    std::uint64_t all() const;
};

class Profile {
public:
    /// Before an instruction whose guard holds, or that has none.
    void before(Context&, const Op&);
    /// Begins a launch; what came before it is summed up.
    void start(const std::string& name, Kernel&, std::uint64_t threads);
    void finish();
    /// A launch that isn't counted, for the order of the rest.
    void skip(const std::string& name) { find(name); }
    /// By the names of launches, in the order of their first.
    std::vector<std::pair<std::string, LaunchProfile>> launches;

private:
    struct Access {
        std::uint64_t block, address;
        std::uint32_t op, visit;
        std::uint16_t warp;
        std::uint8_t lane, bytes;
        bool shared;
    };
    struct Outstanding {                                             // of one thread
        std::unordered_map<std::int32_t, std::uint32_t> slots;       // register to load
        std::vector<std::pair<std::uint32_t, std::uint32_t>> loads;  // number and bytes, oldest first
        std::uint32_t next = 0;
        std::vector<std::uint32_t> copies;  // bytes of each uncommitted or awaited group
    };
    LaunchProfile& find(const std::string& name);
    void record(Context&, const Op&, std::uint64_t address, int bytes, bool shared);
    void follow(Context&, const Op&);
    void count_request(const Access* first, const Access* last);

    Kernel* kernel_ = nullptr;
    LaunchProfile* now_ = nullptr;
    std::vector<std::uint64_t> counts_before_;
    std::vector<std::vector<std::int32_t>> sources_;
    std::vector<Access> accesses_;
    std::map<std::pair<std::uint64_t, std::uint32_t>, std::vector<std::uint32_t>>
        visits_;  // by block and thread: of ops
    Outstanding outstanding_;
    std::uint64_t followed_block_ = ~0ull;
};

}  // namespace llmgen::ptx
