// The calls of the fake runtime API, on FakeCuda.
#include <fmt/format.h>

#include <cstring>
#include <mutex>

#include "simt/fake/fake_cuda.h"

using namespace llmgen::simt;

namespace {

FakeCuda& cuda() { return FakeCuda::get(); }

/// One call at a time; `error` is why it can't begin.
struct Call {
    explicit Call(const char* name, bool needs_device = true)
        : lock(cuda().mutex()), error(cuda().enter(name, needs_device)) {}
    std::lock_guard<std::recursive_mutex> lock;
    cudaError_t error;
};

std::shared_ptr<Work> host_work(std::string what, std::function<void()> run) {
    auto work = std::make_shared<Work>();
    work->kind = Work::Kind::host;
    work->what = std::move(what);
    work->run = std::move(run);
    return work;
}

std::shared_ptr<Work> event_work(Work::Kind kind, const cudaEvent_t event, std::uint64_t ticket) {
    auto work = std::make_shared<Work>();
    work->kind = kind;
    work->event = event->state;
    work->ticket = ticket;
    return work;
}

}  // namespace

// --- device and errors

cudaError_t cudaDriverGetVersion(int* version) {
    const Call call(__func__, false);
    *version = cuda().card.driver_version;
    return call.error;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
    const Call call(__func__, false);
    *version = 13000;
    return call.error;
}
cudaError_t cudaGetDeviceCount(int* count) {
    const Call call(__func__);
    *count = call.error == cudaSuccess ? cuda().card.n_devices : 0;
    if (call.error == cudaSuccess && cuda().card.driver_version < 13000)
        return cuda().set(cudaErrorInsufficientDriver);
    return call.error;
}
cudaError_t cudaSetDevice(int device) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    if (device < 0 || device >= cuda().card.n_devices) return cuda().set(cudaErrorInvalidDevice);
    FakeCuda::current_device() = device;
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    *total = cuda().card.memory;
    *free = *total - std::min(*total, cuda().device_bytes(FakeCuda::current_device()));
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    const FakeCard& card = cuda().card;
    if (device < 0 || device >= card.n_devices) return cuda().set(cudaErrorInvalidDevice);
    *properties = {{}, card.memory, card.major, card.minor, card.n_sms};
    std::strncpy(properties->name, card.name.c_str(), sizeof(properties->name) - 1);
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int device) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    if (device < 0 || device >= cuda().card.n_devices) return cuda().set(cudaErrorInvalidDevice);
    *value = cuda().card.compute_mode;
    return cudaSuccess;
}

cudaError_t cudaGetLastError() {
    const std::lock_guard lock(cuda().mutex());
    return cuda().take_last();
}
const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return "cudaSuccess";
        case cudaErrorInvalidValue:
            return "cudaErrorInvalidValue";
        case cudaErrorMemoryAllocation:
            return "cudaErrorMemoryAllocation";
        case cudaErrorLaunchFailure:
            return "cudaErrorLaunchFailure";
        case cudaErrorIllegalAddress:
            return "cudaErrorIllegalAddress";
        default:
            return "cudaErrorOfTheFake";
    }
}
const char* cudaGetErrorString(cudaError_t error) {
    return error == cudaSuccess ? "no error" : "an error of the fake device";
}

cudaError_t cudaDeviceSynchronize() {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    if (cuda().spoils_capture()) return cuda().set(cudaErrorStreamCaptureUnsupported);
    cuda().run_all();
    Machine::get().synchronize();
    return cudaSuccess;
}

// --- memory

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    if (cuda().spoils_capture()) return cuda().set(cudaErrorStreamCaptureUnsupported);
    return cuda().allocate(false, memory, bytes);
}
cudaError_t cudaMallocManaged(void** memory, std::size_t bytes, unsigned) {
    return cudaMalloc(memory, bytes);
}
cudaError_t cudaFree(void* memory) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    if (cuda().spoils_capture()) return cuda().set(cudaErrorStreamCaptureUnsupported);
    return cuda().release(false, memory);
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    if (cuda().spoils_capture()) return cuda().set(cudaErrorStreamCaptureUnsupported);
    return cuda().allocate(true, memory, bytes);
}
cudaError_t cudaFreeHost(void* memory) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    return cuda().release(true, memory);
}

