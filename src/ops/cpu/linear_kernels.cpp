// Tile kernels and epilogues for every instruction set that Highway knows.
#include "ops/cpu/linear_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/linear_kernels.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include "ops/cpu/simd-inl.h"
#include "ops/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace llmgen::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kVectors = kPanel / kLanes;  // of one panel row
// Rows a tile: accumulators + weights + one broadcast must fit the registers (32, 16, 16).
constexpr int kTileRows = kLanes == 16 ? 12 : kLanes == 8 ? 6 : kLanes == 4 ? 1 : 1;
// Vectors of the panel that a tile does at once. With 16 registers, 4 and 6 rows take half a panel after the
// other: a bf16 is widened for twice as many rows than by tiles of 3 whole panels, and nothing is spilled.
template <int kRows>
constexpr int kAtOnce = kLanes == 8 && kRows > 3 ? kVectors / 2 : kVectors;

template <int kRows, int kCount>
HWY_INLINE void accumulate(F32 (&acc)[kRows][kCount], const F32 (&w)[kCount], const float* HWY_RESTRICT x) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
        const F32 xr = hn::Set(DF32(), x[r]);
#pragma GCC unroll 32
        for (int v = 0; v < kCount; ++v) acc[r][v] = hn::MulAdd(w[v], xr, acc[r][v]);
    }
}

template <bool kAdd, int kRows, int kCount>
HWY_INLINE void store_tile(float* out, std::int64_t stride, const F32 (&acc)[kRows][kCount]) {
    const DF32 d;
    for (int r = 0; r < kRows; ++r, out += stride)
        for (int v = 0; v < kCount; ++v) {
            float* to = out + v * kLanes;
            hn::StoreU(kAdd ? hn::Add(acc[r][v], hn::LoadU(d, to)) : acc[r][v], d, to);
        }
}

template <int kRows, bool kAdd>
void tile_f32(float* out,
              std::int64_t stride,
              const void* panel,
              const void* x_packed,
              std::int64_t depth,
              Ahead ahead) {
    const DF32 d;
    constexpr int kCount = kAtOnce<kRows>;
    for (int first = 0; first < kVectors; first += kCount, ahead.step = 0) {
        const float* HWY_RESTRICT weight = static_cast<const float*>(panel) + first * kLanes;
        const float* HWY_RESTRICT x = static_cast<const float*>(x_packed);
        F32 acc[kRows][kCount];
        for (auto& row : acc)
            for (auto& a : row) a = hn::Zero(d);
        for (std::int64_t i = 0; i < depth; ++i, weight += kPanel, x += kRows, ahead.at += ahead.step) {
            prefetch_128(ahead.at);
            F32 w[kCount];
#pragma GCC unroll 32
            for (int v = 0; v < kCount; ++v) w[v] = hn::LoadU(d, weight + v * kLanes);
            accumulate(acc, w, x);
        }
        store_tile<kAdd>(out + first * kLanes, stride, acc);
    }
}

template <int kRows, bool kAdd>
void tile_bf16(float* out,
               std::int64_t stride,
               const void* panel,
               const void* x_packed,
               std::int64_t depth,
               Ahead ahead) {
    const DF32 d;
    const DU32 du;
    constexpr int kCount = kAtOnce<kRows>;
    for (int first = 0; first < kVectors; first += kCount, ahead.step = 0) {
        // Pairs of bf16.
        const std::uint32_t* HWY_RESTRICT weight = static_cast<const std::uint32_t*>(panel) + first * kLanes;
        const float* HWY_RESTRICT x = static_cast<const float*>(x_packed);
        F32 acc[kRows][kCount];
        for (auto& row : acc)
            for (auto& a : row) a = hn::Zero(d);
        for (std::int64_t i = 0; i < depth;
             i += 2, weight += kPanel, x += 2 * kRows, ahead.at += ahead.step) {
            prefetch_128(ahead.at);
            F32 even[kCount], odd[kCount];
#pragma GCC unroll 32
            for (int v = 0; v < kCount; ++v) {
                const auto pair = hn::LoadU(du, weight + v * kLanes);
                even[v] = low_bf16(pair);
                odd[v] = high_bf16(pair);
            }
            accumulate(acc, even, x);
            accumulate(acc, odd, x + kRows);
        }
        store_tile<kAdd>(out + first * kLanes, stride, acc);
    }
}

template <int kRows>
void add_tiles(LinearKernels& kernels, bool bf16_weight) {
    if constexpr (kRows <= kTileRows) {
        kernels.tile[kRows] = bf16_weight ? &tile_bf16<kRows, false> : &tile_f32<kRows, false>;
        kernels.tile_add[kRows] = bf16_weight ? &tile_bf16<kRows, true> : &tile_f32<kRows, true>;
    }
}

