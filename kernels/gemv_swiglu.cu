// y = silu(g) · u, (g, u) the halves of W x + bias.
#include "gemv.cuh"

namespace llmgen::kernels {

void gemv_swiglu(const Gemv& p, Dependent dependent, Stream stream) {
    launch_gemv_types<GemvEnd::swiglu>(p, dependent, stream, "gemv_swiglu");
}

}  // namespace llmgen::kernels
