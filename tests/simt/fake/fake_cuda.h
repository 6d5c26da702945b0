// The device behind the fake of the CUDA runtime API: streams that do their work at the latest legal moment
// (or at once, or at random moments), kernels on the emulator, memory with a limit, and errors on demand.
//
//   call ─► stream's queue ─► run when somebody waits for it: kernels as a chain on the emulator (dependent
//                             ones overlap), copies and GEMMs on the CPU in between
//   a capturing stream puts its work into a graph instead; launching a graph queues that work once more
//
// Found without any luck: copies between anything but live device memory and pinned memory, pinned memory
// freed under a copy, calls that a capture forbids, GEMMs less aligned than their algorithm was asked for,
// launches and records by a host thread whose current device isn't the stream's.
// Found by the moments: results read before the wait (the target of a copy holds poison until it lands),
// sources reused before the copy has read them, work of two streams without an event between.
//
// A finding is a Fault, thrown by the call that meets it.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"
#include "simt/device/emulated_runtime.h"
#include "simt/machine.h"

namespace llmgen::simt {

/// The card that the API shows, and how it behaves.
struct FakeCard {
    std::string name = "a GPU emulated on the CPU";
    int n_devices = 1, major = 9, minor = 0, n_sms = 4;
    int compute_mode = 0;
    int driver_version = 13000;  // 0: no driver
    std::size_t memory = std::size_t(3) << 30;
    Moment moment = Moment::latest;
    std::uint64_t seed = 1;  // of Moment::random
    /// Everything is checked and nothing computed: memory has an address and no contents, copies of it to the
    /// host bring zeros. For models and cards that the host could not hold. All but the kernel that discovery
    /// tries a card with, in memory of a kilobyte at most, which is real.
    bool dry = false;
    Config machine{.count_global = false};
};

class FakeStream;

struct EventState {
    int device = 0;
    std::uint64_t recorded = 0, reached = 0;     // how often
    FakeStream* stream = nullptr;                // of the latest record
    std::chrono::steady_clock::time_point time;  // when it was reached: the emulator's own, no card's
};

/// One thing in a stream.
struct Work {
    enum class Kind { kernel, host, record, wait } kind;
    std::string what;
    Launch launch;              // kernel
    std::function<void()> run;  // host
    std::shared_ptr<EventState> event;
    std::uint64_t ticket = 0;           // of the event
    std::vector<const void*> pinned{};  // host memory that it reads or writes
};
using WorkList = std::deque<std::shared_ptr<const Work>>;

class FakeStream : public CUstream_st {
public:
    void launch(Launch launch) override;
    /// Kernels are enqueued that have not run.
    bool has_kernels() const;

    int device = 0;
    WorkList queue;
    std::unique_ptr<WorkList> captured;  // while it captures
    bool spoiled = false;                // the capture, by a call that it forbids
    bool running = false;
};

class FakeCuda {
public:
    static FakeCuda& get();

    FakeCard card;
    /// A new card, nothing allocated, no error pending. What the last one still holds is forgotten.
    void reset(FakeCard fresh = {});
    /// The call of this name answers with `error`, once its next `after` calls have gone well; "launch" is a
    /// kernel's launch.
    void fail_call(const std::string& call, cudaError_t error, int after = 0);

    /// Of the calling thread, as cudaSetDevice left it.
    static int& current_device() {
        static thread_local int device = 0;
        return device;
    }
    std::size_t device_bytes(int device = 0) const;
    std::size_t n_device_allocations() const { return device_.size(); }
    std::size_t n_pinned_allocations() const { return pinned_.size(); }
    std::size_t n_streams() const { return streams_.size(); }
    /// Of a call; or of "waited with kernels behind": of events before kernels that had not run.
    std::size_t n_calls(const std::string& call) const;
    void count(const std::string& what) { ++calls_[what]; }

    // --- for the API's functions
    /// cudaSuccess, or why the call fails before it begins: an injected error, no driver, no card.
    cudaError_t enter(const char* call, bool needs_device = true);
    /// Keeps the error for cudaGetLastError().
    cudaError_t set(cudaError_t error);
    cudaError_t take_last();
    cudaError_t allocate(bool pinned, void** memory, std::size_t bytes);
    cudaError_t release(bool pinned, void* memory);
    cudaError_t create_stream(cudaStream_t* stream);
    /// cudaSuccess, or that this thread's current device is another than the stream's.
    cudaError_t check_current(const FakeStream& stream);
    cudaError_t destroy_stream(cudaStream_t stream);
    /// Null where there is no such stream.
    FakeStream* find(cudaStream_t stream) const;
    void enqueue(FakeStream& stream, std::shared_ptr<const Work> work);
    /// Runs the stream's work until the event has been reached so often, or to its end.
    void run(FakeStream& stream, const EventState* event = nullptr, std::uint64_t ticket = 0);
    void run_all();
    bool is_device(const void* p, std::size_t bytes) const { return find(device_, p, bytes) != nullptr; }
    /// Whether that device memory has no contents.
    bool is_dry(const void* p) const;
    /// The launch as the fake looks at it before it runs.
    void check(const Launch& launch) const;
    bool is_pinned(const void* p, std::size_t bytes) const { return find(pinned_, p, bytes) != nullptr; }
    /// The device whose memory that is; -1: none's.
    int device_of(const void* p) const;
    /// What has not happened yet reads or writes this pinned memory.
    bool is_awaited(const void* p, std::size_t bytes) const;
    /// A capture is under way, which a call that it forbids has just spoiled.
    bool spoils_capture();
    std::recursive_mutex& mutex() { return mutex_; }

    /// Sees every launch that was taken, as it is made.
    std::function<void(const Launch&)> on_launch;

private:
    struct Allocation {
        std::size_t bytes;
        int device;
        bool dry;
    };
    using Allocations = std::map<const char*, Allocation>;
    static const Allocation* find(const Allocations& allocations, const void* p, std::size_t bytes);
    void run_one(FakeStream& stream);
    void drop_everything();

    std::recursive_mutex mutex_;
    Allocations device_, pinned_;
    std::vector<std::unique_ptr<FakeStream>> streams_;
    std::map<std::string, std::pair<cudaError_t, int>> failures_;
    std::map<std::string, std::size_t> calls_;
    cudaError_t last_ = cudaSuccess;
    std::mt19937_64 random_{1};
};

}  // namespace llmgen::simt

struct CUevent_st {
    std::shared_ptr<llmgen::simt::EventState> state = std::make_shared<llmgen::simt::EventState>();
};
struct CUgraph_st {
    llmgen::simt::WorkList work;
};
struct CUgraphExec_st {
    llmgen::simt::WorkList work;
};
