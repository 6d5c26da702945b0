// Which element of a matrix tile each register of each lane holds, as data: what the emulator computes with,
// what the tests read, and what tools/gpu_check compares with the hardware.
//
//   mma.m16n8k16, 16-bit operands: A is 16 x 16 row-major (4 registers = 8 elements a lane), B is 16 x 8
//   given by columns (2 registers = 4 elements), C and D are 16 x 8 in f32 (4 elements). With g = lane / 4
//   and q = lane % 4:
//     A: rows g (elements 0 1 4 5) and g + 8 (2 3 6 7); columns 2q, 2q + 1 (0..3) and 8 more (4..7)
//     B: column g; rows 2q, 2q + 1 (0 1) and 8 more (2 3)
//     C: rows g (0 1) and g + 8 (2 3); columns 2q, 2q + 1
//   ldmatrix: of each 8 x 8 tile, lane gets row g, columns 2q and 2q + 1 (transposed: rows 2q and 2q + 1 of
//   column g).
#pragma once

#include <array>
#include <cstddef>

namespace llmgen::simt {

struct Element {
    int row, col;
    friend constexpr bool operator==(const Element&, const Element&) = default;
};

template <std::size_t N>
using FragmentMap = std::array<std::array<Element, N>, 32>;

namespace detail {
constexpr FragmentMap<8> make_a() {
    FragmentMap<8> map{};
    for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 8; ++i)
            map[std::size_t(lane)][std::size_t(i)] = {lane / 4 + i / 2 % 2 * 8,
                                                      lane % 4 * 2 + i % 2 + i / 4 * 8};
    return map;
}
constexpr FragmentMap<4> make_b() {
    FragmentMap<4> map{};
    for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 4; ++i)
            map[std::size_t(lane)][std::size_t(i)] = {lane % 4 * 2 + i % 2 + i / 2 * 8, lane / 4};
    return map;
}
constexpr FragmentMap<4> make_c() {
    FragmentMap<4> map{};
    for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 4; ++i)
            map[std::size_t(lane)][std::size_t(i)] = {lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2};
    return map;
}
constexpr FragmentMap<2> make_tile() {
    FragmentMap<2> map{};
    for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 2; ++i) map[std::size_t(lane)][std::size_t(i)] = {lane / 4, lane % 4 * 2 + i};
    return map;
}
}  // namespace detail

inline constexpr FragmentMap<8> kMmaA = detail::make_a();         // (row, k)
inline constexpr FragmentMap<4> kMmaB = detail::make_b();         // (k, column)
inline constexpr FragmentMap<4> kMmaC = detail::make_c();         // (row, column)
inline constexpr FragmentMap<2> kLdmatrix = detail::make_tile();  // (row, column) of one 8 x 8 tile

}  // namespace llmgen::simt
