// q, k and v in one launch: norm, product, bias, norms of heads, rotation, and the store into the pages. What
// qk_norm_rope_store_kv() would read back from memory stays in registers; with norms of heads, whose sums
// span several blocks, each head goes through L2 once and its last block finishes it.
#include "gemv.cuh"

namespace llmgen::kernels {

bool gemv_takes_qkv(int head_dim, int rotary_dim, bool norms) {
    // Pairs: an even head_dim. A block must not span two heads where it counts arrivals.
    return head_dim % (norms ? 2 * kGemvWarps : 2) == 0 && rotary_dim % 2 == 0 && head_dim <= kMaxHeadDim;
}

void gemv_qkv(const Gemv& p, Dependent dependent, Stream stream) {
    launch_gemv_types<GemvEnd::qkv>(p, dependent, stream, "gemv_qkv");
}

}  // namespace llmgen::kernels
