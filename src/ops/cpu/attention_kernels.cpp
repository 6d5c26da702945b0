// Attention's loops for every instruction set that Highway knows.
#include "ops/cpu/attention_kernels.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/attention_kernels.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include "ops/cpu/simd-inl.h"
#include "ops/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace llmgen::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kPageVectors = kPageSize / kLanes;  // that hold one value of each key of a page
constexpr int kTileRows = kLanes == 16 ? 12 : kLanes == 8 ? 4 : 1;
/// Vectors beside each other in a tile: as many as the registers hold.
constexpr int vectors_for(int rows) { return kLanes == 1 ? 16 : kLanes == 8 ? 2 : rows > 6 ? 2 : 4; }

/// kPages pages at once: rows · pages chains of multiply-adds hide their latency.
template <int kRows, int kPages, bool kBf16>
HWY_INLINE void score_pages(float* scores,
                            const float* HWY_RESTRICT q,
                            const void* const* keys,
                            const void* const* next,
                            int head_dim) {
    constexpr int kVectors = kPages * kPageVectors;
    const DF32 d;
    const DU32 du;
    F32 acc[kRows][kVectors];
    for (auto& row : acc)
        for (auto& a : row) a = hn::Zero(d);
    const auto step = [&](const F32(&k)[kVectors], const float* HWY_RESTRICT x) HWY_ATTR {
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
            const F32 xr = hn::Set(d, x[r]);
#pragma GCC unroll 16
            for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(k[v], xr, acc[r][v]);
        }
    };
    for (int i = 0; i < head_dim; i += kBf16 ? 2 : 1, q += kBf16 ? 2 * kRows : kRows) {
        F32 even[kVectors], odd[kVectors];
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
            const void* block = keys[v / kPageVectors];
            const std::int64_t at = std::int64_t(i / (kBf16 ? 2 : 1)) * kPageSize + v % kPageVectors * kLanes;
            if (kRows <= kPrefetchRows && v % kPageVectors == 0)
                hwy::Prefetch(static_cast<const float*>(next[v / kPageVectors]) + at);
            if constexpr (kBf16) {
                const U32 pair = hn::LoadU(du, static_cast<const std::uint32_t*>(block) + at);
                even[v] = low_bf16(pair);
                odd[v] = high_bf16(pair);
            } else {
                even[v] = hn::LoadU(d, static_cast<const float*>(block) + at);
            }
        }
        step(even, q);
        if constexpr (kBf16) step(odd, q + kRows);
    }
    for (int r = 0; r < kRows; ++r)
        for (int v = 0; v < kVectors; ++v) hn::StoreU(acc[r][v], d, scores + r * kKeyBlock + v * kLanes);
}

template <int kRows, bool kBf16>
void scores(float* out,
            const void* q,
            const PageBlocks& keys,
            const PageBlocks& next,
            int begin,
            int end,
            int head_dim) {
    constexpr int kPages = vectors_for(kRows) / kPageVectors > 0 ? vectors_for(kRows) / kPageVectors : 1;
    const auto* x = static_cast<const float*>(q);
    int page = begin;
    for (; page + kPages <= end; page += kPages)
        score_pages<kRows, kPages, kBf16>(out + page * kPageSize, x, keys.data() + page, next.data() + page,
                                          head_dim);
    for (; page < end; ++page)
        score_pages<kRows, 1, kBf16>(out + page * kPageSize, x, keys.data() + page, next.data() + page,
                                     head_dim);
}

