#include "simt/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

namespace llmgen::simt {

namespace {
constexpr unsigned char kCanary = 0xfb;  // NaN in every float format, and not the 0xff of fresh memory
constexpr std::size_t kMaxResident = 3;

std::size_t align_up(std::size_t n) { return (n + 127) / 128 * 128; }

const char* name_of(Wait wait) {
    switch (wait) {
        case Wait::barrier:
            return "block barrier";
        case Wait::collective:
            return "warp collective";
        case Wait::dependency:
            return "grid dependency";
        default:
            return "nothing";
    }
}
}  // namespace

// --- shared memory

SharedMemory::SharedMemory(char* memory, std::size_t dynamic_bytes, std::size_t granted)
    : data_(memory), dynamic_bytes_(dynamic_bytes), granted_(granted) {
    ASAN_UNPOISON_MEMORY_REGION(data_, dynamic_bytes);
    std::memset(data_, 0xff, dynamic_bytes);
    used_ = align_up(dynamic_bytes + kRedZone);
    red_zone(dynamic_bytes, used_ - dynamic_bytes);
}

SharedMemory::~SharedMemory() { ASAN_POISON_MEMORY_REGION(data_, used_); }

void SharedMemory::red_zone(std::size_t offset, std::size_t bytes) {
    ASAN_UNPOISON_MEMORY_REGION(data_ + offset, bytes);
    std::memset(data_ + offset, kCanary, bytes);
    ASAN_POISON_MEMORY_REGION(data_ + offset, bytes);
    red_zones_.emplace_back(offset, bytes);
}

void* SharedMemory::array(const void* key, std::size_t bytes) {
    for (const auto& [known, offset] : arrays_)
        if (known == key) return data_ + offset;
    const std::size_t offset = used_, end = align_up(offset + bytes + kRedZone);
    static_bytes_ += bytes;
    // Granting fails where the card hasn't got so much beside the kernel's own arrays; the launch then has
    // none.
    if (static_bytes_ > kUnasked || static_bytes_ + std::max(dynamic_bytes_, granted_) > kCapacity ||
        (granted_ < dynamic_bytes_ && static_bytes_ + dynamic_bytes_ > kUnasked) || end > kAllocation)
        return nullptr;
    ASAN_UNPOISON_MEMORY_REGION(data_ + offset, bytes);
    std::memset(data_ + offset, 0xff, bytes);
    red_zone(offset + bytes, end - offset - bytes);
    used_ = end;
    arrays_.emplace_back(key, offset);
    return data_ + offset;
}

bool SharedMemory::intact() const {
    bool good = true;
    for (const auto& [offset, bytes] : red_zones_) {
        ASAN_UNPOISON_MEMORY_REGION(data_ + offset, bytes);
        for (std::size_t i = 0; i < bytes; ++i)
            good &= static_cast<unsigned char>(data_[offset + i]) == kCanary;
        ASAN_POISON_MEMORY_REGION(data_ + offset, bytes);
    }
    return good;
}

// --- device side

Machine& Machine::create() {
    static thread_local Machine machine;
    instance_ = &machine;
    return machine;
}

void Machine::thread_main(void* argument) {
    Machine& machine = get();
    auto& thread = *static_cast<Thread*>(argument);
    thread.block->launch->body();
    if (thread.block->launch->dependent && !thread.waited_for_dependency)
        machine.fault(
            "a thread of a dependent launch left without waiting for its predecessor: the launch after "
            "this one could start before the one before it has ended");
    if (!thread.copies.empty())
        machine.fault(
            fmt::format("thread {} left with asynchronous copies that nobody waited for (issued at {}:{})",
                        thread.linear, thread.copies[0].site.file, thread.copies[0].site.line));
    thread.wait = Wait::done;
    ++thread.block->n_done;
    Warp& warp = thread.block->warps[std::size_t(thread.linear / kWarpSize)];
    warp.present &= ~(1u << thread.lane);
    warp.ready &= ~(1u << thread.lane);
    thread.fiber.leave(true);
}

void Machine::fault(std::string what) {
    fault_ = std::move(what);      // moved: what stays on this stack is never destroyed
    current_->fiber.leave(false);  // the host throws and drops every fiber; nobody comes back here
    std::abort();
}

void Machine::park(Wait wait, Site site) {
    Thread& thread = *current_;
    thread.wait = wait;
    thread.site = site;
    thread.block->warps[std::size_t(thread.linear / kWarpSize)].ready &= ~(1u << thread.lane);
    thread.fiber.leave(false);
}

void Machine::barrier(Site site) {
    Block& block = *current_->block;
    if (block.n_done > 0) fault("a block barrier after some threads have left the kernel");
    if (block.n_barrier > 0 && !(block.barrier_site == site))
        fault(fmt::format("divergent block barriers: some threads wait at {}:{}, one comes to {}:{}",
                          block.barrier_site.file, block.barrier_site.line, site.file, site.line));
    block.barrier_site = site;
    ++block.n_barrier;
    park(Wait::barrier, site);
}

void Machine::collective(Collective op, void* operand, unsigned mask, Site site) {
    Thread& thread = *current_;
    Block& block = *thread.block;
    const auto base = std::size_t(thread.linear / kWarpSize) * kWarpSize;
    Warp& warp = block.warps[base / kWarpSize];
    if (!(mask >> thread.lane & 1)) fault("a lane calls a collective whose mask leaves it out");
    if ((mask & ~warp.present) != 0) fault("a collective's mask names lanes that have left or do not exist");
    ++counters.collectives;
    thread.operand = operand;
    auto slot = std::find_if(warp.pending.begin(), warp.pending.end(), [&](const Pending& p) {
        return p.op == op && p.mask == mask && p.site == site;
    });
    if (slot == warp.pending.end()) slot = warp.pending.insert(slot, Pending{op, mask, 0, site});
    slot->arrived |= 1u << thread.lane;
    if (slot->arrived != mask) return park(Wait::collective, site);
    warp.pending.erase(slot);
    void* operands[kWarpSize] = {};
    for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
        const int lane = std::countr_zero(rest);
        Thread& other = block.threads[base + std::size_t(lane)];
        operands[lane] = other.operand;
        other.wait = Wait::ready;
    }
    collective_site_ = site;
    op(operands, mask);  // the last lane to come does the work, the others find it done
    warp.ready |= mask;
}