LinearKernels make_kernels(bool bf16_weight) {
    LinearKernels kernels;
    add_tiles<1>(kernels, bf16_weight);
    add_tiles<2>(kernels, bf16_weight);
    add_tiles<3>(kernels, bf16_weight);
    add_tiles<4>(kernels, bf16_weight);
    add_tiles<6>(kernels, bf16_weight);
    add_tiles<8>(kernels, bf16_weight);
    add_tiles<12>(kernels, bf16_weight);
    return kernels;
}

/// Values of one vector of outputs: sums with their bias, gated by silu or added to what stands in `x`.
template <TileOutput::Kind kKind>
HWY_INLINE F32 finished(const TileOutput& out, const float* sums, const float* up, const float* x, int i) {
    const DF32 d;
    F32 s = hn::LoadU(d, sums + i);
    if (out.bias) s = hn::Add(s, hn::LoadU(d, out.bias + i));
    if constexpr (kKind == TileOutput::Kind::swiglu) {
        F32 u = hn::LoadU(d, up + i);
        if (out.up_bias) u = hn::Add(u, hn::LoadU(d, out.up_bias + i));
        s = hn::Mul(silu(s), u);
    }
    if constexpr (kKind == TileOutput::Kind::add) s = hn::Add(s, hn::LoadU(d, x + i));
    return s;
}

/// A panel of fewer than 32 outputs: through a buffer, so that nothing beyond them is read or written.
template <TileOutput::Kind kKind>
void finish_part(const TileOutput& out, int row, const float* sums, const float* up) {
    alignas(64) float values[kPanel], x[kPanel] = {};
    auto* to = static_cast<float*>(out.data) + row * out.stride;
    if constexpr (kKind == TileOutput::Kind::add)
        for (int i = 0; i < out.width; ++i) x[i] = to[i];
    for (int i = 0; i < kPanel; i += kLanes)
        hn::Store(finished<kKind>(out, sums, up, x, i), DF32(), values + i);
    if (out.type == DType::bf16)
        store_bf16(static_cast<bf16*>(out.data) + row * out.stride, values, out.width);
    else
        for (int i = 0; i < out.width; ++i) to[i] = values[i];
}

template <TileOutput::Kind kKind, DType kType>
void finish_rows(const TileOutput& out, const float* sums, const float* up) {
    for (int r = 0; r < out.rows; ++r, sums += kPanel, up += up ? kPanel : 0) {
        if (out.width < kPanel) {
            finish_part<kKind>(out, r, sums, up);
            continue;
        }
        const std::int64_t at = r * out.stride;
#pragma GCC unroll 2
        for (int i = 0; i < kPanel; i += kLanes) {
            if constexpr (kType == DType::bf16) {
                store_bf16(static_cast<bf16*>(out.data) + at + i, finished<kKind>(out, sums, up, nullptr, i));
            } else {
                float* to = static_cast<float*>(out.data) + at;
                hn::StoreU(finished<kKind>(out, sums, up, to, i), DF32(), to + i);
            }
        }
    }
}

template <TileOutput::Kind kKind>
void finish_kind(const TileOutput& out, const float* sums, const float* up) {
    if (out.type == DType::bf16)
        finish_rows<kKind, DType::bf16>(out, sums, up);
    else
        finish_rows<kKind, DType::f32>(out, sums, up);
}

void finish(const TileOutput& out, const float* sums, const float* up) {
    switch (out.kind) {
        case TileOutput::Kind::store:
            return finish_kind<TileOutput::Kind::store>(out, sums, up);
        case TileOutput::Kind::add:
            return finish_rows<TileOutput::Kind::add, DType::f32>(out, sums, up);
        case TileOutput::Kind::swiglu:
            return finish_kind<TileOutput::Kind::swiglu>(out, sums, up);
    }
}

}  // namespace llmgen::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace llmgen::cpu {

HWY_EXPORT(make_kernels);
HWY_EXPORT(finish);

LinearKernels linear_kernels(DType weight, DType act, Isa isa) {
    if (weight == DType::bf16 && act == DType::bf16 && isa >= Isa::avx512_bf16)
        return linear_kernels_avx512bf16();
    return HWY_DISPATCH_TABLE(make_kernels)[target_index(isa)](weight == DType::bf16);
}

FinishTile finish_tile(Isa isa) { return HWY_DISPATCH_TABLE(finish)[target_index(isa)]; }

FinishTile finish_swiglu_bf16(Isa isa) {
    return isa >= Isa::avx512_bf16 ? finish_swiglu_avx512bf16() : nullptr;
}

}  // namespace llmgen::cpu
#endif
