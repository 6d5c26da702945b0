// What the emulator's tests share: device memory that shows misuse, every order, seeded values.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "simt/device_memory.h"
#include "simt/machine.h"
#ifdef LLMGEN_HARDWARE
#include "simt/hardware/managed.h"
#else
namespace llmgen::simt {
inline void* device_new(std::size_t bytes) { return ::operator new(bytes, std::align_val_t(256)); }
inline void device_delete(void* memory) { ::operator delete(memory, std::align_val_t(256)); }
inline void device_wait() {}
}  // namespace llmgen::simt
#endif

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kHasAsan = true;
#else
inline constexpr bool kHasAsan = false;
#endif

namespace llmgen::simt {

/// Exactly `n` elements of device memory, filled with NaN patterns, 256-byte aligned as cudaMalloc gives
/// them. Under AddressSanitizer any access outside ends the program; without it, writes outside are found at
/// the end.
template <typename T>
class DeviceArray {
public:
    template <std::integral N>
    explicit DeviceArray(N n) : size_(std::size_t(n)), bytes_(std::size_t(n) * sizeof(T)) {
        data_ = static_cast<unsigned char*>(device_new(bytes_ + kMargin));
        std::memset(data_, 0xff, bytes_);
        std::memset(data_ + bytes_, 0xfb, kMargin);
        DeviceMemory::get().add(data_, bytes_, true, kType);
    }
    DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
        if (bytes_ > 0) std::memcpy(data_, values.data(), bytes_);
        DeviceMemory::get().add(data_, bytes_, false, kType);
    }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;
    ~DeviceArray() {
        device_wait();
        DeviceMemory::get().remove(data_);
        for (std::size_t i = 0; i < kMargin; ++i)
            if (data_[bytes_ + i] != 0xfb) {
                ADD_FAILURE() << "a write " << i << " bytes past the end of an array of " << size_;
                break;
            }
        device_delete(data_);
    }
    operator T*() { return reinterpret_cast<T*>(data_); }
    T* get() { return reinterpret_cast<T*>(data_); }
    std::size_t size() const { return size_; }
    T& operator[](std::size_t i) {
        device_wait();
        return get()[i];
    }
    std::vector<T> host() const {
        device_wait();
        std::vector<T> values(size_);
        if (bytes_ > 0) std::memcpy(values.data(), data_, bytes_);
        return values;
    }
    void poison() {
        device_wait();
        std::memset(data_, 0xff, bytes_);
        DeviceMemory::get().add(data_, bytes_, true, kType);
    }

private:
    static constexpr char kType = std::is_same_v<T, float>  ? 'f'
                                  : std::is_same_v<T, bf16> ? 'b'
                                  : std::is_same_v<T, f16>  ? 'h'
                                                            : 'i';
    static constexpr std::size_t kMargin = kHasAsan ? 0 : 64;
    std::size_t size_, bytes_;
    unsigned char* data_;
};

/// Restores the machine's config at the end of a scope, with fresh counters at its start.
class Setting {
public:
    Setting() : saved_(Machine::get().config) { Machine::get().counters = {}; }
    explicit Setting(const Config& config) : Setting() { Machine::get().config = config; }
    Setting(const Setting&) = delete;
    Setting& operator=(const Setting&) = delete;
    ~Setting() { Machine::get().config = saved_; }

private:
    Config saved_;
};

inline std::string name_of(const Config& config) {
    switch (config.order) {
        case Order::forward:
            return "forward";
        case Order::reverse:
            return "reverse";
        case Order::random:
            return "random, seed " + std::to_string(config.seed);
        case Order::warp_greedy:
            return "warp-greedy";
        case Order::late_warp:
            return "late warp " + std::to_string(config.late_warp);
    }
    return "?";
}

inline Config in_order(Order order, int late_warp = 0, std::uint64_t seed = 1) {
    Config config;
    config.order = order;
    config.late_warp = late_warp;
    config.seed = seed;
    return config;
}

/// The orders that every kernel must survive.
inline std::vector<Config> all_orders() {
    return {in_order(Order::forward),     in_order(Order::reverse),      in_order(Order::random, 0, 1),
            in_order(Order::warp_greedy), in_order(Order::late_warp, 0), in_order(Order::late_warp, 1),
            in_order(Order::late_warp, 3)};
}

/// Calls `body` once in every order.
template <typename Body>
void in_every_order(Body body) {
#ifdef LLMGEN_HARDWARE  // has its own order
    const std::vector<Config> orders(1);
#else
    const std::vector<Config> orders = all_orders();
#endif
    for (const Config& config : orders) {
        SCOPED_TRACE(name_of(config));
        Setting setting(config);
        body();
    }
}

/// Seeded values, the same on every machine.
class Values {
public:
    explicit Values(std::uint64_t seed) : engine_(seed) {}
    /// Near-normal: the sum of four uniforms, variance 1/3.
    float next() {
        float sum = -2;
        for (int i = 0; i < 4; ++i) sum += float(engine_() >> 40) * 0x1p-24f;
        return sum;
    }
    int below(int n) { return int(engine_() % std::uint64_t(n)); }
    template <typename T>
    std::vector<T> vector(std::size_t n, float scale = 1) {
        std::vector<T> values(n);
        for (T& value : values) {
            const float x = next() * scale;
            if constexpr (std::is_same_v<T, bf16>)
                value = to_bf16(x);
            else if constexpr (std::is_same_v<T, f16>)
                value = to_f16(x);
            else
                value = x;
        }
        return values;
    }

private:
    std::mt19937_64 engine_;
};

inline double as_double(float x) { return x; }
inline double as_double(bf16 x) { return to_f32(x); }
inline double as_double(f16 x) { return to_f32(x); }

/// Unit round-off of a type.
template <typename T>
constexpr double unit() {
    return sizeof(T) == 4 ? 0x1p-24 : std::is_same_v<T, bf16> ? 0x1p-8 : 0x1p-11;
}

/// |got - want| ≤ bound for each element, NaN never; reports the first few that differ.
template <typename T>
void expect_within(const std::vector<T>& got,
                   const std::vector<double>& want,
                   const std::vector<double>& bound,
                   const char* what) {
    ASSERT_EQ(got.size(), want.size()) << what;
    int shown = 0;
    for (std::size_t i = 0; i < got.size() && shown < 5; ++i)
        if (!(std::abs(as_double(got[i]) - want[i]) <= bound[i])) {
            ADD_FAILURE() << what << "[" << i << "] is " << as_double(got[i]) << ", should be " << want[i]
                          << " within " << bound[i];
            ++shown;
        }
}

}  // namespace llmgen::simt