void Machine::dependency_wait(Site site) {
    current_->waited_for_dependency = true;
    if (current_->block->launch->dependent && !current_->block->launch->released)
        park(Wait::dependency, site);
}

void* Machine::shared_array(const void* key, std::size_t bytes, Site site) {
    void* array = current_->block->shared.array(key, bytes);
    if (array == nullptr)
        fault(fmt::format("{}:{}: {} more bytes of shared memory do not fit beside the rest", site.file,
                          site.line, bytes));
    return array;
}

void Machine::misaligned(std::size_t alignment, const char* what, Site site) {
    fault(fmt::format("{}:{}: {} at an address that is not a multiple of {}", site.file, site.line, what,
                      alignment));
}

// The bytes land only at the wait, so that a forgotten wait reads poison; until then the target is poisoned,
// because a real copy may land at any time.
void Machine::copy_async(void* dst, const void* src, int bytes, Site site) {
    check_aligned(dst, 16, "cp.async to shared memory", site);
    check_aligned(src, 16, "cp.async from global memory", site);
    if (!current_->block->shared.contains(dst)) fault("cp.async to an address that is not in shared memory");
    std::memset(dst, 0xff, 16);
    if (bytes > 0) access_global(src, bytes, site);
    counters.async_bytes += std::uint64_t(bytes);
    current_->copies.push_back({dst, src, bytes, current_->copy_group, site});
}

void Machine::copy_commit() { ++current_->copy_group; }

