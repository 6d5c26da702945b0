// Every launch that the CUDA backend makes, on raw device pointers. Only launches: no allocation, no
// synchronisation, no state. The formulas are those of src/ops/ops.h; here is what a caller of a kernel must
// know.
//
// Element types are named by DType: activations and keys are f32 or bf16, weights f32, bf16 or f16. Norm
// weights, biases, angles, q and the residual stream are f32. Pointers are 16-byte aligned, as cudaMalloc
// gives them, unless a line says otherwise; strides are in elements.
//
// `dependent` launches may start before the previous launch of the stream has ended: they touch nothing but
// weights before they have waited for it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "common/launch.h"

namespace llmgen::kernels {

/// Keys a page holds, the waist's kPageSize.
inline constexpr int kPageTokens = 16;

// --- rows

/// x[t] = table[clamp(ids[t], 0, vocab - 1)].   x [n_tokens, hidden]; table [vocab, hidden]
void embed(float* x,
           std::int64_t x_stride,
           const void* table,
           DType table_type,
           const int* ids,
           int n_tokens,
           int hidden,
           int vocab,
           Stream);

/// out[i] = x[rows[i]].   out [n, hidden], no alias
void gather_rows(float* out,
                 std::int64_t out_stride,
                 const float* x,
                 std::int64_t x_stride,
                 const int* rows,
                 int n,
                 int hidden,
                 Stream);

struct RmsNorm {
    void* out;  // [n_tokens, hidden] f32 | bf16, may alias x
    DType out_type;
    std::int64_t out_stride;
    float* x;  // [n_tokens, hidden]
    std::int64_t x_stride;
    const float* delta = nullptr;  // [n_tokens, hidden] or null: x += delta first
    const float* weight;           // [hidden]
    int n_tokens, hidden;
    float eps;
};
void rmsnorm(const RmsNorm&, Dependent, Stream);

/// out = silu(gate) · up for the two halves of gate_up's rows.   out [n, intermediate] f32 | bf16;
/// gate_up [n, 2 intermediate] f32
void swiglu(void* out,
            DType out_type,
            std::int64_t out_stride,
            const float* gate_up,
            int n,
            int intermediate,
            Stream);

/// Copies whole pages of every cache in `pools` (one pointer each to [n_pages, page_bytes], in device
/// memory): page dst[i] = page src[i]. The pairs must not form chains.
void copy_pages(
    void* const* pools, int n_pools, std::size_t page_bytes, const int* src, const int* dst, int n, Stream);

/// Where queries go, rotated, and where keys and values are stored.
struct RopeStore {
    float* qkv;  // [n_tokens, (n_heads + 2 n_kv_heads) head_dim]: q is rotated in place
    std::int64_t qkv_stride;
    void* k;  // [n_pages, n_kv_heads, 16, head_dim]
    void* v;
    DType kv_type;
    const float* cos_sin;           // [n_tokens, 2, rotary_dim / 2]
    const int* slots;               // [n_tokens] page * 16 + row
    const float* q_norm = nullptr;  // [head_dim] or null
    const float* k_norm = nullptr;
    float eps = 0;
    int n_tokens, n_heads, n_kv_heads, head_dim, rotary_dim;
};

/// Reads `bytes`, a multiple of 16, once; leaves in `out` something that depends on all of it and is not
/// negative.
void read_all(int* out, const void* from, std::size_t bytes, int n_blocks, Stream);

// --- matrix times a few rows

inline constexpr int kMaxGemvTokens = 8;

/// The best of a row while it is being found, as one number that atomics can compare: larger logit, then
/// lower id. Zero before the first; best_id() reads it.
using Best = unsigned long long;

struct Gemv {
    const void* weight;  // [out, in]
    DType weight_type;
    const float* bias = nullptr;  // [out] or null
    const void* x;                // [n_tokens, in]: activations, or with norm_weight the f32 residual stream
    DType act_type;               // f32 | bf16: of x, or of what the norm makes of it
    std::int64_t x_stride;
    const float* norm_weight = nullptr;  // [in] or null: x is normalised first, as rmsnorm() does
    float eps = 0;
    int n_tokens, out, in;
    void* y;  // store: f32 | act, add: f32, swiglu: act, argmax: f32 or null
    DType y_type;
    std::int64_t y_stride;
    Best* best = nullptr;     // [n_tokens], argmax only
    RopeStore rope{};         // qkv only
    int* arrivals = nullptr;  // qkv with norms of heads only: [n_heads + n_kv_heads], zero before and after
};
/// Whether gemv can take the norm's work along: the normalised rows must fit into shared memory.
bool gemv_fuses_norm(int n_tokens, int in, DType act_type, DType weight_type);
/// y = W x + bias
void gemv(const Gemv&, Dependent, Stream);
/// y += W x + bias
void gemv_add(const Gemv&, Dependent, Stream);
/// y = W x + bias, and best[t] = max of best[t] and row t: the output projection with greedy's choice
void gemv_argmax(const Gemv&, Dependent, Stream);
/// y [n_tokens, out / 2] = silu(g) · u, (g, u) the halves of W x + bias
void gemv_swiglu(const Gemv&, Dependent, Stream);
/// W x + bias, and at once what qk_norm_rope_store_kv() does with it, bit for bit; `y` is not used. The norm
/// of x must be fused in.
void gemv_qkv(const Gemv&, Dependent, Stream);
/// Whether gemv_qkv can take this shape, where gemv_fuses_norm says yes.
bool gemv_takes_qkv(int head_dim, int rotary_dim, bool norms);

// --- positions, keys and values

/// cos_sin [n_tokens, 2, half]: cos and sin of positions[t] · inv_freq[d], each times factor
void rope_angles(float* cos_sin,
                 const int* positions,
                 const float* inv_freq,
                 float factor,
                 int n_tokens,
                 int half,
                 Stream);

/// head_dim up to 256
void qk_norm_rope_store_kv(const RopeStore&, Dependent, Stream);

// --- choosing tokens
//
// The same choices as the engine's Sampler makes on the host: bias, penalties, temperature, top-k, top-p,
// min-p, draw, with the same weights (the same polynomial for exp, bit for bit) and the same random numbers.
// Sums are whole numbers of 2^-45 (of the largest weight), so they don't depend on the order of addition; the
// host's doubles differ by less than vocab x 2^-46, and a different id is chosen only if a draw or a border
// falls in between.

/// What becomes of a `best`: ids[t] = its id, or -1 where the largest logit isn't finite; best[t] is zero
/// again.
void take_best(int* ids, Best* best, int n_rows, Stream);
/// best[t] = the best of row t, for logits that no gemv_argmax made.   logits [n_rows, vocab], rows `stride`
/// apart
void argmax(Best* best, const float* logits, std::int64_t stride, int n_rows, int vocab, Stream);

struct SampleRow {
    int row;                    // of the logits
    float inverse_temperature;  // float(1 / temperature); 0: greedy
    int top_k;                  // 0: off
    double top_p, min_p;        // 1, 0: off
    std::uint64_t seed, step;   // of the random numbers
    float repetition;           // of every id in penalty_ids; 1: off
    const int* penalty_ids;     // [n_penalties] ids of prompt and answer, each once
    const float* penalties;     // what is subtracted of each after `repetition`
    int n_penalties;
    const int* bias_ids;  // [n_bias], each id once
    const float* biases;
    int n_bias;
    int* id;  // where the id goes beside `out`: the next step's input; or null
};
struct Sampled {
    int id;             // -1: the logits aren't finite
    float probability;  // after all transforms; 1 where greedy
};
/// Overwrites the logits with what bias and penalties make of them.
void sample(
    Sampled* out, float* logits, std::int64_t stride, const SampleRow* rows, int n_rows, int vocab, Stream);

/// The softmax of raw logits, as logarithms: of `chosen` [n_rows] (null: not asked) and of the n_top largest,
/// the lowest id first where equal.   top_ids, top_logprobs [n_rows, n_top]; chosen_logprobs [n_rows]
struct LogProbs {
    const float* logits;
    std::int64_t stride;
    const int* chosen;
    float* chosen_logprobs;
    int* top_ids;
    float* top_logprobs;
    int n_rows, vocab, n_top;
};
void logprobs(const LogProbs&, Stream);

// --- attention over pages
//
// Three kernels, chosen per sequence by what the sequence itself is, so that neighbours change nothing:
//   decode   the few rows of a sequence with one new token (or so few that one tile takes them): keys split
//            over blocks, the last of which combines
//   prefill  tiles of 64 rows, a row being a (token, query head of one kv head)
//   generic  any head_dim and f32 keys: one block per (token, query head), plain arithmetic
// decode and prefill want bf16 keys and a head_dim of attn_tiled(). Each skips the sequences of the other.

struct Attention {
    void* out;  // [n_tokens, n_heads head_dim] of the type of the keys
    std::int64_t out_stride;
    const float* q;  // [n_tokens, n_heads head_dim]; tiled kernels round it to bf16
    std::int64_t q_stride;
    const void* k;  // [n_pages, n_kv_heads, 16, head_dim]
    const void* v;
    DType kv_type;
    const int* first_token;  // [n_seqs + 1]
    const int* context_len;  // [n_seqs], this step's tokens included
    const int* page_table;   // [n_seqs, page_stride]
    int page_stride;
    int n_seqs, n_heads, n_kv_heads, head_dim, window;
    float scale;
    int* arrivals = nullptr;  // decode only: attn_decode_arrivals() counters, zero before and after
};

/// Whether the tiled kernels know this head_dim: 64, 80, 96, 128 or 256.
bool attn_tiled(int head_dim);
/// Whether decode takes a sequence with this many new tokens; prefill takes the others.
bool attn_is_decode(int n_new, int n_heads, int n_kv_heads);
/// Tiles that prefill needs for a sequence with this many new tokens; 0 for decode's.
int attn_prefill_tiles(int n_new, int n_heads, int n_kv_heads);
/// `n_tiles`: the sum of attn_prefill_tiles over the sequences.
void attn_prefill(const Attention&, int n_tiles, Dependent, Stream);

/// Into how many parts the keys of a sequence may be split.
inline constexpr int kMaxSplits = 32;
/// f32 values of scratch that decode needs for `n_seqs` sequences.
std::size_t attn_decode_scratch(int n_seqs, int n_heads, int n_kv_heads, int head_dim);
std::size_t attn_decode_arrivals(int n_seqs, int n_heads, int n_kv_heads);
/// `max_context`: no context_len is larger; with a graph, none ever will be.
void attn_decode(const Attention&, float* scratch, int max_context, Dependent, Stream);

void attn_generic(const Attention&, int n_tokens, Dependent, Stream);

}  // namespace llmgen::kernels
