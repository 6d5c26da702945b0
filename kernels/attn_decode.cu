// Attention of a sequence's newest token (or few): a pure read of its keys and values, at the pace of memory.
//
//   grid: (splits, kv heads x row tiles, sequences); a block walks the pages of one split
//   warp w takes pages w, w + 4, … of the split into a ring of its own, so no block barrier slows the stream
//   then the four warps' (m, l, O) are merged, and with one split written out, else left in scratch, where
//   the last block of a sequence, kv head and tile to come adds them up: in the order of the splits, whoever
//   is last
//
// The query heads of a kv head fill one 16-row tensor-core tile, so each key is read once, not `group` times;
// with plain FMAs the arithmetic of grouped heads, not memory, would be the limit.
//
// Bytes in flight for D = 128: 4 warps x 1 page ahead x 8 KiB = 32 KiB a block, three blocks an SM. Traffic:
// the keys and values once (4 KiB a token, layer and 8 kv heads), and 2 (D + 2) x 4 B a row and split for the
// partial results.
//
// The split is a function of the number of visible keys alone; lengths are read from device memory, so one
// graph serves all contexts: blocks past the end leave at once.
#include "attn.cuh"

namespace llmgen::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kSplitUnit = kWarps * kPageTokens;  // a page for each warp

// So many that a block fits the 99 KiB that the smallest cards since sm_80 give one.
template <int D>
inline constexpr int kStages = D > 128    ? 1
                               : D == 128 ? 2
                                          : 3;
template <int D>
inline constexpr int kPageElements = kPageTokens*(D + 8);

/// The keys that a sequence's rows see, in splits.
struct Splits {
    int begin, end, keys;  // first key (of a page), one past the last, keys a split

    __host__ __device__ static int keys_for(int visible) {
        const int even = (visible + kMaxSplits - 1) / kMaxSplits;
        return (even + kSplitUnit - 1) / kSplitUnit * kSplitUnit;
    }
    __device__ static Splits of(const AttnRows& rows, int window) {
        const int begin = oldest_key(rows.position(0), window) / kPageTokens * kPageTokens;
        return {begin, rows.context, keys_for(rows.context - begin)};
    }
    __device__ int count() const { return (end - begin + keys - 1) / keys; }
};

/// Where split `split` of a row leaves its unnormalised output [D], m and l.
__device__ __forceinline__ float* partial_of(
    float* scratch, const Attention& p, int seq, int kv_head, int row, int split) {
    const int n_rows = decode_rows(p.n_heads / p.n_kv_heads);
    const std::int64_t index =
        ((std::int64_t(seq) * p.n_kv_heads + kv_head) * n_rows + row) * kMaxSplits + split;
    return scratch + index * (p.head_dim + 2);
}

/// Starts one warp's copy of the keys or values of a page and kv head, which lie side by side, into a tile.
template <int D>
__device__ __forceinline__ void copy_page(
    bf16* tile, const bf16* pool, const Attention& p, int page, const AttnRows& rows, int key) {
    constexpr int kUnits = D / 8;  // of 16 bytes a row
    const bf16* from =
        pool + (std::int64_t(page) * p.n_kv_heads + rows.kv_head) * std::int64_t(kPageTokens * D);
#pragma unroll(D > 128 ? 4 : kPageTokens)  // with 256 channels there are no registers for more addresses
    for (int turn = 0; turn < kPageTokens * kUnits / kWarp; ++turn) {
        const int i = turn * kWarp + int(threadIdx.x) % kWarp, row = i / kUnits, unit = i % kUnits;
        cp_async_16_or_zero(tile + row * (D + 8) + unit * 8, from + i * 8, key + row < rows.context);
    }
}

