// The machine's limits, measured: what a step's bytes and multiply-adds are held against.
#pragma once

#include "ops/ops.h"

namespace llmgen {

/// Bytes of the largest cache that the first core reads through, as Linux tells; 0 where it doesn't. (sysconf
/// adds up what the whole chip has: 384 MiB where a core reads through 32.)
std::size_t last_cache_bytes();

/// Bytes a second that `threads` threads read from memory together: the sum of each one's median rate over
/// pieces of 1 MiB, in passes over sixteen times the last cache (256 MiB at least) on huge pages. By a plain
/// loop or by the reads of a GEMV, whichever is faster on this chip. Takes about 0.1 s.
double measure_read_bandwidth(int threads);

/// Floating-point operations a second (a multiply-add is two) of the matrix kernels on data in the nearest
/// cache, over `threads` threads. Takes about 0.1 s.
double measure_matmul_peak(int threads, Compute compute);

}  // namespace llmgen
