// Steps recorded as CUDA graphs. A decode step of 32 layers is 200 launches of 2 to 3 µs each on the host and
// a gap between them on the device; replayed it is one.
//
// The first step of a key runs as it is: modules load, algorithms are picked, scratch grows. The second is
// captured and launched, every later one only launched. What a recorded step reads that changes must lie in
// memory that stays where it is, and be written before step().
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <unordered_map>

#include "base/tensor.h"

namespace llmgen::cuda {

class StepGraphs {
public:
    StepGraphs(int ordinal, cudaStream_t stream) : ordinal_(ordinal), stream_(stream) {}
    ~StepGraphs() { clear(); }
    StepGraphs(const StepGraphs&) = delete;

    /// Enqueues the step, by `enqueue` or by the recording of it; returns what `enqueue` returned.
    Tensor step(std::uint64_t key, const std::function<Tensor()>& enqueue);
    /// Forgets every recording: memory that they read has moved.
    void clear();
    std::size_t n_recorded() const;

private:
    struct Recording {
        cudaGraphExec_t graph = nullptr;  // null: has run once
        Tensor result;
    };
    void record(Recording& recording, const std::function<Tensor()>& enqueue);

    int ordinal_;
    cudaStream_t stream_;
    bool capturing_ = false;
    std::unordered_map<std::uint64_t, Recording> recordings_;
};

}  // namespace llmgen::cuda
