// y += W x + bias: a projection back into the residual stream.
#include "gemv.cuh"

namespace llmgen::kernels {

void gemv_add(const Gemv& p, Dependent dependent, Stream stream) {
    launch_gemv_types<GemvEnd::add>(p, dependent, stream, "gemv_add");
}

}  // namespace llmgen::kernels
