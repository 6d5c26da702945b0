// Every access that a thread makes, checked: bounds, alignment, whether the bytes were ever written, and in
// shared memory whether something orders it after the accesses of other threads.
#include <fmt/format.h>

#include <algorithm>

#include "ptx/context.h"

namespace llmgen::ptx {

namespace {
const simt::Region* region_of(Context& c, const Op& op, std::uint64_t address, int bytes) {
    Running& launch = *c.launch;
    const simt::DeviceMemory& memory = simt::DeviceMemory::get();
    if (launch.memory_version != memory.version()) {
        std::fill(launch.regions.begin(), launch.regions.end(), nullptr);
        launch.memory_version = memory.version();
    }
    const simt::Region*& last = launch.regions[c.kernel->index(op)];
    if (last == nullptr || address - last->begin + std::uint64_t(bytes) > last->bytes ||
        address < last->begin)
        last = memory.find(address, std::size_t(bytes));
    return last;
}

bool in_module(const Context& c, std::uint64_t address, int bytes) {
    for (const Variable& v : c.kernel->file->variables()) {
        const auto first = std::uint64_t(reinterpret_cast<std::uintptr_t>(v.value.data()));
        if (address >= first && address + std::uint64_t(bytes) <= first + v.value.size()) return true;
    }
    return false;
}

void check_alignment(Context& c, const Op& op, std::uint64_t address, int bytes) {
    if ((address & std::uint64_t(bytes - 1)) != 0) [[unlikely]]
        c.fault(op, fmt::format("the address {:#x} is not a multiple of {}", address, bytes));
}

bool all_ff(const char* p, int bytes) {
    for (int i = 0; i < bytes; ++i)
        if (p[i] != char(0xff)) return false;
    return true;
}
}  // namespace

// Whether the bytes were written is known by value: memory is 0xff until somebody writes.
const char* Context::read_global(const Op& op, std::uint64_t address, int bytes, std::uint8_t& undefined) {
    check_alignment(*this, op, address, bytes);
    const simt::Region* region = region_of(*this, op, address, bytes);
    const char* p = reinterpret_cast<const char*>(address);
    if (region == nullptr) [[unlikely]] {
        if (!in_module(*this, address, bytes))
            fault(op, fmt::format("reads {} bytes at {:#x}, outside of every array", bytes, address));
        return p;
    }
    if (region->fresh && p[0] == char(0xff)) undefined |= all_ff(p, bytes) ? 1 : 0;
    if (kernel->meets && op.kind != Class::atomic) check_handover(op, *region, address, bytes);
    return p;
}

char* Context::write_global(const Op& op, std::uint64_t address, int bytes) {
    check_alignment(*this, op, address, bytes);
    const simt::Region* region = region_of(*this, op, address, bytes);
    if (region == nullptr) [[unlikely]]
        fault(op, fmt::format("writes {} bytes at {:#x}, outside of every array", bytes, address));
    if (kernel->reads_only) mark_written(op, *region, address, bytes);
    if (kernel->meets && op.kind != Class::atomic)
        launch->handovers.write(region->begin, region->bytes, address - region->begin, bytes, standing(),
                                std::uint32_t(kernel->index(op)));
    return reinterpret_cast<char*>(address);
}

void Context::check_handover(const Op& op, const simt::Region& region, std::uint64_t address, int bytes) {
    const std::uint32_t writer =
        launch->handovers.unordered(region.begin, address - region.begin, bytes, standing());
    if (writer != 0) [[unlikely]]
        fault(op, fmt::format("reads what another block has written in {}, with nothing that orders the two",
                              kernel->place(kernel->ops[writer - 1])));
}

// Within one launch: what the launch before writes is another matter (grid dependencies).
void Context::mark_read_only(const Op& op, std::uint64_t address, int bytes) {
    const simt::Region* region = region_of(*this, op, address, bytes);
    if (region == nullptr) return;  // module data: nobody can write it
    ReadOnlyMarks& marks = launch->read_only[region->begin];
    marks.reader.resize(region->bytes);
    marks.writer.resize(region->bytes);
    for (std::size_t i = address - region->begin, end = i + std::size_t(bytes); i < end; ++i) {
        if (marks.writer[i] != 0) [[unlikely]]
            fault(op, fmt::format("reads as never changing what the launch has written, in {}",
                                  kernel->place(kernel->ops[marks.writer[i] - 1])));
        marks.reader[i] = std::uint32_t(kernel->index(op) + 1);
    }
}
void Context::mark_written(const Op& op, const simt::Region& region, std::uint64_t address, int bytes) {
    ReadOnlyMarks& marks = launch->read_only[region.begin];
    marks.reader.resize(region.bytes);
    marks.writer.resize(region.bytes);
    for (std::size_t i = address - region.begin, end = i + std::size_t(bytes); i < end; ++i) {
        if (marks.reader[i] != 0) [[unlikely]]
            fault(op, fmt::format("writes what the launch has read as never changing, in {}",
                                  kernel->place(kernel->ops[marks.reader[i] - 1])));
        marks.writer[i] = std::uint32_t(kernel->index(op) + 1);
    }
}

void Context::check_shared(const Op& op, std::uint64_t address, int bytes) {
    check_alignment(*this, op, address, bytes);
    const std::vector<Byte>& state = block->bytes;
    if (address + std::uint64_t(bytes) > state.size()) [[unlikely]]
        fault(op, fmt::format("touches shared memory at {:#x}, outside of every array", address));
    for (int i = 0; i < bytes; ++i) {
        const Byte byte = state[address + std::uint64_t(i)];
        if (byte == Byte::outside) [[unlikely]]
            fault(op, fmt::format("touches shared memory at {:#x}, outside of every array", address));
        if (byte == Byte::in_flight) [[unlikely]]
            fault(op, fmt::format("touches shared memory at {:#x}, where an asynchronous copy is under way",
                                  address));
    }
}

void Context::touch(const Op& op, std::uint64_t address, int bytes, bool writes, bool atomic) {
    const auto self = std::int16_t(thread->linear);
    const std::int16_t warp = std::int16_t(self / 32);
    auto race = [&](const Touch& t, bool with_write) {
        const int other = with_write ? t.writer : t.reader;
        fault(op, fmt::format("thread {} {} shared memory at {:#x} that {} {}, with no barrier between", self,
                              writes ? "writes" : "reads", address,
                              other < Touch::kSeveral ? fmt::format("thread {}", other)
                              : other < Touch::kMany  ? fmt::format("warp {}", other - Touch::kSeveral)
                                                      : "several warps",
                              with_write ? "has written" : "has read"));
    };
    for (std::uint64_t i = address / 2; i <= (address + std::uint64_t(bytes) - 1) / 2; ++i) {
        Touch& t = block->touches[i];
        if (t.writer >= 0 && t.writer != self && t.write_barrier == barrier && !(t.atomic && atomic) &&
            !(t.writer / 32 == warp && t.write_warp < warp_sync))
            race(t, true);
        if (writes) {
            const std::int16_t reader_warp = t.reader >= Touch::kSeveral
                                                 ? std::int16_t(t.reader - Touch::kSeveral)
                                                 : std::int16_t(t.reader / 32);
            if (t.reader >= 0 && t.reader != self && t.read_barrier == barrier &&
                !(reader_warp == warp && t.read_warp < warp_sync))
                race(t, false);
            t.writer = self;
            t.atomic = atomic;
            t.write_barrier = barrier;
            t.write_warp = warp_sync;
            continue;
        }
        if (t.reader < 0 || t.read_barrier != barrier) {
            t.reader = self;
        } else if (t.reader != self && t.reader != Touch::kMany) {
            const int known = t.reader >= Touch::kSeveral ? t.reader - Touch::kSeveral : t.reader / 32;
            t.reader = known == warp ? std::int16_t(Touch::kSeveral + warp) : Touch::kMany;
        }
        t.read_barrier = barrier;
        t.read_warp = warp_sync;
    }
}

const char* Context::read_shared(const Op& op, std::uint64_t address, int bytes, std::uint8_t& undefined) {
    check_shared(op, address, bytes);
    touch(op, address, bytes, false, false);
    for (int i = 0; i < bytes; ++i)
        undefined |= block->bytes[address + std::uint64_t(i)] != Byte::defined ? 1 : 0;
    return shared + address;
}

char* Context::write_shared(const Op& op, std::uint64_t address, int bytes, bool undefined, bool atomic) {
    check_shared(op, address, bytes);
    touch(op, address, bytes, true, atomic);
    std::fill_n(block->bytes.begin() + std::ptrdiff_t(address), bytes,
                undefined ? Byte::undefined : Byte::defined);
    return shared + address;
}

const char* Context::read_local(const Op& op, std::uint64_t address, int bytes, std::uint8_t& undefined) {
    check_alignment(*this, op, address, bytes);
    if (address + std::uint64_t(bytes) > kernel->local_bytes) [[unlikely]]
        fault(op, fmt::format("reads local memory at {:#x}, outside of it", address));
    for (int i = 0; i < bytes; ++i)
        undefined |= local_bytes[address + std::uint64_t(i)] != Byte::defined ? 1 : 0;
    return local + address;
}

char* Context::write_local(const Op& op, std::uint64_t address, int bytes, bool undefined) {
    check_alignment(*this, op, address, bytes);
    if (address + std::uint64_t(bytes) > kernel->local_bytes) [[unlikely]]
        fault(op, fmt::format("writes local memory at {:#x}, outside of it", address));
    std::fill_n(local_bytes + address, bytes, undefined ? Byte::undefined : Byte::defined);
    return local + address;
}

const char* Context::read(const Op& op, std::uint64_t address, int bytes, std::uint8_t& undefined) {
    if (address >= kLocalWindow && address < 2 * kLocalWindow)
        return read_local(op, address - kLocalWindow, bytes, undefined);
    if (address >= kSharedWindow && address < kLocalWindow)
        return read_shared(op, address - kSharedWindow, bytes, undefined);
    return read_global(op, address, bytes, undefined);
}

char* Context::write(const Op& op, std::uint64_t address, int bytes, bool undefined) {
    if (address >= kLocalWindow && address < 2 * kLocalWindow)
        return write_local(op, address - kLocalWindow, bytes, undefined);
    if (address >= kSharedWindow && address < kLocalWindow)
        return write_shared(op, address - kSharedWindow, bytes, undefined);
    if (undefined) fault(op, "what it stores comes from a register or memory that nobody has set");
    return write_global(op, address, bytes);
}

}  // namespace llmgen::ptx
