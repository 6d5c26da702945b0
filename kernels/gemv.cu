// y = W x + bias.
#include "gemv.cuh"

namespace llmgen::kernels {

bool gemv_fuses_norm(int n_tokens, int in, DType act_type, DType weight_type) {
    const int per_vec = weight_type == DType::f32 ? 4 : 8;
    return n_tokens <= kMaxGemvTokens && in % per_vec == 0 &&
           std::size_t(n_tokens) * std::size_t(in) * size_of(act_type) <= kMostNormShared;
}

void gemv(const Gemv& p, Dependent dependent, Stream stream) {
    launch_gemv_types<GemvEnd::store>(p, dependent, stream, "gemv");
}

}  // namespace llmgen::kernels
