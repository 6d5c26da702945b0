// The CUDA runtime's errors as lines for people, and its streams and events as objects.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace llmgen::cuda {

/// "12.8" of 12080.
std::string version_text(int version);

/// What an error of the runtime means for `cuda:ordinal` and what to do about it, one line without a full
/// stop. What has no words of its own keeps CUDA's.
std::string explain(cudaError_t error, int ordinal);

/// Throws Error "cuda:N: WHAT: …" unless all is well, and takes the error off the runtime's record.
void cuda_check(cudaError_t error, int ordinal, const char* what);

class DeviceStream {
public:
    explicit DeviceStream(int ordinal) {
        cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), ordinal, "a stream");
    }
    ~DeviceStream() { cudaStreamDestroy(stream_); }
    DeviceStream(const DeviceStream&) = delete;
    cudaStream_t get() const { return stream_; }

private:
    cudaStream_t stream_ = nullptr;
};

class DeviceEvent {
public:
    explicit DeviceEvent(int ordinal) {
        cuda_check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), ordinal, "an event");
    }
    ~DeviceEvent() { cudaEventDestroy(event_); }
    DeviceEvent(const DeviceEvent&) = delete;
    cudaEvent_t get() const { return event_; }

private:
    cudaEvent_t event_ = nullptr;
};

}  // namespace llmgen::cuda
