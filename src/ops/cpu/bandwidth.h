// The machine's limits, measured: what a step's bytes and multiply-adds are held against.
#pragma once

#include "ops/ops.h"

namespace llmgen {

/// Bytes a second that `threads` threads read from memory together: the sum of each one's median rate over
/// pieces of 1 MiB, in passes over four times the last cache (128 MiB at least) on huge pages. By a plain
/// loop or by the reads of a GEMV, whichever is faster on this chip. Takes about 0.1 s.
double measure_read_bandwidth(int threads);

/// Floating-point operations a second (a multiply-add is two) of the matrix kernels on data in the nearest
/// cache, over `threads` threads. Takes about 0.1 s.
double measure_matmul_peak(int threads, Compute compute);

}  // namespace llmgen
