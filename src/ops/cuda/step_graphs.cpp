#include "ops/cuda/step_graphs.h"

#include "base/error.h"
#include "ops/cuda/device_api.h"

namespace llmgen::cuda {
namespace {

/// A graph of 200 kernels takes about a megabyte; past this many, all are made anew.
constexpr std::size_t kMaxRecordings = 256;
constexpr const char* kRecording = "recording a step (LLMGEN_RECORD=0 does without)";

}  // namespace

Tensor StepGraphs::step(std::uint64_t key, const std::function<Tensor()>& enqueue) {
    const auto found = recordings_.find(key);
    if (found == recordings_.end()) {
        const Tensor result = enqueue();  // may call clear(), where scratch grows
        if (recordings_.size() >= kMaxRecordings) clear();
        recordings_[key].result = result;
        return result;
    }
    if (found->second.graph == nullptr) record(found->second, enqueue);
    cuda_check(cudaGraphLaunch(found->second.graph, stream_), ordinal_, "replaying a step");
    return found->second.result;
}

void StepGraphs::record(Recording& recording, const std::function<Tensor()>& enqueue) {
    cuda_check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), ordinal_, kRecording);
    cudaGraph_t graph = nullptr;
    capturing_ = true;
    try {
        recording.result = enqueue();
    } catch (...) {
        capturing_ = false;
        cudaStreamEndCapture(stream_, &graph);
        if (graph != nullptr) cudaGraphDestroy(graph);
        cudaGetLastError();
        throw;
    }
    capturing_ = false;
    cuda_check(cudaStreamEndCapture(stream_, &graph), ordinal_, kRecording);
    const cudaError_t made = cudaGraphInstantiate(&recording.graph, graph, 0);
    cudaGraphDestroy(graph);
    if (made != cudaSuccess) recording.graph = nullptr;
    cuda_check(made, ordinal_, kRecording);
}

void StepGraphs::clear() {
    CHECK(!capturing_, "memory moved while a step that had run before was recorded");
    bool any = false;
    for (const auto& [key, recording] : recordings_) any = any || recording.graph != nullptr;
    if (any) cudaStreamSynchronize(stream_);  // one may still be running
    for (auto& [key, recording] : recordings_)
        if (recording.graph != nullptr) cudaGraphExecDestroy(recording.graph);
    recordings_.clear();
}

std::size_t StepGraphs::n_recorded() const {
    std::size_t n = 0;
    for (const auto& [key, recording] : recordings_) n += recording.graph != nullptr;
    return n;
}

}  // namespace llmgen::cuda