cudaError_t cudaMemcpyAsync(
    void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void* to,
                              std::size_t to_pitch,
                              const void* from,
                              std::size_t from_pitch,
                              std::size_t width,
                              std::size_t height,
                              cudaMemcpyKind kind,
                              cudaStream_t stream) {
    const Call call("cudaMemcpyAsync");
    if (call.error != cudaSuccess) return call.error;
    FakeStream* mine = cuda().find(stream);
    if (mine == nullptr) return cuda().set(cudaErrorInvalidResourceHandle);
    if (to_pitch < width || from_pitch < width) return cuda().set(cudaErrorInvalidValue);
    if (width * height == 0) return cudaSuccess;
    const std::size_t to_bytes = (height - 1) * to_pitch + width,
                      from_bytes = (height - 1) * from_pitch + width;
    const bool to_host = kind == cudaMemcpyDeviceToHost, from_host = kind == cudaMemcpyHostToDevice;
    const auto check = [=] {
        if (to_host ? !cuda().is_pinned(to, to_bytes) : !cuda().is_device(to, to_bytes))
            throw Fault(fmt::format("a copy writes {} bytes to what is not {} memory", to_bytes,
                                    to_host ? "pinned" : "live device"));
        if (from_host ? !cuda().is_pinned(from, from_bytes) : !cuda().is_device(from, from_bytes))
            throw Fault(fmt::format("a copy reads {} bytes from what is not {} memory", from_bytes,
                                    from_host ? "pinned" : "live device"));
    };
    check();
    const auto rows = [=](auto&& row) {
        for (std::size_t i = 0; i < height; ++i) row(i);
    };
    // Poison until it arrives, unless an earlier copy has still to read what is there.
    if (to_host && mine->captured == nullptr && !cuda().is_awaited(to, to_bytes))
        rows([&](std::size_t i) { std::memset(static_cast<char*>(to) + i * to_pitch, 0xff, width); });
    auto work = host_work(to_host ? "copy to the host" : "copy to the device", [=] {
        check();
        if (to_host && cuda().is_dry(from))
            return rows([&](std::size_t i) { std::memset(static_cast<char*>(to) + i * to_pitch, 0, width); });
        if (!to_host && cuda().is_dry(to)) return;
        rows([&](std::size_t i) {
            std::memcpy(static_cast<char*>(to) + i * to_pitch,
                        static_cast<const char*>(from) + i * from_pitch, width);
        });
    });
    if (to_host) work->pinned.push_back(to);
    if (from_host) work->pinned.push_back(from);
    cuda().enqueue(*mine, std::move(work));
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    FakeStream* mine = cuda().find(stream);
    if (mine == nullptr) return cuda().set(cudaErrorInvalidResourceHandle);
    const auto check = [=] {
        if (!cuda().is_device(memory, bytes)) throw Fault("a memset of what is not live device memory");
    };
    check();
    cuda().enqueue(*mine, host_work("memset", [=] {
        check();
        if (!cuda().is_dry(memory)) std::memset(memory, value, bytes);
    }));
    return cudaSuccess;
}

// --- streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    const Call call(__func__);
    return call.error != cudaSuccess ? call.error : cuda().create_stream(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const Call call(__func__);
    return call.error != cudaSuccess ? call.error : cuda().destroy_stream(stream);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    FakeStream* mine = cuda().find(stream);
    if (mine == nullptr) return cuda().set(cudaErrorInvalidResourceHandle);
    if (cuda().spoils_capture()) return cuda().set(cudaErrorStreamCaptureUnsupported);
    cuda().run(*mine);
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    FakeStream* mine = cuda().find(stream);
    if (mine == nullptr || event == nullptr) return cuda().set(cudaErrorInvalidResourceHandle);
    if (event->state->recorded == 0) return cudaSuccess;  // nothing to wait for
    if (mine->captured != nullptr) {                      // an event from outside the capture
        mine->spoiled = true;
        return cuda().set(cudaErrorStreamCaptureIsolation);
    }
    cuda().enqueue(*mine, event_work(Work::Kind::wait, event, event->state->recorded));
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    *event = new CUevent_st;
    (*event)->state->device = FakeCuda::current_device();
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    FakeStream* mine = cuda().find(stream);
    if (mine == nullptr || event == nullptr) return cuda().set(cudaErrorInvalidResourceHandle);
    if (event->state->device != mine->device) return cuda().set(cudaErrorInvalidResourceHandle);
    if (mine->captured != nullptr)
        throw Fault("an event is recorded in a capture: the fake knows graphs of one stream only");
    event->state->stream = mine;
    cuda().enqueue(*mine, event_work(Work::Kind::record, event, ++event->state->recorded));
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    if (event == nullptr) return cuda().set(cudaErrorInvalidResourceHandle);
    if (cuda().spoils_capture()) return cuda().set(cudaErrorStreamCaptureUnsupported);
    const EventState& state = *event->state;
    if (state.reached < state.recorded) {
        cuda().run(*state.stream, &state, state.recorded);
        if (cuda().find(state.stream)->has_kernels()) cuda().count("waited with kernels behind");
    }
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    if (begin->state->reached == 0 || end->state->reached < end->state->recorded)
        return cuda().set(cudaErrorInvalidValue);
    *ms = std::chrono::duration<float, std::milli>(end->state->time - begin->state->time).count();
    return cudaSuccess;
}

// --- graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    FakeStream* mine = cuda().find(stream);
    if (mine == nullptr || mine->captured != nullptr) return cuda().set(cudaErrorInvalidValue);
    mine->captured = std::make_unique<WorkList>();
    mine->spoiled = false;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    const Call call(__func__);
    *graph = nullptr;
    if (call.error != cudaSuccess) return call.error;
    FakeStream* mine = cuda().find(stream);
    if (mine == nullptr || mine->captured == nullptr) return cuda().set(cudaErrorStreamCaptureUnmatched);
    const std::unique_ptr<WorkList> captured = std::move(mine->captured);
    if (mine->spoiled) return cuda().set(cudaErrorStreamCaptureInvalidated);
    *graph = new CUgraph_st{*captured};
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    *exec = new CUgraphExec_st{graph->work};
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    FakeStream* mine = cuda().find(stream);
    if (mine == nullptr || exec == nullptr) return cuda().set(cudaErrorInvalidResourceHandle);
    if (cuda().check_current(*mine) != cudaSuccess) return cudaErrorInvalidResourceHandle;
    // The first kernel of a graph waits for all that came before, dependent or not.
    cuda().enqueue(*mine, host_work("start of a graph", [] {}));
    for (const auto& work : exec->work) cuda().enqueue(*mine, work);
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    delete exec;  // what was launched of it keeps its work
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    const Call call(__func__);
    if (call.error != cudaSuccess) return call.error;
    delete graph;
    return cudaSuccess;
}
