// The arguments of an attention launch that tests set alike: bf16 or f32 keys of one layer, query rows and
// outputs without gaps.
#pragma once

#include "kernels.h"

namespace llmgen::simt {

struct Heads {
    int n_heads, n_kv_heads, head_dim;
};
/// Where a batch's sequences are, all in device memory.
struct AttentionBatch {
    const int *first_token, *context_len, *page_table;
    int page_stride, n_seqs;
};

/// `k`, `v` and `out` are f32 or bf16; windows, counters and other strides are the caller's to add.
template <typename T>
kernels::Attention attention_of(const Heads& heads,
                                const AttentionBatch& batch,
                                T* out,
                                const float* q,
                                const T* k,
                                const T* v,
                                float scale) {
    kernels::Attention p{};
    p.out = out;
    p.q = q;
    p.out_stride = p.q_stride = heads.n_heads * heads.head_dim;
    p.k = k;
    p.v = v;
    p.kv_type = sizeof(T) == 4 ? DType::f32 : DType::bf16;
    p.first_token = batch.first_token;
    p.context_len = batch.context_len;
    p.page_table = batch.page_table;
    p.page_stride = batch.page_stride;
    p.n_seqs = batch.n_seqs;
    p.n_heads = heads.n_heads;
    p.n_kv_heads = heads.n_kv_heads;
    p.head_dim = heads.head_dim;
    p.scale = scale;
    return p;
}

}  // namespace llmgen::simt
