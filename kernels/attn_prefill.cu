// Flash attention over pages for many new tokens: causal, grouped heads, sliding window, queries that start
// anywhere.
//
// A block takes 64 rows (4 warps x 16) of one sequence and kv head and walks the keys they see in tiles of 64
// (32 for head_dim 256), the next tile's copy under way while this one is computed.
//
// Shared memory for D = 128: 2 stages x (K + V) x 64 rows x 272 B = 68 KiB, so three blocks fit an SM by
// memory and two by registers. FLOP per key byte: 64 rows x 4 D / (4 D) = 64 from L2, so the tensor cores are
// the limit, not memory.
#include "attn.cuh"

namespace llmgen::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kRows = kWarps * kTileRows;

template <int D>
inline constexpr int kKeys = D > 128 ? 32 : 64;

template <int D>
__global__ void __launch_bounds__(kThreads, D > 128 ? 1 : 2) attn_prefill_kernel(Attention p) {
    SHARED_DYNAMIC(bf16, tiles);  // [2 stages][K, V][kKeys][D + 8], then queries
    constexpr int kTile = kKeys<D> * (D + 8);
    grid_dependency_wait();
    grid_dependency_trigger();
    const int warp = int(threadIdx.x) / kWarp, group = p.n_heads / p.n_kv_heads;
    // Which sequence this tile belongs to. The latest tiles see the most keys, so they are given out first.
    int tile = int(gridDim.x) - 1 - int(blockIdx.x), seq = p.n_seqs;
    int n_tiles = 0;
    do {
        tile -= n_tiles;
        if (--seq < 0) return;
        const int rows = (p.first_token[seq + 1] - p.first_token[seq]) * group;
        n_tiles = rows <= decode_rows(group) ? 0 : (rows + kRows - 1) / kRows;
    } while (tile >= n_tiles);

    const AttnRows rows = rows_of(p, seq, int(blockIdx.y));
    const int* pages = p.page_table + std::int64_t(seq) * p.page_stride;
    const int block_row = tile * kRows, row0 = block_row + warp * kTileRows;
    const int begin = oldest_key(rows.position(block_row), p.window) / kPageTokens * kPageTokens;
    const int end = rows.position(block_row + kRows - 1) + 1;
    auto copy = [&](int stage, int key) {
        bf16* k_tile = tiles + stage * 2 * kTile;
        copy_tile<D, kKeys<D>, kThreads>(k_tile, static_cast<const bf16*>(p.k), p, pages, rows, key,
                                         int(threadIdx.x));
        copy_tile<D, kKeys<D>, kThreads>(k_tile + kTile, static_cast<const bf16*>(p.v), p, pages, rows, key,
                                         int(threadIdx.x));
        cp_async_commit();
    };
    copy(0, begin);
    WarpTile<D> state;
    state.start(p, rows, row0, tiles + 4 * kTile + warp * WarpTile<D>::kQElements);
    const int newest = rows.position(row0),
              oldest = oldest_key(rows.position(row0 + kTileRows - 1), p.window);
    for (int key = begin, stage = 0; key < end; key += kKeys<D>, stage ^= 1) {
        if (key + kKeys<D> < end)
            copy(stage ^ 1, key + kKeys<D>);
        else
            cp_async_commit();  // an empty group keeps the count below right
        cp_async_wait<1>();
        sync_block();
        const bf16* k_tile = tiles + stage * 2 * kTile;
        const bool masked = key + kKeys<D> - 1 > newest || key < oldest;
        state.template attend<kKeys<D>>(k_tile, k_tile + kTile, p, rows, row0, key, masked);
        sync_block();
    }
    state.finish();

    const int lane = int(threadIdx.x) % kWarp;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = row0 + lane / 4 + half * 8;
        if (row >= rows.count()) continue;
        bf16* out = static_cast<bf16*>(p.out) + (rows.first + rows.token(row)) * p.out_stride +
                    std::int64_t(rows.head(row)) * D + lane % 4 * 2;
        const float factor = 1.0f / state.l[half];
#pragma unroll
        for (int j = 0; j < D / 8; ++j)
            *reinterpret_cast<std::uint32_t*>(out + j * 8) =
                pack2<bf16>(state.o[j][2 * half] * factor, state.o[j][2 * half + 1] * factor);
    }
}

}  // namespace

int attn_prefill_tiles(int n_new, int n_heads, int n_kv_heads) {
    if (attn_is_decode(n_new, n_heads, n_kv_heads)) return 0;
    return (n_new * (n_heads / n_kv_heads) + kRows - 1) / kRows;
}

void attn_prefill(const Attention& p, int n_tiles, Dependent dependent, Stream stream) {
    if (n_tiles == 0) return;
    for_head_dim(p.head_dim, [&](auto dim) {
        constexpr int D = dim.value;
        const Shape shape{
            unsigned(n_tiles), unsigned(p.n_kv_heads), 1, kThreads,
            std::size_t(4 * kKeys<D> * (D + 8) + kWarps * WarpTile<D>::kQElements) * sizeof(bf16)};
        launch("attn_prefill", attn_prefill_kernel<D>, shape, dependent, stream, p);
    });
}

}  // namespace llmgen::kernels
