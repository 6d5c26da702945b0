// The shape of a launch, for both sides of the seam.
#pragma once

#include <cstddef>

struct CUstream_st;  // what a cudaStream_t points to

namespace llmgen::kernels {

using Stream = CUstream_st*;

struct Shape {
    unsigned grid_x = 1, grid_y = 1, grid_z = 1;
    unsigned threads = 1;
    std::size_t dynamic_shared = 0;
};

/// Whether a launch may start before the one before it in the stream has ended (programmatic dependent
/// launch). Its kernel must call grid_dependency_wait() in every thread before it reads what a predecessor
/// wrote, writes what one reads, or leaves.
enum class Dependent : bool { no, yes };

}  // namespace llmgen::kernels
