// What the files of rules share. Each adds its opcodes to one table, rules.cpp's.
#pragma once

#include <cmath>
#include <string>
#include <unordered_map>

#include "ptx/context.h"

namespace llmgen::ptx {

using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

using Table = std::unordered_map<std::string, Rule>;

void add_number_rules(Table&);  // arithmetic, comparison, conversion
void add_memory_rules(Table&);  // moves, loads, stores, atomics, asynchronous copies
void add_warp_rules(Table&);    // control, shuffles, barriers, matrices

/// A NaN as the hardware gives it.
template <typename T>
T canonical(T value) {
    if constexpr (std::is_same_v<T, float>) {
        if (std::isnan(value)) return std::bit_cast<float>(0x7fffffffu);
    } else if constexpr (std::is_same_v<T, double>) {
        if (std::isnan(value)) return std::bit_cast<double>(0x7fffffffffffffffull);
    }
    return value;
}

template <typename To, typename From, auto F>
void unary(Context& c, const Op& o) {
    c.set<To>(o.d, canonical<To>(F(c.get<From>(o.a))));
    c.U[o.d] = c.U[o.a];
}
template <typename T>
T minimum(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
        if (std::isnan(a)) return b;
        if (std::isnan(b)) return a;
        if (a == 0 && b == 0) return std::signbit(a) ? a : b;
    }
    return a < b ? a : b;
}
template <typename T>
T maximum(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
        if (std::isnan(a)) return b;
        if (std::isnan(b)) return a;
        if (a == 0 && b == 0) return std::signbit(a) ? b : a;
    }
    return a > b ? a : b;
}
}  // namespace llmgen::ptx
