// One step's work: ragged rows of new tokens over paged keys and values. Prefill, chunked prefill and decode
// differ only in the number of new tokens a sequence has.
//
//   sequence s has the new tokens first_token[s] … first_token[s + 1] - 1; its last one sees context_len[s]
//   keys, itself included, so new token i of n_new stands at position context_len[s] - n_new + i. Key
//   position p of s lies in page page_table[s][p / kPageSize], row p % kPageSize.
#pragma once

#include <vector>

#include "base/tensor.h"

namespace llmgen {

inline constexpr int kPageSize = 16;  // tokens a page

/// The layout of a step on the host, as the scheduler builds it.
struct HostBatch {
    std::vector<int> token_ids;    // [n_tokens]
    std::vector<int> positions;    // [n_tokens]
    std::vector<int> slots;        // [n_tokens] page * kPageSize + row: where the token's key and value go
    std::vector<int> first_token;  // [n_seqs + 1]
    std::vector<int> context_len;  // [n_seqs]
    std::vector<int> page_table;   // [n_seqs, max_pages], unused entries 0
    std::vector<int> logit_rows;   // [n_logits] rows (tokens) whose logits are wanted, ascending
    int max_pages = 0;
    int context_bound = 0;  // of a step that will be done again (Ops::step): no context_len will exceed it;
                            // else 0

    int n_tokens() const { return int(token_ids.size()); }
    int n_seqs() const { return int(context_len.size()); }
    int n_logits() const { return int(logit_rows.size()); }
};

/// The same in the backend's memory, all i32. The host copy rides along for choices of launch; kernels read
/// only the tensors.
struct Batch {
    Tensor token_ids;    // [n_tokens]
    Tensor positions;    // [n_tokens]
    Tensor slots;        // [n_tokens]
    Tensor first_token;  // [n_seqs + 1]
    Tensor context_len;  // [n_seqs]
    Tensor page_table;   // [n_seqs, max_pages]
    Tensor logit_rows;   // [n_logits]
    Tensor greedy_ids;   // [n_logits], written with the logits where the backend finds the largest, else
                         // empty; may be token_ids, so that the next step finds its tokens in place
    const HostBatch* host = nullptr;
};

}  // namespace llmgen