/// One warp a row: adds the splits up in their order, each on the scale of the largest m. The loads of eight
/// splits are under way at once: one after the other, 32 splits would take longer than the keys did.
template <int D>
__device__ __forceinline__ void combine(
    float* scratch, const Attention& p, const AttnRows& rows, int seq, int row, int n_splits) {
    constexpr int kChannels = (D + kWarp - 1) / kWarp;  // of a lane
    const int lane = int(threadIdx.x) % kWarp;
    const float* partials = partial_of(scratch, p, seq, rows.kv_head, row, 0);
    const bool mine = lane < n_splits;  // kMaxSplits is a warp's width
    const float m = mine ? partials[lane * (D + 2) + D] : -INFINITY;
    const float top = warp_max(m);
    const float factor = exp2_fast(m - (top == -INFINITY ? 0.0f : top));
    const float total = warp_sum(mine ? partials[lane * (D + 2) + D + 1] * factor : 0.0f);
    float value[kChannels] = {};
#pragma unroll 8
    for (int split = 0; split < n_splits; ++split) {
        const float scale = shfl(factor, split);
#pragma unroll
        for (int j = 0; j < kChannels; ++j)
            if (j * kWarp + lane < D)
                value[j] = fma_f32(partials[split * (D + 2) + j * kWarp + lane], scale, value[j]);
    }
    bf16* out = static_cast<bf16*>(p.out) + (rows.first + rows.token(row)) * p.out_stride +
                std::int64_t(rows.head(row)) * D;
#pragma unroll
    for (int j = 0; j < kChannels; ++j)
        if (j * kWarp + lane < D) out[j * kWarp + lane] = from_f32<bf16>(value[j] / total);
}

template <int D>
__global__ void __launch_bounds__(kThreads) attn_decode_kernel(Attention p, float* scratch) {
    SHARED_DYNAMIC(
        bf16, rings);  // [kWarps][kStages][K, V][16][D + 8], then queries; at the end [kWarps][16][D] f32
    SHARED_ARRAY(float, warp_m, kWarps* kTileRows);
    SHARED_ARRAY(float, warp_l, kWarps* kTileRows);
    grid_dependency_wait();
    grid_dependency_trigger();
    const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
    const int seq = int(blockIdx.z), split = int(blockIdx.x);
    const int kv_head = int(blockIdx.y) % p.n_kv_heads, row0 = int(blockIdx.y) / p.n_kv_heads * kTileRows;
    const AttnRows rows = rows_of(p, seq, kv_head);
    if (rows.count() > decode_rows(rows.group) || row0 >= rows.count()) return;
    const Splits splits = Splits::of(rows, p.window);
    if (split >= splits.count()) return;
    const int begin = splits.begin + split * splits.keys;
    const int end = begin + splits.keys < splits.end ? begin + splits.keys : splits.end;
    const int* pages = p.page_table + std::int64_t(seq) * p.page_stride;

    bf16* ring = rings + warp * kStages<D> * 2 * kPageElements<D>;
    auto page_of = [&](int turn) {
        const int key = begin + (turn * kWarps + warp) * kPageTokens;
        return key < end ? pages[key / kPageTokens] : 0;
    };
    int next_page = page_of(0);  // asked for a turn before its copy, which must not wait for it
    auto copy = [&](int turn) {  // the page of this warp's turn, or nothing past the end
        const int key = begin + (turn * kWarps + warp) * kPageTokens;
        bf16* k_tile = ring + turn % kStages<D> * 2 * kPageElements<D>;
        if (key < end) {
            copy_page<D>(k_tile, static_cast<const bf16*>(p.k), p, next_page, rows, key);
            copy_page<D>(k_tile + kPageElements<D>, static_cast<const bf16*>(p.v), p, next_page, rows, key);
        }
        next_page = page_of(turn + 1);
        cp_async_commit();
    };
    for (int turn = 0; turn < kStages<D> - 1; ++turn) copy(turn);
    WarpTile<D> state;
    // The four warps have the same queries; where those live in shared memory, one copy serves all.
    state.start(p, rows, row0, rings + kWarps * kStages<D> * 2 * kPageElements<D>, warp == 0);
    if constexpr (WarpTile<D>::kSharedQ) sync_block();
    const int newest = rows.position(row0),
              oldest = oldest_key(rows.position(row0 + kTileRows - 1), p.window);
    for (int turn = 0, key = begin + warp * kPageTokens; key < end; ++turn, key += kSplitUnit) {
        sync_warp();  // everyone is done with the slot that the next copy overwrites
        copy(turn + kStages<D> - 1);
        cp_async_wait<kStages<D> - 1>();
        sync_warp();
        const bf16* k_tile = ring + turn % kStages<D> * 2 * kPageElements<D>;
        const bool masked = key + kPageTokens - 1 > newest || key < oldest;
        state.template attend<kPageTokens>(k_tile, k_tile + kPageElements<D>, p, rows, row0, key, masked);
    }
    cp_async_wait<0>();
    state.finish();

    if (lane % 4 == 0)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            warp_m[warp * kTileRows + lane / 4 + half * 8] = state.m[half];
            warp_l[warp * kTileRows + lane / 4 + half * 8] = state.l[half];
        }
    sync_block();  // also: the rings are free
    float* merged = reinterpret_cast<float*>(rings);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = lane / 4 + half * 8;
        float top = -INFINITY;
        for (int w = 0; w < kWarps; ++w) top = max_f32(top, warp_m[w * kTileRows + row]);
        const float factor = exp2_fast(state.m[half] - (top == -INFINITY ? 0.0f : top));