/// kVectors vectors of channels, all keys. A tail of fewer channels than a vector is loaded and stored
/// masked.
template <int kRows, int kVectors, bool kBf16, bool kTail>
HWY_INLINE void value_columns(float* out,
                              const float* p,
                              const PageBlocks& values,
                              const PageBlocks& next,
                              int begin,
                              int end,
                              int head_dim,
                              int column) {
    const DF32 d;
    const DU32 du;
    const auto mask = hn::FirstN(d, std::size_t(kTail ? head_dim - column : kLanes));
    F32 acc[kRows][kVectors];
    for (auto& row : acc)
        for (auto& a : row) a = hn::Zero(d);
    const auto step = [&](const F32(&value)[kVectors], const float* weight) HWY_ATTR {
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
            const F32 w = hn::Set(d, weight[r * kKeyBlock]);
#pragma GCC unroll 16
            for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(value[v], w, acc[r][v]);
        }
    };
    for (int key = begin; key < end; key += kBf16 ? 2 : 1) {
        const void* block = values[std::size_t(key / kPageSize)];
        const int row = key % kPageSize;
        if (kRows <= kPrefetchRows)
            for (int v = 0; v < kVectors * kLanes; v += 16)
                hwy::Prefetch(static_cast<const float*>(next[std::size_t(key / kPageSize)]) +
                              std::int64_t(kBf16 ? row / 2 : row) * head_dim + column + v);
        F32 even[kVectors], odd[kVectors];
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
            if constexpr (kBf16) {
                const auto* from = static_cast<const std::uint32_t*>(block) +
                                   std::int64_t(row / 2) * head_dim + column + v * kLanes;
                const U32 pair =
                    kTail ? hn::MaskedLoad(hn::RebindMask(du, mask), du, from) : hn::LoadU(du, from);
                even[v] = low_bf16(pair);
                odd[v] = high_bf16(pair);
            } else {
                const auto* from =
                    static_cast<const float*>(block) + std::int64_t(row) * head_dim + column + v * kLanes;
                even[v] = kTail ? hn::MaskedLoad(mask, d, from) : hn::LoadU(d, from);
            }
        }
        step(even, p + key);
        if constexpr (kBf16)
            if (key + 1 < end) step(odd, p + key + 1);
    }
    for (int r = 0; r < kRows; ++r)
        for (int v = 0; v < kVectors; ++v) {
            float* to = out + std::int64_t(r) * head_dim + column + v * kLanes;
            if constexpr (kTail)
                hn::BlendedStore(acc[r][v], mask, d, to);
            else
                hn::StoreU(acc[r][v], d, to);
        }
}

template <int kRows, bool kBf16>
void values(float* out,
            const void* p,
            const PageBlocks& values,
            const PageBlocks& next,
            int begin,
            int end,
            int head_dim) {
    constexpr int kVectors = vectors_for(kRows);
    const auto* weights = static_cast<const float*>(p);
    int column = 0;
    for (; column + kVectors * kLanes <= head_dim; column += kVectors * kLanes)
        value_columns<kRows, kVectors, kBf16, false>(out, weights, values, next, begin, end, head_dim,
                                                     column);
    for (; column + kLanes <= head_dim; column += kLanes)
        value_columns<kRows, 1, kBf16, false>(out, weights, values, next, begin, end, head_dim, column);
    if (column < head_dim)
        value_columns<kRows, 1, kBf16, true>(out, weights, values, next, begin, end, head_dim, column);
}

/// kAll: the row sees every key of the block. The steps are the same either way, and so is the sums' order.
template <bool kAll, DType kType>
HWY_INLINE void softmax_row(
    void* p, const float* scores, KeyRange range, float scale, float* row_max, float* row_sum) {
    const DF32 d;
    const F32 s = hn::Set(d, scale), none = hn::Set(d, -HUGE_VALF);
    constexpr int kVectors = kKeyBlock / kLanes;
    F32 v[kVectors];
    F32 largest = none;
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
        v[i] = hn::Mul(hn::LoadU(d, scores + i * kLanes), s);
        if constexpr (!kAll) {
            const F32 key = hn::Iota(d, float(i * kLanes));
            const auto seen = hn::And(hn::Ge(key, hn::Set(d, float(range.begin))),
                                      hn::Lt(key, hn::Set(d, float(range.end))));
            v[i] = hn::IfThenElse(seen, v[i], none);
        }
        largest = hn::Max(largest, v[i]);
    }
    const F32 max = hn::MaxOfLanes(d, largest);
    F32 sum = hn::Zero(d);
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
        F32 e = fast_exp(hn::Sub(v[i], max));
        if constexpr (!kAll) e = hn::IfThenElseZero(hn::Gt(v[i], none), e);
        sum = hn::Add(sum, e);
        if constexpr (kType == DType::bf16)
            store_bf16(static_cast<bf16*>(p) + i * kLanes, e);
        else
            hn::StoreU(e, d, static_cast<float*>(p) + i * kLanes);
    }
    *row_max = hn::GetLane(max);
    *row_sum = hn::GetLane(hn::SumOfLanes(d, sum));
}

