#include "base/tensor.h"

namespace llmgen {

std::string describe(const Tensor& tensor) {
    std::string text = "[";
    for (int axis = 0; axis < tensor.rank; ++axis)
        text += (axis ? ", " : "") + std::to_string(tensor.dim(axis));
    return text + "] " + std::string(name_of(tensor.dtype));
}

void expect_shape(const Tensor& tensor, const char* name, std::initializer_list<std::int64_t> dims) {
    CHECK(tensor.rank == int(dims.size()), "{} is {}, expected {} axes", name, describe(tensor), dims.size());
    int axis = 0;
    for (const std::int64_t dim : dims) {
        CHECK(dim < 0 || tensor.dim(axis) == dim, "{} is {}: axis {} is {}, expected {}", name,
              describe(tensor), axis, tensor.dim(axis), dim);
        ++axis;
    }
}

}  // namespace llmgen
