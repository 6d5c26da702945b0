// Which memory of the host stands for memory of the device: for whoever checks bounds or compares what two
// runs of a kernel leave there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace llmgen::simt {

struct Region {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    /// Bytes of 0xff were never written: the array was made without values.
    bool fresh = false;
    char type = 'i';  // f: f32, b: bf16, h: f16, i: other
};

class DeviceMemory {
public:
    static DeviceMemory& get() {
        static thread_local DeviceMemory memory;
        return memory;
    }
    void add(const void* begin, std::size_t bytes, bool fresh, char type) {
        const auto at = reinterpret_cast<std::uintptr_t>(begin);
        regions_[at] = {at, bytes, fresh, type};
        ++version_;
    }
    void remove(const void* begin) {
        regions_.erase(reinterpret_cast<std::uintptr_t>(begin));
        ++version_;
    }
    /// The region that holds all of these bytes, or null.
    const Region* find(std::uintptr_t address, std::size_t bytes) const {
        auto it = regions_.upper_bound(address);
        if (it == regions_.begin()) return nullptr;
        const Region& region = (--it)->second;
        return address - region.begin + bytes <= region.bytes ? &region : nullptr;
    }
    const std::map<std::uintptr_t, Region>& regions() const { return regions_; }
    std::uint64_t version() const { return version_; }

private:
    std::map<std::uintptr_t, Region> regions_;
    std::uint64_t version_ = 1;
};

}  // namespace llmgen::simt
