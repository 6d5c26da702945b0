// The emulator's side of the seam that kernels/common/device.h draws: the same names that the hardware side
// gives, for g++. Kernels include common/device.h, never this.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/dtype.h"
#include "simt/machine.h"
#include "simt/warp_ops.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define threadIdx (::llmgen::simt::Machine::get().current().index)
#define blockIdx (::llmgen::simt::Machine::get().current().block->index)
#define blockDim (::llmgen::simt::Machine::get().current().block->launch->block)
#define gridDim (::llmgen::simt::Machine::get().current().block->launch->grid)

// The address of the static tells instantiations apart, as __shared__ does.
#define SHARED_ARRAY(T, name, n)                                                 \
    static char name##_key_;                                                     \
    constexpr std::size_t name##_bytes_ = sizeof(T) * (n);                       \
    T* const name = static_cast<T*>(::llmgen::simt::Machine::get().shared_array( \
        &name##_key_, name##_bytes_, ::llmgen::simt::Site::here()))
#define SHARED_DYNAMIC(T, name) \
    T* const name = static_cast<T*>(::llmgen::simt::Machine::get().current().block->shared.dynamic())

namespace llmgen::kernels {

using simt::Machine;
using simt::Site;

struct alignas(16) Vec16 {
    std::uint32_t w[4];
};
struct alignas(8) Vec8 {
    std::uint32_t w[2];
};

inline void sync_block(Site site = Site::here()) { Machine::get().barrier(site); }
inline void sync_warp(unsigned mask = simt::kFullMask, Site site = Site::here()) {
    Machine::get().collective(simt::sync_op, nullptr, mask, site);
}

template <typename T>
T shfl(T value, int lane, unsigned mask = simt::kFullMask, Site site = Site::here()) {
    return simt::shuffle(mask, value, lane, site);
}
template <typename T>
T shfl_xor(T value, int bits, unsigned mask = simt::kFullMask, Site site = Site::here()) {
    return simt::shuffle(mask, value, Machine::get().current().lane ^ bits, site);
}
template <typename T>
T shfl_up(T value, int distance, unsigned mask = simt::kFullMask, Site site = Site::here()) {
    const int lane = Machine::get().current().lane;
    return simt::shuffle(mask, value, lane < distance ? lane : lane - distance, site);
}
template <typename T>
T shfl_down(T value, int distance, unsigned mask = simt::kFullMask, Site site = Site::here()) {
    const int lane = Machine::get().current().lane;
    return simt::shuffle(mask, value, lane + distance > 31 ? lane : lane + distance, site);
}
inline unsigned ballot(bool predicate, unsigned mask = simt::kFullMask, Site site = Site::here()) {
    simt::VoteOperand operand{predicate, 0};
    Machine::get().collective(simt::vote_op, &operand, mask, site);
    return operand.ballot;
}

// One thread runs at a time, so plain read-modify-write is atomic; what an atomic is for shows in the orders.
template <typename T>
T atomic_add(T* p, T value) {
    const T old = *p;
    *p = T(old + value);
    return old;
}
template <typename T>
T atomic_max(T* p, T value) {
    const T old = *p;
    if (value > old) *p = value;
    return old;
}
template <typename T>
T atomic_exchange(T* p, T value) {
    return std::exchange(*p, value);
}
inline void fence_grid() {}

inline Vec16 load16(const void* p, Site site = Site::here()) {
    Machine::get().check_aligned(p, 16, "a 16-byte load", site);
    Machine::get().access_global(p, 16, site);
    return *static_cast<const Vec16*>(p);
}
inline Vec8 load8(const void* p, Site site = Site::here()) {
    Machine::get().check_aligned(p, 8, "an 8-byte load", site);
    Machine::get().access_global(p, 8, site);
    return *static_cast<const Vec8*>(p);
}
inline Vec16 load16_stream(const void* p, Site site = Site::here()) { return load16(p, site); }
/// Past L1; there is none here.
inline float load_l2(const float* p) { return *p; }
inline void store16(void* p, Vec16 value, Site site = Site::here()) {
    Machine::get().check_aligned(p, 16, "a 16-byte store", site);
    Machine::get().access_global(p, 16, site);
    *static_cast<Vec16*>(p) = value;
}
inline void store8(void* p, Vec8 value, Site site = Site::here()) {
    Machine::get().check_aligned(p, 8, "an 8-byte store", site);
    Machine::get().access_global(p, 8, site);
    *static_cast<Vec8*>(p) = value;
}
/// Keeps the compiler from sinking a load past this point; nothing to keep here.
inline void keep(Vec16&) {}

inline void cp_async_16(void* dst, const void* src, Site site = Site::here()) {
    Machine::get().copy_async(dst, src, 16, site);
}
/// Copies 16 bytes, or writes 16 zeros without touching `src` when `copy` is false.
inline void cp_async_16_or_zero(void* dst, const void* src, bool copy, Site site = Site::here()) {
    Machine::get().copy_async(dst, src, copy ? 16 : 0, site);
}
inline void cp_async_commit() { Machine::get().copy_commit(); }
template <int kGroupsLeft>
void cp_async_wait() {
    Machine::get().copy_wait(kGroupsLeft);
}

inline void ldmatrix_x4(std::uint32_t (&r)[4], const void* row, Site site = Site::here()) {
    Machine::get().check_aligned(row, 16, "an ldmatrix row", site);
    simt::LdmatrixOperand operand{r, row};
    Machine::get().collective(simt::ldmatrix_op, &operand, simt::kFullMask, site);
}
inline void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row, Site site = Site::here()) {
    Machine::get().check_aligned(row, 16, "an ldmatrix row", site);
    simt::LdmatrixOperand operand{r, row};
    Machine::get().collective(simt::ldmatrix_trans_op, &operand, simt::kFullMask, site);
}
/// d += a · b, 16 x 8 += 16 x 16 · 16 x 8, f32 accumulators.
template <typename T>
void mma_m16n8k16(float (&d)[4],
                  const std::uint32_t (&a)[4],
                  const std::uint32_t (&b)[2],
                  Site site = Site::here()) {
    simt::MmaOperand operand{d, a, b};
    Machine::get().collective(std::is_same_v<T, bf16> ? simt::mma_bf16_op : simt::mma_f16_op, &operand,
                              simt::kFullMask, site);
}

inline void grid_dependency_wait(Site site = Site::here()) { Machine::get().dependency_wait(site); }
inline void grid_dependency_trigger() {}

template <typename T>
T from_f32(float value) {
    if constexpr (std::is_same_v<T, bf16>)
        return to_bf16(value);
    else if constexpr (std::is_same_v<T, f16>)
        return to_f16(value);
    else
        return value;
}
inline float as_f32(float value) { return value; }
inline float as_f32(bf16 value) { return to_f32(value); }
inline float as_f32(f16 value) { return to_f32(value); }
inline float bits_to_f32(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline std::uint32_t f32_to_bits(float value) { return std::bit_cast<std::uint32_t>(value); }
/// Two values in one register, the first in the low half.
template <typename T>
std::uint32_t pack2(float low, float high) {
    return std::uint32_t(from_f32<T>(low).bits) | std::uint32_t(from_f32<T>(high).bits) << 16;
}

inline float exp2_fast(float x) { return std::exp2(x); }
inline float rsqrt_f32(float x) { return 1.0f / std::sqrt(x); }
// One rounding as the hardware's where the build asks for it, else two, which is faster on a CPU without the
// instruction.
#ifdef LLMGEN_FUSED_FMA
inline float fma_f32(float a, float b, float c) { return std::fma(a, b, c); }
#else
inline float fma_f32(float a, float b, float c) { return a * b + c; }
#endif
inline float add_rn(float a, float b) { return a + b; }
inline float sub_rn(float a, float b) { return a - b; }
inline float mul_rn(float a, float b) { return a * b; }
inline float max_f32(float a, float b) { return a > b ? a : b; }

}  // namespace llmgen::kernels