#pragma unroll
        for (int j = 0; j < D / 8; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e)
                merged[(warp * kTileRows + row) * D + j * 8 + lane % 4 * 2 + e] =
                    state.o[j][2 * half + e] * factor;
    }
    sync_block();
    for (int i = int(threadIdx.x); i < kTileRows * D; i += kThreads) {
        const int r = i / D, d = i % D, row = row0 + r;
        if (row >= rows.count()) continue;
        float top = -INFINITY, total = 0, value = 0;
        for (int w = 0; w < kWarps; ++w) top = max_f32(top, warp_m[w * kTileRows + r]);
        for (int w = 0; w < kWarps; ++w) {
            total += warp_l[w * kTileRows + r] *
                     exp2_fast(warp_m[w * kTileRows + r] - (top == -INFINITY ? 0.0f : top));
            value += merged[(w * kTileRows + r) * D + d];
        }
        if (splits.count() == 1) {
            static_cast<bf16*>(
                p.out)[(rows.first + rows.token(row)) * p.out_stride + std::int64_t(rows.head(row)) * D + d] =
                from_f32<bf16>(value / total);
        } else {
            float* partial = partial_of(scratch, p, seq, kv_head, row, split);
            partial[d] = value;
            if (d == 0) {
                partial[D] = top;
                partial[D + 1] = total;
            }
        }
    }
    int* arrivals = p.arrivals + std::int64_t(blockIdx.z) * gridDim.y + blockIdx.y;
    if (splits.count() == 1 || !arrives_last(arrivals, splits.count())) return;
    for (int row = row0 + warp; row < row0 + kTileRows && row < rows.count(); row += kWarps)
        combine<D>(scratch, p, rows, seq, row, splits.count());
}

}  // namespace

bool attn_tiled(int head_dim) {
    return head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128 || head_dim == 256;
}

bool attn_is_decode(int n_new, int n_heads, int n_kv_heads) {
    return n_new * (n_heads / n_kv_heads) <= decode_rows(n_heads / n_kv_heads);
}

std::size_t attn_decode_arrivals(int n_seqs, int n_heads, int n_kv_heads) {
    return std::size_t(n_seqs) * std::size_t(n_kv_heads) *
           std::size_t(decode_rows(n_heads / n_kv_heads) / kTileRows);
}

std::size_t attn_decode_scratch(int n_seqs, int n_heads, int n_kv_heads, int head_dim) {
    return std::size_t(n_seqs) * std::size_t(n_kv_heads) * std::size_t(decode_rows(n_heads / n_kv_heads)) *
           kMaxSplits * std::size_t(head_dim + 2);
}

void attn_decode(const Attention& p, float* scratch, int max_context, Dependent dependent, Stream stream) {
    if (p.n_seqs == 0 || max_context == 0) return;
    const int n_rows = decode_rows(p.n_heads / p.n_kv_heads);
    // A shorter context may have more splits than a longer one, so this is the most that any up to
    // max_context has.
    const int units = (max_context + kSplitUnit - 1) / kSplitUnit,
              n_splits = units < kMaxSplits ? units : kMaxSplits;
    for_head_dim(p.head_dim, [&](auto dim) {
        constexpr int D = dim.value;
        const Shape shape{
            unsigned(n_splits), unsigned(p.n_kv_heads * (n_rows / kTileRows)), unsigned(p.n_seqs), kThreads,
            std::size_t(kWarps * kStages<D> * 2 * kPageElements<D> + WarpTile<D>::kQElements) * sizeof(bf16)};
        launch("attn_decode", attn_decode_kernel<D>, shape, dependent, stream, p, scratch);
    });
}

}  // namespace llmgen::kernels
