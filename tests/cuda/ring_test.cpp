// The ring of pinned buffers: every byte arrives once and in its place, no slot is filled while it is being
// copied, faults come out of the call that met them.
#include "ops/cuda/pinned_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "base/error.h"

namespace llmgen::cuda {
namespace {

/// Copies at the last moment: when they are waited for, or at the end.
class LateCopies : public SlotCopies {
public:
    LateCopies(int n_slots, std::size_t bytes)
        : slots_(std::size_t(n_slots), std::vector<char>(bytes)), pending_(std::size_t(n_slots)) {}
    char* slot(int index) override { return slots_[std::size_t(index)].data(); }
    void copy(int index, void* device, std::size_t bytes) override {
        if (fail_at_copy-- == 0) fail("the device fell over");
        wait(index);
        pending_[std::size_t(index)] = {device, bytes};
        ++n_copies;
    }
    void wait(int index) override {
        auto& [device, bytes] = pending_[std::size_t(index)];
        if (device == nullptr) return;
        std::memcpy(device, slot(index), bytes);
        device = nullptr;
    }
    void wait_for_all() {
        for (std::size_t i = 0; i < slots_.size(); ++i) wait(int(i));
    }
    int n_copies = 0;
    int fail_at_copy = -1;

private:
    std::vector<std::vector<char>> slots_;
    std::vector<std::pair<void*, std::size_t>> pending_;
};

char byte_at(std::size_t i) { return char((i * 2654435761u) >> 13); }

class Ring : public ::testing::TestWithParam<int> {};  // threads

TEST_P(Ring, BytesArriveInTheirPlaces) {
    for (const int n_slots : {1, 2, 3, 8})
        for (const std::size_t granule : {1u, 6u, 100u})
            for (const std::size_t rows : {0u, 1u, 3u, 40u, 333u}) {
                LateCopies copies(n_slots, 100);
                PinnedRing ring(copies, n_slots, 100, GetParam());
                std::vector<char> device(rows * granule, 0), second = device;
                std::atomic<std::size_t> filled = 0;
                const auto fill = [&](char* to, std::size_t first, std::size_t bytes) {
                    EXPECT_EQ(first % granule, 0u);
                    EXPECT_EQ(bytes % granule, 0u);
                    for (std::size_t i = 0; i < bytes; ++i) to[i] = byte_at(first + i);
                    filled += bytes;
                };
                ring.write(device.data(), device.size(), granule, fill);
                EXPECT_EQ(filled, device.size()) << "the source may go once write() returns";
                ring.write(second.data(), second.size(), granule, fill);
                copies.wait_for_all();
                for (std::size_t i = 0; i < device.size(); ++i) {
                    ASSERT_EQ(device[i], byte_at(i)) << i << " of " << device.size();
                    ASSERT_EQ(second[i], byte_at(i)) << i;
                }
            }
}

TEST_P(Ring, AFaultOfTheSourceComesOutOnceAndTheRingGoesOn) {
    LateCopies copies(4, 64);
    PinnedRing ring(copies, 4, 64, GetParam());
    std::vector<char> device(6400, 0);
    const auto bad = [&](char*, std::size_t first, std::size_t) {
        if (first >= 640) fail("the file ends at {}", first);
    };
    EXPECT_THROW(ring.write(device.data(), device.size(), 1, bad), Error);
    ring.write(device.data(), device.size(), 1,
               [](char* to, std::size_t, std::size_t bytes) { std::memset(to, 7, bytes); });
    copies.wait_for_all();
    EXPECT_EQ(device, std::vector<char>(6400, 7));
}

TEST_P(Ring, AFaultOfTheDeviceComesOutAfterTheThreadsLetGo) {
    for (int at : {0, 1, 5}) {
        LateCopies copies(4, 64);
        copies.fail_at_copy = at;
        PinnedRing ring(copies, 4, 64, GetParam());
        std::vector<char> device(6400, 0);
        std::atomic<bool> left = false, late = false;
        try {
            ring.write(device.data(), device.size(), 1, [&](char* to, std::size_t, std::size_t bytes) {
                late = late || left;
                std::memset(to, 7, bytes);
            });
            FAIL();
        } catch (const Error& error) {
            left = true;
            EXPECT_STREQ(error.what(), "the device fell over");
        }
        EXPECT_FALSE(late);
    }
}

INSTANTIATE_TEST_SUITE_P(Threads, Ring, ::testing::Values(0, 1, 3));

}  // namespace
}  // namespace llmgen::cuda
