// Row loops for every instruction set that Highway knows.
#include "ops/cpu/row_kernels.h"

#include <algorithm>
#include <cmath>

#include "ops/batch.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/row_kernels.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include "ops/cpu/simd-inl.h"
#include "ops/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace llmgen::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// In f64: a sum of 8192 squares in f32 would already cost more than the 2 ulp that the contract grants.
double sum_of_squares(const float* x, std::int64_t n) {
    using DF64 = hn::CappedTag<double, 8>;
    const DF64 d;
    const hn::Rebind<float, DF64> half;
    constexpr int kStep = int(hn::MaxLanes(DF64()));
    auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
    std::int64_t i = 0;
    for (; i + 2 * kStep <= n; i += 2 * kStep) {
        const auto a = hn::PromoteTo(d, hn::LoadU(half, x + i)),
                   b = hn::PromoteTo(d, hn::LoadU(half, x + i + kStep));
        sum0 = hn::MulAdd(a, a, sum0);
        sum1 = hn::MulAdd(b, b, sum1);
    }
    double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
    for (; i < n; ++i) sum += double(x[i]) * x[i];
    return sum;
}

void rmsnorm(void* out, DType type, const float* x, const float* weight, std::int64_t n, float eps) {
    const DF32 d;
    const auto scale = float(1 / std::sqrt(sum_of_squares(x, n) / double(n) + eps));
    const F32 s = hn::Set(d, scale);
    std::int64_t i = 0;
    if (type == DType::f32) {
        auto* to = static_cast<float*>(out);
        for (; i + kLanes <= n; i += kLanes)
            hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), s), hn::LoadU(d, weight + i)), d, to + i);
        for (; i < n; ++i) to[i] = x[i] * scale * weight[i];
        return;
    }
    auto* to = static_cast<bf16*>(out);
    for (; i + kLanes <= n; i += kLanes) {
        const F32 rounded = low_bf16(round_bf16(hn::Mul(hn::LoadU(d, x + i), s)));
        store_bf16(to + i, hn::Mul(rounded, hn::LoadU(d, weight + i)));
    }
    for (; i < n; ++i) to[i] = to_bf16(to_f32(to_bf16(x[i] * scale)) * weight[i]);
}

void rotate(float* head, const float* cos, const float* sin, int half) {
    const DF32 d;
    int i = 0;
    for (; i + kLanes <= half; i += kLanes) {
        const F32 a = hn::LoadU(d, head + i), b = hn::LoadU(d, head + half + i);
        const F32 c = hn::LoadU(d, cos + i), s = hn::LoadU(d, sin + i);
        hn::StoreU(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, head + i);
        hn::StoreU(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, head + half + i);
    }
    for (; i < half; ++i) {
        const float a = head[i], b = head[half + i];
        head[i] = a * cos[i] - b * sin[i];
        head[half + i] = b * cos[i] + a * sin[i];
    }
}

void find_largest(Largest& found, const float* values, int first, int n) {
    const DF32 d;
    const F32 most = hn::Set(d, std::numeric_limits<float>::max());
    F32 largest = hn::Set(d, -std::numeric_limits<float>::infinity());
    auto sound = hn::Le(largest, most);
    float rest = -std::numeric_limits<float>::infinity();
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        const F32 v = hn::LoadU(d, values + i);
        sound = hn::And(sound, hn::Le(v, most));
        largest = hn::IfThenElse(hn::Gt(v, largest), v, largest);
    }
    for (; i < n; ++i) {
        found.sound &= values[i] <= std::numeric_limits<float>::max();
        rest = values[i] > rest ? values[i] : rest;
    }
    found.sound &= hn::AllTrue(d, sound);
    const float value = std::max(rest, hn::GetLane(hn::MaxOfLanes(d, largest)));
    if (!(value > found.value)) return;
    found.value = value;
    found.at = first;
    while (values[found.at - first] != value) ++found.at;
}

void store_kv(
    void* k_block, void* v_block, DType type, const float* k, const float* v, int row, int head_dim) {
    if (type == DType::f32) {
        auto* to_k = static_cast<float*>(k_block) + row;
        auto* to_v = static_cast<float*>(v_block) + std::int64_t(row) * head_dim;
        for (int i = 0; i < head_dim; ++i) to_k[i * kPageSize] = k[i];
        for (int i = 0; i < head_dim; ++i) to_v[i] = v[i];
        return;
    }
    alignas(64) bf16 rounded[512];
    auto* to_k = static_cast<bf16*>(k_block) + 2 * row;
    auto* to_v = static_cast<bf16*>(v_block) + std::int64_t(row / 2) * 2 * head_dim + row % 2;
    for (int begin = 0; begin < head_dim; begin += 512) {  // an even number: pairs stay together
        const int n = head_dim - begin < 512 ? head_dim - begin : 512;
        store_bf16(rounded, k + begin, n);
        for (int i = 0; i < n; i += 2) {
            to_k[(begin + i) * kPageSize] = rounded[i];
            to_k[(begin + i) * kPageSize + 1] = rounded[i + 1];
        }
        store_bf16(rounded, v + begin, n);
        int i = 0;
#if HWY_TARGET == HWY_AVX3
        // Masked stores write the chosen halves alone: the others may be another thread's, at this moment.
        const DU32 du;
        const hn::Repartition<std::uint16_t, DU32> du16;
        const hn::Rebind<std::uint16_t, DU32> half;
        const auto upper = hn::MaskFromVec(hn::BitCast(du16, hn::Set(du, 0xffff0000u)));
        const auto* from = reinterpret_cast<const std::uint16_t*>(rounded);
        auto* pairs = reinterpret_cast<std::uint16_t*>(to_v - row % 2 + 2 * begin);
        for (; i + kLanes <= n; i += kLanes) {
            const U32 wide = hn::PromoteTo(du, hn::LoadU(half, from + i));
            const auto both = hn::BitCast(du16, hn::Or(wide, hn::ShiftLeft<16>(wide)));
            hn::BlendedStore(both, row % 2 ? upper : hn::Not(upper), du16, pairs + 2 * i);
        }
#endif
        for (; i < n; ++i) to_v[2 * (begin + i)] = rounded[i];
    }
}

void prefetch_kv(const void* k_block, const void* v_block, DType type, int row, int head_dim) {
    // A key has a value in each line of its block (f32: in each of twice as many), a value lies in one piece.
    const auto* k = static_cast<const char*>(k_block) + row * 4;
    for (int i = 0; i < (type == DType::f32 ? head_dim : head_dim / 2); ++i)
        __builtin_prefetch(k + i * kPageSize * 4, 1);
    const std::int64_t bytes = std::int64_t(head_dim) * 4;  // of a row of f32, and of a pair of rows of bf16
    const auto* v = static_cast<const char*>(v_block) + (type == DType::f32 ? row : row / 2) * bytes;
    for (std::int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(v + i, 1);
}

RowKernels make_row_kernels() {
    RowKernels kernels;
    kernels.rmsnorm = &rmsnorm;
    kernels.rotate = &rotate;
    kernels.find_largest = &find_largest;
    kernels.store_kv = &store_kv;
    kernels.prefetch_kv = &prefetch_kv;
    return kernels;
}

}  // namespace llmgen::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace llmgen::cpu {
HWY_EXPORT(make_row_kernels);
RowKernels row_kernels(Isa isa) {
    RowKernels kernels = HWY_DISPATCH_TABLE(make_row_kernels)[target_index(isa)]();
    if (isa >= Isa::avx512_bf16) use_avx512bf16(kernels);
    return kernels;
}
}  // namespace llmgen::cpu
#endif