void Machine::copy_wait(int groups_left) {
    Thread& thread = *current_;
    std::size_t kept = 0;
    for (const AsyncCopy& copy : thread.copies) {
        if (copy.group >= thread.copy_group - groups_left) {
            thread.copies[kept++] = copy;
            continue;
        }
        if (copy.bytes > 0) std::memcpy(copy.dst, copy.src, std::size_t(copy.bytes));
        std::memset(static_cast<char*>(copy.dst) + copy.bytes, 0, std::size_t(16 - copy.bytes));
    }
    thread.copies.resize(kept);
}

// --- counters of global memory: lanes of a warp that pass a site for the n-th time make one request together

void Machine::gather(const void* p, int bytes, Site site) {
    Thread& thread = *current_;
    const auto warp = std::size_t(thread.linear / kWarpSize), lane = std::size_t(thread.lane);
    Gathering& gathering = requests_[{thread.block, warp, site.file, site.line}];
    const std::size_t index = gathering.visits[lane]++ - gathering.counted;
    if (index >= gathering.open.size()) gathering.open.resize(index + 1);
    Request& request = gathering.open[index];
    request.lanes |= 1u << lane;
    request.address[lane] = p;
    request.bytes = bytes;
    while (!gathering.open.empty() && gathering.open.front().lanes == kFullMask) {
        count(site, gathering.open.front());
        gathering.open.pop_front();
        ++gathering.counted;
    }
}

void Machine::count(Site site, const Request& request) {
    std::vector<std::uintptr_t> sectors;
    auto& access = counters.global[{site.file, site.line}];
    for (unsigned rest = request.lanes; rest != 0; rest &= rest - 1) {
        const auto first =
            reinterpret_cast<std::uintptr_t>(request.address[std::size_t(std::countr_zero(rest))]);
        access.bytes += std::uint64_t(request.bytes);
        for (auto sector = first / 32; sector <= (first + std::uintptr_t(request.bytes) - 1) / 32; ++sector)
            sectors.push_back(sector);
    }
    std::sort(sectors.begin(), sectors.end());
    access.sectors += std::uint64_t(std::unique(sectors.begin(), sectors.end()) - sectors.begin());
}

void Machine::flush_requests(const Block& block) {
    auto it = requests_.lower_bound({&block, 0, nullptr, 0});
    while (it != requests_.end() && std::get<0>(it->first) == &block) {
        for (const Request& request : it->second.open)
            count({std::get<2>(it->first), std::get<3>(it->first)}, request);
        it = requests_.erase(it);
    }
}

// --- host side

std::vector<std::size_t> Machine::sequence(std::size_t n) {
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t(0));
    if (config.order == Order::reverse) std::reverse(order.begin(), order.end());
    if (config.order == Order::random) std::shuffle(order.begin(), order.end(), random_);
    return order;
}

void Machine::check_limits(const Launch& launch) {
    const std::size_t n_threads = launch.block.count();
    if (launch.grid.count() == 0 || n_threads == 0 || n_threads > 1024 || launch.grid.y > 65535 ||
        launch.grid.z > 65535 || launch.grid.x > 0x7fffffffu ||
        std::max(launch.dynamic_shared, launch.granted_shared) > SharedMemory::kCapacity ||
        launch.dynamic_shared > std::max(launch.granted_shared, SharedMemory::kUnasked))
        throw Fault(
            fmt::format("{}: no card takes a grid of {} x {} x {} blocks of {} threads with {} bytes of "
                        "dynamic shared memory, of which {} were asked for",
                        launch.name, launch.grid.x, launch.grid.y, launch.grid.z, n_threads,
                        launch.dynamic_shared, launch.granted_shared));
}

void Machine::prepare(Launch& launch) {
    check_limits(launch);
    launch.order = sequence(launch.grid.count());
}

