// y = W x + bias, and the best of each row on the way: the output projection with greedy's choice.
#include "gemv.cuh"

namespace llmgen::kernels {

void gemv_argmax(const Gemv& p, Dependent dependent, Stream stream) {
    launch_gemv_types<GemvEnd::argmax>(p, dependent, stream, "gemv_argmax");
}

}  // namespace llmgen::kernels
