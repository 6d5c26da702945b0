// The hardware's side of the seam that device.h draws: the only home of PTX, one instruction a wrapper.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>
#include <utility>

#include "base/dtype.h"
#include "common/launch.h"

#define SHARED_ARRAY(T, name, n) __shared__ __align__(16) T name[n]
#define SHARED_DYNAMIC(T, name)                              \
    extern __shared__ __align__(128) char dynamic_shared_[]; \
    T* const name = reinterpret_cast<T*>(dynamic_shared_)

namespace llmgen::kernels {

struct alignas(16) Vec16 {
    std::uint32_t w[4];
};
struct alignas(8) Vec8 {
    std::uint32_t w[2];
};

__device__ __forceinline__ void sync_block() { __syncthreads(); }
__device__ __forceinline__ void sync_warp(unsigned mask = 0xffffffffu) { __syncwarp(mask); }
template <typename T>
__device__ __forceinline__ T shfl(T value, int lane, unsigned mask = 0xffffffffu) {
    return __shfl_sync(mask, value, lane);
}
template <typename T>
__device__ __forceinline__ T shfl_xor(T value, int bits, unsigned mask = 0xffffffffu) {
    return __shfl_xor_sync(mask, value, bits);
}
template <typename T>
__device__ __forceinline__ T shfl_up(T value, int distance, unsigned mask = 0xffffffffu) {
    return __shfl_up_sync(mask, value, unsigned(distance));
}
template <typename T>
__device__ __forceinline__ T shfl_down(T value, int distance, unsigned mask = 0xffffffffu) {
    return __shfl_down_sync(mask, value, unsigned(distance));
}
__device__ __forceinline__ unsigned ballot(bool predicate, unsigned mask = 0xffffffffu) {
    return __ballot_sync(mask, predicate);
}

template <typename T>
__device__ __forceinline__ T atomic_add(T* p, T value) {
    return atomicAdd(p, value);
}
template <typename T>
__device__ __forceinline__ T atomic_max(T* p, T value) {
    return atomicMax(p, value);
}
template <typename T>
__device__ __forceinline__ T atomic_exchange(T* p, T value) {
    return atomicExch(p, value);
}
__device__ __forceinline__ void fence_grid() { __threadfence(); }

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
    return std::uint32_t(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ Vec16 load16(const void* p) { return *static_cast<const Vec16*>(p); }
__device__ __forceinline__ Vec8 load8(const void* p) { return *static_cast<const Vec8*>(p); }
/// For weights: read once, so they should not push anything out of L1. Not `.nc`, which would let ptxas move
/// a grid dependency's wait ahead of loads that are there to be under way before it (it did).
__device__ __forceinline__ Vec16 load16_stream(const void* p) {
    Vec16 v;
    asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "l"(p));
    return v;
}
/// Past L1: for what other blocks of the same launch may have written.
__device__ __forceinline__ float load_l2(const float* p) {
    float value;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(p) : "memory");
    return value;
}
__device__ __forceinline__ void store16(void* p, Vec16 value) { *static_cast<Vec16*>(p) = value; }
__device__ __forceinline__ void store8(void* p, Vec8 value) { *static_cast<Vec8*>(p) = value; }
/// Keeps the compiler from sinking a load past this point.
__device__ __forceinline__ void keep(Vec16& v) {
    asm volatile("" : "+r"(v.w[0]), "+r"(v.w[1]), "+r"(v.w[2]), "+r"(v.w[3])::"memory");
}

__device__ __forceinline__ void cp_async_16(void* dst, const void* src) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(dst)), "l"(src) : "memory");
}
/// Copies 16 bytes, or writes 16 zeros without touching `src` when `copy` is false.
__device__ __forceinline__ void cp_async_16_or_zero(void* dst, const void* src, bool copy) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(dst)), "l"(src),
                 "r"(copy ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kGroupsLeft>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kGroupsLeft) : "memory");
}

__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

__device__ __forceinline__ void mma_bf16(float (&d)[4],
                                         const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_f16(float (&d)[4],
                                        const std::uint32_t (&a)[4],
                                        const std::uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/// d += a · b, 16 x 8 += 16 x 16 · 16 x 8, f32 accumulators.
template <typename T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4],
                                             const std::uint32_t (&a)[4],
                                             const std::uint32_t (&b)[2]) {
    if constexpr (std::is_same_v<T, bf16>)
        mma_bf16(d, a, b);
    else
        mma_f16(d, a, b);
}

__device__ __forceinline__ void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void grid_dependency_trigger() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ __forceinline__ float as_f32(float value) { return value; }
__device__ __forceinline__ float as_f32(bf16 value) {
    return __uint_as_float(std::uint32_t(value.bits) << 16);
}
__device__ __forceinline__ float as_f32(f16 value) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
}
__device__ __forceinline__ float bits_to_f32(std::uint32_t bits) { return __uint_as_float(bits); }
__device__ __forceinline__ std::uint32_t f32_to_bits(float value) { return __float_as_uint(value); }
template <typename T>
__device__ __forceinline__ T from_f32(float value) {
    if constexpr (std::is_same_v<T, float>) {
        return value;
    } else {
        T result;
        if constexpr (std::is_same_v<T, bf16>)
            asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
        else
            asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
        return result;
    }
}
/// Two values in one register, the first in the low half.
template <typename T>
__device__ __forceinline__ std::uint32_t pack2(float low, float high) {
    std::uint32_t result;
    if constexpr (std::is_same_v<T, bf16>)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
}

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float rsqrt_f32(float x) { return 1.0f / sqrtf(x); }
__device__ __forceinline__ float fma_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// One rounding each; never contracted.
__device__ __forceinline__ float add_rn(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float sub_rn(float a, float b) { return __fsub_rn(a, b); }
__device__ __forceinline__ float mul_rn(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float max_f32(float a, float b) { return fmaxf(a, b); }

/// Whether the current device lets a launch of this kernel start before the one before it has ended.
template <typename Kernel>
bool overlaps_launches(Kernel* kernel) {
    int device = 0, major = 0, driver = 0;
    cudaFuncAttributes code{};
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
           cudaDriverGetVersion(&driver) == cudaSuccess && major >= 9 &&
           cudaFuncGetAttributes(&code, kernel) == cudaSuccess && may_overlap(major, code.ptxVersion, driver);
}

/// Launches; an error is kept by the runtime and found by the caller's check.
template <typename... Parameters, typename... Arguments>
void launch(const char*,
            void (*kernel)(Parameters...),
            const Shape& shape,
            Dependent dependent,
            Stream stream,
            Arguments... arguments) {
    const auto answers =
        answers_of(stream, reinterpret_cast<const void*>(kernel), shared_to_ask_for(shape), [&](auto& found) {
            found.overlaps = overlaps_launches(kernel);
            return found.shared == 0 ||
                   cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        int(found.shared)) == cudaSuccess;
        });
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(shape.grid_x, shape.grid_y, shape.grid_z);
    config.blockDim = dim3(shape.threads);
    config.dynamicSmemBytes = shape.dynamic_shared;
    config.stream = stream.handle;
    config.attrs = &attribute;
    config.numAttrs = dependent == Dependent::yes && answers.overlaps ? 1 : 0;
    cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

}  // namespace llmgen::kernels