void Machine::admit(Launch& launch, std::size_t max_resident) {
    while (launch.resident.size() < max_resident && launch.next < launch.order.size()) {
        const std::size_t linear = launch.order[launch.next++];
        auto block = std::make_unique<Block>(take_shared(), launch);
        block->launch = &launch;
        const Dim3 grid = launch.grid, shape = launch.block;
        block->index = {unsigned(linear % grid.x), unsigned(linear / grid.x % grid.y),
                        unsigned(linear / grid.x / grid.y)};
        const std::size_t n = shape.count();
        block->threads.resize(n);
        block->warps.resize((n + kWarpSize - 1) / kWarpSize);
        for (std::size_t i = 0; i < n; ++i) {
            Thread& thread = block->threads[i];
            thread.index = {unsigned(i % shape.x), unsigned(i / shape.x % shape.y),
                            unsigned(i / shape.x / shape.y)};
            thread.linear = int(i);
            thread.lane = int(i % kWarpSize);
            thread.block = block.get();
            block->warps[i / kWarpSize].present |= 1u << thread.lane;
            thread.fiber.prepare(stacks_.take(), &Machine::thread_main, &thread);
        }
        for (Warp& warp : block->warps) warp.ready = warp.present;
        launch.resident.push_back(std::move(block));
    }
}

bool Machine::run_warp(Block& block, std::size_t warp_index) {
    Warp& warp = block.warps[warp_index];
    const unsigned runnable = warp.ready;
    if (runnable == 0) return false;
    std::array<std::uint8_t, kWarpSize> lanes;
    for (int i = 0; i < kWarpSize; ++i)
        lanes[std::size_t(i)] = std::uint8_t(config.order == Order::reverse ? kWarpSize - 1 - i : i);
    if (config.order == Order::random) std::shuffle(lanes.begin(), lanes.end(), random_);
    for (const std::uint8_t lane : lanes) {
        if (!(runnable >> lane & 1) || !(warp.ready >> lane & 1)) continue;
        current_ = &block.threads[warp_index * kWarpSize + lane];
        current_->fiber.enter();
        current_ = nullptr;
        if (!fault_.empty()) return true;
    }
    return true;
}

/// Lets every runnable warp of the block go on once (in step), or as far as it can (greedy).
bool Machine::pass(Block& block) {
    bool progress = false;
    const bool greedy = config.order == Order::warp_greedy || config.order == Order::late_warp;
    const std::size_t late = config.order == Order::late_warp
                                 ? std::size_t(config.late_warp) % block.warps.size()
                                 : block.warps.size();
    for (const std::size_t warp : sequence(block.warps.size())) {
        if (warp == late) continue;
        do {
            if (!run_warp(block, warp)) break;
            progress = true;
        } while (greedy && fault_.empty());
        if (!fault_.empty()) return true;
    }
    if (!progress && late < block.warps.size())
        while (fault_.empty() && run_warp(block, late)) progress = true;
    release_barrier(block);
    return progress;
}

void Machine::release_barrier(Block& block) {
    if (block.n_barrier == 0 || block.n_barrier < block.threads.size()) return;
    block.n_barrier = 0;
    ++counters.barriers;
    for (Thread& thread : block.threads) thread.wait = Wait::ready;
    for (Warp& warp : block.warps) warp.ready = warp.present;
}

Machine::~Machine() {
    if (instance_ == this) instance_ = nullptr;
    for (char* memory : shared_) {
        ASAN_UNPOISON_MEMORY_REGION(memory, SharedMemory::kAllocation);
        std::free(memory);
    }
}

char* Machine::take_shared() {
    if (shared_.empty()) {
        shared_.push_back(static_cast<char*>(std::aligned_alloc(128, SharedMemory::kAllocation)));
        ASAN_POISON_MEMORY_REGION(shared_.back(), SharedMemory::kAllocation);
    }
    char* memory = shared_.back();
    shared_.pop_back();
    return memory;
}

void Machine::retire(Block& block) {
    for (Thread& thread : block.threads) {
        if (thread.wait != Wait::done) Fiber::wipe(thread.fiber.stack());
        stacks_.give(thread.fiber.stack());
    }
    shared_.push_back(block.shared.memory());
}