template <DType kType>
void softmax_rows(const SoftmaxRows& s) {
    auto* p = static_cast<char*>(s.p);
    const float* scores = s.scores;
    for (int r = 0; r < s.rows; ++r, p += kKeyBlock * size_of(kType), scores += kKeyBlock)
        if (s.seen[r].begin == 0 && s.seen[r].end == kKeyBlock)
            softmax_row<true, kType>(p, scores, s.seen[r], s.scale, s.max + r, s.sum + r);
        else
            softmax_row<false, kType>(p, scores, s.seen[r], s.scale, s.max + r, s.sum + r);
}

void softmax(const SoftmaxRows& rows) {
    if (rows.p_type == DType::bf16)
        softmax_rows<DType::bf16>(rows);
    else
        softmax_rows<DType::f32>(rows);
}

void join(float* max, float* sum, const float* part_max, const float* part_sum, float* a, float* b) {
    const DF32 d;
    const F32 one = hn::Set(d, 1.0f);
    for (int i = 0; i < kRowLanes; i += kLanes) {
        const F32 m = hn::LoadU(d, max + i), pm = hn::LoadU(d, part_max + i), ps = hn::LoadU(d, part_sum + i);
        const auto seen = hn::Ne(ps, hn::Zero(d));
        const F32 larger = hn::IfThenElse(seen, hn::Max(m, pm), m);
        const F32 va = hn::IfThenElse(seen, fast_exp(hn::Sub(m, larger)), one);
        const F32 vb = hn::IfThenElseZero(seen, fast_exp(hn::Sub(pm, larger)));
        hn::StoreU(hn::MulAdd(hn::LoadU(d, sum + i), va, hn::Mul(ps, vb)), d, sum + i);
        hn::StoreU(larger, d, max + i);
        hn::StoreU(va, d, a + i);
        hn::StoreU(vb, d, b + i);
    }
}

void merge(float* total, float a, const float* part, float b, int n) {
    const DF32 d;
    const F32 va = hn::Set(d, a), vb = hn::Set(d, b);
    int i = 0;
    for (; i + kLanes <= n; i += kLanes)
        hn::StoreU(hn::MulAdd(hn::LoadU(d, part + i), vb, hn::Mul(hn::LoadU(d, total + i), va)), d,
                   total + i);
    for (; i < n; ++i) total[i] = std::fma(part[i], b, total[i] * a);
}

void finish(void* out, DType type, const float* total, float factor, int n) {
    const DF32 d;
    const F32 f = hn::Set(d, factor);
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        const F32 v = hn::Mul(hn::LoadU(d, total + i), f);
        if (type == DType::bf16)
            store_bf16(static_cast<bf16*>(out) + i, v);
        else
            hn::StoreU(v, d, static_cast<float*>(out) + i);
    }
    for (; i < n; ++i) {
        if (type == DType::bf16)
            static_cast<bf16*>(out)[i] = to_bf16(total[i] * factor);
        else
            static_cast<float*>(out)[i] = total[i] * factor;
    }
}

template <int kRows>
void add_rows(AttentionKernels& kernels, DType act) {
    if constexpr (kRows <= kTileRows) {
        kernels.scores[kRows] = act == DType::bf16 ? &scores<kRows, true> : &scores<kRows, false>;
        kernels.values[kRows] = act == DType::bf16 ? &values<kRows, true> : &values<kRows, false>;
        kernels.max_rows = kRows;
    }
}

AttentionKernels make_attention_kernels(DType act) {
    AttentionKernels kernels;
    add_rows<1>(kernels, act);
    add_rows<2>(kernels, act);
    add_rows<3>(kernels, act);
    add_rows<4>(kernels, act);
    add_rows<6>(kernels, act);
    add_rows<8>(kernels, act);
    add_rows<12>(kernels, act);
    kernels.softmax = &softmax;
    kernels.join = &join;
    kernels.merge = &merge;
    kernels.finish = &finish;
    return kernels;
}

}  // namespace llmgen::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace llmgen::cpu {

HWY_EXPORT(make_attention_kernels);

AttentionKernels attention_kernels(DType act, Isa isa) {
    AttentionKernels kernels = HWY_DISPATCH_TABLE(make_attention_kernels)[target_index(isa)](act);
    if (act == DType::bf16 && isa >= Isa::avx512_bf16) use_avx512bf16(kernels);
    return kernels;
}

}  // namespace llmgen::cpu
#endif
