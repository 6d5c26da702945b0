// Loops over the one pool of threads (OpenMP's, which oneDNN shares).
//
// A team is always the whole pool or the caller alone: libgomp ends and restarts threads when a team's size
// changes.
#pragma once

#include <omp.h>

#include <cstdint>

namespace llmgen::cpu {

/// body(begin, end) on contiguous shares of [0, n), one a thread.
template <typename Body>
void parallel_ranges(int threads, std::int64_t n, const Body& body) {
    if (threads <= 1 || n <= 1) return body(std::int64_t(0), n);
#pragma omp parallel num_threads(threads)
    {
        const std::int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
        const std::int64_t begin = n * self / team, end = n * (self + 1) / team;
        if (begin < end) body(begin, end);
    }
}

}  // namespace llmgen::cpu