void Machine::retire_done(Launch& launch) {
    std::erase_if(launch.resident, [&](const std::unique_ptr<Block>& block) {
        if (block->n_done < block->threads.size()) return false;
        retire(*block);
        flush_requests(*block);
        if (!block->shared.intact() && fault_.empty())
            fault_ = "a write past the end of a shared array, found in a red zone at the end of the block";
        return true;
    });
}

std::string Machine::describe(const Launch& launch) const {
    std::string text;
    for (const auto& block : launch.resident) {
        text += fmt::format("\n  block ({}, {}, {}): {} of {} threads have left", block->index.x,
                            block->index.y, block->index.z, block->n_done, block->threads.size());
        int shown = 0;
        for (const Thread& thread : block->threads)
            if (thread.wait != Wait::done && thread.wait != Wait::ready && shown++ < 3)
                text += fmt::format("\n    thread {} waits at {}:{} ({})", thread.linear, thread.site.file,
                                    thread.site.line, name_of(thread.wait));
    }
    return text;
}

/// Runs blocks until all have ended or none can go on.
void Machine::run_until_stuck(Launch& launch, std::size_t max_blocks) {
    for (bool progress = true; progress;) {
        progress = false;
        admit(launch, max_blocks);
        for (const std::size_t i : sequence(launch.resident.size()))
            if (fault_.empty()) progress |= pass(*launch.resident[i]);
        retire_done(launch);
        if (!fault_.empty()) {
            std::string what;
            what.swap(fault_);  // swapped: an assignment would hand its buffer to an abandoned stack
            const std::string text = fmt::format("{}: {}{}", launch.name, what, describe(launch));
            requests_.clear();
            for (auto& block : launch.resident) retire(*block);
            launch.resident.clear();
            throw Fault(text);
        }
        // a barrier that opened, or a new block, is progress too
        for (const auto& block : launch.resident)
            for (const Warp& warp : block->warps) progress |= warp.ready != 0;
        progress |= launch.resident.empty() && launch.next < launch.order.size();
    }
}

void Machine::run_to_end(Launch& launch) {
    launch.released = true;
    for (auto& block : launch.resident)
        for (Thread& thread : block->threads)
            if (thread.wait == Wait::dependency) {
                thread.wait = Wait::ready;
                block->warps[std::size_t(thread.linear / kWarpSize)].ready |= 1u << thread.lane;
            }
    const std::size_t resident = config.order == Order::random ? kMaxResident : 1;
    run_until_stuck(launch, std::max(resident, launch.resident.size()));
    if (launch.resident.empty()) return;
    const std::string text = fmt::format(
        "{}: no thread can go on: a barrier that not all threads reach, or a collective that a lane of the "
        "mask "
        "never reaches{}",
        launch.name, describe(launch));
    for (auto& block : launch.resident) retire(*block);
    launch.resident.clear();
    throw Fault(text);
}

void Machine::launch(Launch launch) {
    if (witness) {
        witness(*this, launch);
        if (!launch.body) return;
    }
    random_.seed(config.seed);
    prepare(launch);
    queue_.push_back(std::move(launch));
    if (!config.overlap) synchronize();
}

void Machine::synchronize() {
    if (running_) throw Fault("the emulator is not re-entrant");
    running_ = true;
    struct Reset {
        Machine& machine;
        ~Reset() {
            for (Launch& launch : machine.queue_)
                for (auto& block : launch.resident) machine.retire(*block);
            machine.queue_.clear();
            machine.running_ = false;
        }
    } reset{*this};
    while (!queue_.empty()) {
        // The chain of dependent launches that may be under way together, the latest first: each sees memory
        // as it was before all its predecessors.
        std::size_t chain = 1;
        while (chain < queue_.size() && int(chain) < config.overlap_depth && queue_[chain].dependent) ++chain;
        for (std::size_t i = chain; i-- > 1;)
            if (queue_[i].resident.empty() && queue_[i].next == 0)
                run_until_stuck(queue_[i], std::size_t(config.early_blocks));
        run_to_end(queue_.front());
        queue_.pop_front();
    }
}

}  // namespace llmgen::simt
