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

/// x[t] = table[clamp(ids[t], 0, vocab - 1)].   x [n_tokens, hidden] f32; table [vocab, hidden]
void embed(float* x,
           const void* table,
           DType table_type,
           const int* ids,
           int n_tokens,
           int hidden,
           int vocab,
           Stream);

/// out[i] = x[rows[i]].   out [n, hidden] f32, no alias; x rows `x_stride` apart
void gather_rows(
    float* out, const float* x, std::int64_t x_stride, const int* rows, int n, int hidden, Stream);

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

/// out = silu(gate) · up for the two halves of gate_up's rows.   out [n, intermediate]; gate_up [n, 2
/// intermediate]
void swiglu(void* out, const void* gate_up, DType type, int n, int intermediate, Stream);

/// Copies whole pages of every cache in `pools` (one pointer each to [n_pages, page_bytes], in device
/// memory): page dst[i] = page src[i]. The pairs must not form chains.
void copy_pages(
    void* const* pools, int n_pools, std::size_t page_bytes, const int* src, const int* dst, int n, Stream);

// --- matrix times a few rows

inline constexpr int kMaxGemvTokens = 8;

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
    void* y;  // store: f32 | act, add: f32, swiglu: act
    DType y_type;
    std::int64_t y_stride;
};
/// Whether gemv can take the norm's work along: the normalised rows must fit into shared memory.
bool gemv_fuses_norm(int n_tokens, int in, DType act_type, DType weight_type);
/// y = W x + bias
void gemv(const Gemv&, Dependent, Stream);
/// y += W x + bias
void gemv_add(const Gemv&, Dependent, Stream);
/// y [n_tokens, out / 2] = silu(g) · u, (g, u) the halves of W x + bias
void gemv_swiglu(const Gemv&, Dependent, Stream);

// --- positions, keys and values

/// cos_sin [n_tokens, 2, half]: cos and sin of positions[t] · inv_freq[d], each times factor
void rope_angles(float* cos_sin,
                 const int* positions,
                 const float* inv_freq,
                 float factor,
                 int n_tokens,
                 int half,
                 Stream);

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
/// head_dim up to 256
void qk_norm_rope_store_kv(const RopeStore&, Dependent, Stream);

}  // namespace llmgen::kernels
