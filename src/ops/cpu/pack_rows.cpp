// A transposition of 32-bit units (an f32, or a pair of bf16), four rows by four units at a time.
#include "ops/cpu/pack_rows.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/pack_rows.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include "ops/cpu/simd-inl.h"
#include "ops/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace llmgen::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kChunk = 128;  // values of each row that are converted at a time
constexpr int kMaxRows = 12;

/// to [n_units][n_rows] from n_rows streams.
void transpose(std::uint32_t* HWY_RESTRICT to, const char* const* rows, int n_rows, std::int64_t n_units) {
    int r = 0;
#if HWY_TARGET != HWY_SCALAR
    const hn::CappedTag<std::uint32_t, 4> d4;
    const hn::Repartition<std::uint64_t, decltype(d4)> d2;
    const hn::Repartition<std::uint8_t, decltype(d4)> d_bytes;
    for (; r + 4 <= n_rows; r += 4) {
        const char *a = rows[r], *b = rows[r + 1], *c = rows[r + 2], *e = rows[r + 3];
        std::int64_t i = 0;
        const auto load = [&](const char* row) HWY_ATTR {
            return hn::BitCast(d4, hn::LoadU(d_bytes, reinterpret_cast<const std::uint8_t*>(row) + 4 * i));
        };
        for (; i + 4 <= n_units; i += 4) {
            const auto va = load(a), vb = load(b), vc = load(c), ve = load(e);
            const auto ab01 = hn::BitCast(d2, hn::InterleaveLower(d4, va, vb));
            const auto ab23 = hn::BitCast(d2, hn::InterleaveUpper(d4, va, vb));
            const auto ce01 = hn::BitCast(d2, hn::InterleaveLower(d4, vc, ve));
            const auto ce23 = hn::BitCast(d2, hn::InterleaveUpper(d4, vc, ve));
            std::uint32_t* out = to + i * n_rows + r;
            hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d2, ab01, ce01)), d4, out);
            hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d2, ab01, ce01)), d4, out + n_rows);
            hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d2, ab23, ce23)), d4, out + 2 * n_rows);
            hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d2, ab23, ce23)), d4, out + 3 * n_rows);
        }
        for (; i < n_units; ++i) {
            std::uint32_t* out = to + i * n_rows + r;
            for (int j = 0; j < 4; ++j) std::memcpy(out + j, rows[r + j] + 4 * i, 4);
        }
    }
#endif
    for (; r < n_rows; ++r)
        for (std::int64_t i = 0; i < n_units; ++i) std::memcpy(to + i * n_rows + r, rows[r] + 4 * i, 4);
}

void to_f32_row(float* to, const bf16* from, std::int64_t n) {
    const DF32 d;
    const hn::Rebind<std::uint16_t, DU32> du16;
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        const U32 wide =
            hn::PromoteTo(DU32(), hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(from + i)));
        hn::StoreU(low_bf16(wide), d, to + i);
    }
    for (; i < n; ++i) to[i] = to_f32(from[i]);
}

/// Chunk by chunk: each row's values in the packed type (a copy only where the type differs or the end is
/// odd), then the transposition.
void pack(void* packed, DType type, const void* const* rows, DType source_type, int n_rows, std::int64_t n) {
    alignas(64) std::uint32_t converted[kMaxRows][kChunk];
    const char* units[kMaxRows];  // rows need no alignment
    const std::int64_t per_unit = type == DType::bf16 ? 2 : 1;
    auto* to = static_cast<std::uint32_t*>(packed);
    for (std::int64_t begin = 0; begin < n; begin += kChunk) {
        const std::int64_t count = n - begin < kChunk ? n - begin : kChunk;
        const bool odd = count % per_unit != 0;
        for (int r = 0; r < n_rows; ++r) {
            const char* from = static_cast<const char*>(rows[r]) + begin * std::int64_t(size_of(source_type));
            units[r] = reinterpret_cast<const char*>(converted[r]);
            if (type == source_type && !odd) {
                units[r] = from;
            } else if (type == source_type) {
                converted[r][count / 2] = 0;
                std::memcpy(converted[r], from, std::size_t(count) * size_of(type));
            } else if (type == DType::bf16) {
                converted[r][count / 2] = 0;
                store_bf16(reinterpret_cast<bf16*>(converted[r]), reinterpret_cast<const float*>(from),
                           count);
            } else {
                to_f32_row(reinterpret_cast<float*>(converted[r]), reinterpret_cast<const bf16*>(from),
                           count);
            }
        }
        const std::int64_t n_units = (count + per_unit - 1) / per_unit;
        transpose(to, units, n_rows, n_units);
        to += n_units * n_rows;
    }
}

PackRows make_pack() { return &pack; }

}  // namespace llmgen::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace llmgen::cpu {
HWY_EXPORT(make_pack);
PackRows pack_rows(Isa isa) {
    const PackRows own = isa >= Isa::avx512_bf16 ? pack_rows_avx512bf16() : nullptr;
    return own ? own : HWY_DISPATCH_TABLE(make_pack)[target_index(isa)]();
}
}  // namespace llmgen::cpu
#endif
