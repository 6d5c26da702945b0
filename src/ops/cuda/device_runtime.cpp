#include "ops/cuda/device_runtime.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "ops/cuda/device_api.h"
#include "ops/cuda/device_gemm.h"
#include "ops/cuda/discovery.h"
#include "ops/cuda/lt_api.h"
#include "ops/cuda/pinned_ring.h"
#include "ops/cuda/step_graphs.h"

namespace llmgen::cuda {
namespace {

constexpr std::size_t kWorkspace = 32 << 20;  // what cuBLAS itself takes on Hopper
constexpr std::size_t kStaging = 1 << 20;
constexpr int kSlots = 16;
constexpr std::size_t kSlotBytes = 8 << 20;
constexpr unsigned kMaxFillThreads = 8;

/// Pinned host memory.
class Pinned {
public:
    Pinned(int ordinal, std::size_t bytes) {
        void* memory = nullptr;
        cuda_check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), ordinal, "pinned host memory");
        data_ = static_cast<char*>(memory);
    }
    ~Pinned() { cudaFreeHost(data_); }
    Pinned(const Pinned&) = delete;
    char* data() const { return data_; }

private:
    char* data_;
};

class DeviceMemory {
public:
    DeviceMemory(int ordinal, std::size_t bytes, const char* what) {
        cuda_check(cudaMalloc(&data_, bytes), ordinal, what);
    }
    ~DeviceMemory() { cudaFree(data_); }
    DeviceMemory(const DeviceMemory&) = delete;
    void* data() const { return data_; }

private:
    void* data_ = nullptr;
};

/// Small copies to the device: into one half of a pinned buffer while the device reads the other. A copy
/// straight from ordinary memory would wait for all the work before it.
class Staging {
public:
    Staging(int ordinal, cudaStream_t stream)
        : ordinal_(ordinal),
          stream_(stream),
          buffer_(ordinal, 2 * kStaging),
          done_{DeviceEvent(ordinal), DeviceEvent(ordinal)} {}

    /// Room for at most kStaging bytes, valid until the next call.
    char* room(std::size_t bytes) {
        if (used_ + bytes > kStaging) {
            cuda_check(cudaEventRecord(done_[half_].get(), stream_), ordinal_, "a copy");
            recorded_[half_] = true;
            half_ = 1 - half_;
            used_ = 0;
            if (recorded_[half_]) cuda_check(cudaEventSynchronize(done_[half_].get()), ordinal_, "a copy");
        }
        char* at = buffer_.data() + std::size_t(half_) * kStaging + used_;
        used_ += (bytes + 63) / 64 * 64;
        return at;
    }
    /// All of it, after a synchronisation.
    char* all() {
        used_ = 0;
        recorded_[0] = recorded_[1] = false;
        return buffer_.data();
    }

private:
    int ordinal_;
    cudaStream_t stream_;
    Pinned buffer_;
    DeviceEvent done_[2];
    bool recorded_[2] = {};
    int half_ = 0;
    std::size_t used_ = 0;
};

/// Small copies from the device that nobody waits for at once: into two pinned buffers in turn.
class LateReads {
public:
    LateReads(int ordinal, cudaStream_t stream) : ordinal_(ordinal), stream_(stream) {}

    int begin(const void* device, std::size_t bytes) {
        next_ = 1 - next_;
        Slot& slot = slots_[next_];
        if (slot.bytes < bytes) {
            if (slot.memory) cuda_check(cudaStreamSynchronize(stream_), ordinal_, "reading ids");
            slot.bytes = std::max<std::size_t>(bytes, 4096);
            slot.memory = std::make_unique<Pinned>(ordinal_, slot.bytes);
            if (!slot.copied) slot.copied = std::make_unique<DeviceEvent>(ordinal_);
        }
        cuda_check(cudaMemcpyAsync(slot.memory->data(), device, bytes, cudaMemcpyDeviceToHost, stream_),
                   ordinal_, "reading ids");
        cuda_check(cudaEventRecord(slot.copied->get(), stream_), ordinal_, "reading ids");
        return next_;
    }
    void finish(void* host, std::size_t bytes, int ticket) {
        const Slot& slot = slots_[ticket];
        CHECK(slot.memory && bytes <= slot.bytes, "{} bytes were not asked for", bytes);
        cuda_check(cudaEventSynchronize(slot.copied->get()), ordinal_, "waiting for the GPU");
        std::memcpy(host, slot.memory->data(), bytes);
    }

private:
    struct Slot {
        std::unique_ptr<Pinned> memory;
        std::unique_ptr<DeviceEvent> copied;
        std::size_t bytes = 0;
    };
    int ordinal_;
    cudaStream_t stream_;
    Slot slots_[2];
    int next_ = 0;
};

/// The ring's copies, in turn on two streams.
class RingCopies : public SlotCopies {
public:
    explicit RingCopies(int ordinal)
        : ordinal_(ordinal), streams_{DeviceStream(ordinal), DeviceStream(ordinal)} {}
    ~RingCopies() override {
        for (const DeviceStream& stream : streams_) cudaStreamSynchronize(stream.get());
    }

    char* slot(int index) override {
        while (int(slots_.size()) <= index) {
            slots_.push_back(std::make_unique<Pinned>(ordinal_, kSlotBytes));
            copied_.push_back(std::make_unique<DeviceEvent>(ordinal_));
        }
        return slots_[std::size_t(index)]->data();
    }
    void copy(int index, void* device, std::size_t bytes) override {
        const cudaStream_t stream = streams_[index % 2].get();
        cuda_check(cudaMemcpyAsync(device, slots_[std::size_t(index)]->data(), bytes, cudaMemcpyHostToDevice,
                                   stream),
                   ordinal_, "copying weights");
        cuda_check(cudaEventRecord(copied_[std::size_t(index)]->get(), stream), ordinal_, "copying weights");
        last_[index % 2] = index;
    }
    void wait(int index) override {
        cuda_check(cudaEventSynchronize(copied_[std::size_t(index)]->get()), ordinal_, "copying weights");
    }
    /// What `stream` does from here on comes after every copy so far.
    void order_before(cudaStream_t stream) {
        for (int& last : last_) {
            if (last < 0) continue;
            cuda_check(cudaStreamWaitEvent(stream, copied_[std::size_t(last)]->get(), 0), ordinal_,
                       "copying weights");
            last = -1;
        }
    }

private:
    int ordinal_;
    DeviceStream streams_[2];
    std::vector<std::unique_ptr<Pinned>> slots_;
    std::vector<std::unique_ptr<DeviceEvent>> copied_;
    int last_[2] = {-1, -1};  // slot of a stream's newest copy
};

int fill_threads() { return int(std::clamp(std::thread::hardware_concurrency(), 1u, kMaxFillThreads)); }

// To find out what a card makes of it when ids are wrong or steps fail, each without a new build:
//   LLMGEN_SYNC=1     every operation is waited for, and nothing recorded: the one that fails is named
//   LLMGEN_RECORD=0   nothing is recorded
//   LLMGEN_OVERLAP=0  no launch begins before the one before it has ended
bool wants_sync() {
    const char* value = std::getenv("LLMGEN_SYNC");
    return value != nullptr && *value != '\0' && *value != '0';
}
bool forbids(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && std::string_view(value) == "0";
}

class DeviceRuntime : public Runtime {
public:
    explicit DeviceRuntime(int ordinal)
        : ordinal_(ordinal),
          stream_(ordinal),
          staging_(ordinal, stream_.get()),
          reads_(ordinal, stream_.get()),
          workspace_(ordinal, kWorkspace, "cuBLASLt's workspace"),
          gemm_(lt_api(), workspace_.data(), kWorkspace),
          graphs_(ordinal, stream_.get()),
          known_kernels_(!forbids("LLMGEN_OVERLAP")),
          sync_(wants_sync()),
          records_(!sync_ && !forbids("LLMGEN_RECORD")) {}
    ~DeviceRuntime() override { cudaStreamSynchronize(stream_.get()); }

    DeviceInfo info() const override { return device_info(ordinal_); }
    void* allocate(std::size_t bytes) override;
    void release(void* memory) override { cudaFree(memory); }
    void copy_in(Rows device, Rows host, std::size_t width, std::size_t height) override;
    void copy_out(Rows host, Rows device, std::size_t width, std::size_t height) override;
    int begin_read(const void* device, std::size_t bytes) override {
        enter();
        return reads_.begin(device, bytes);
    }
    void finish_read(void* host, std::size_t bytes, int ticket) override {
        reads_.finish(host, bytes, ticket);
    }
    void write(void* device, std::size_t bytes, std::size_t granule, const Fill& fill) override;
    void finish_writes() override {
        ring_.reset();
        copies_.reset();
    }
    void synchronize() override {
        cuda_check(cudaStreamSynchronize(stream_.get()), ordinal_, "waiting for the GPU");
    }
    kernels::Stream stream() override {
        enter();
        return {stream_.get(), &known_kernels_};
    }
    void check(const char* op) override {
        cuda_check(cudaGetLastError(), ordinal_, op);
        if (sync_) cuda_check(cudaStreamSynchronize(stream_.get()), ordinal_, op);
    }
    bool gemm(const Gemm& gemm) override {
        enter();
        return gemm_.run(gemm, stream_.get());
    }
    Tensor step(std::uint64_t key, const std::function<Tensor()>& enqueue) override {
        enter();
        return records_ ? graphs_.step(key, enqueue) : enqueue();
    }
    void forget_steps() override { graphs_.clear(); }

private:
    /// The current device is each host thread's own, 0 in a new one, and whoever loaded the model need not be
    /// who runs it. Launches, allocations and new events go to it. Where it is the right one already, this
    /// costs nothing to speak of.
    void enter() { cuda_check(cudaSetDevice(ordinal_), ordinal_, "entering the GPU"); }

    int ordinal_;
    DeviceStream stream_;
    Staging staging_;
    LateReads reads_;
    DeviceMemory workspace_;
    DeviceGemm gemm_;
    StepGraphs graphs_;
    kernels::KnownKernels known_kernels_;
    bool sync_, records_;
    std::unique_ptr<RingCopies> copies_;
    std::unique_ptr<PinnedRing> ring_;
};

void* DeviceRuntime::allocate(std::size_t bytes) {
    enter();
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return nullptr;
    }
    cuda_check(error, ordinal_, "allocating memory");
    return memory;
}

/// Calls part(first_row, n_rows, column, width) so that no part has more than kStaging bytes.
template <typename Part>
void in_parts(std::size_t width, std::size_t height, const Part& part) {
    if (width > kStaging) {
        for (std::size_t row = 0; row < height; ++row)
            for (std::size_t column = 0; column < width; column += kStaging)
                part(row, std::size_t(1), column, std::min(kStaging, width - column));
        return;
    }
    const std::size_t rows = kStaging / std::max<std::size_t>(width, 1);
    for (std::size_t row = 0; row < height; row += rows)
        part(row, std::min(rows, height - row), std::size_t(0), width);
}

char* at(const Rows& rows, std::size_t row, std::size_t column) {
    return static_cast<char*>(rows.data) + row * rows.pitch + column;
}

void DeviceRuntime::copy_in(Rows device, Rows host, std::size_t width, std::size_t height) {
    in_parts(width, height, [&](std::size_t row, std::size_t n, std::size_t column, std::size_t bytes) {
        char* room = staging_.room(n * bytes);
        for (std::size_t i = 0; i < n; ++i) std::memcpy(room + i * bytes, at(host, row + i, column), bytes);
        const cudaError_t error =
            n == 1
                ? cudaMemcpyAsync(at(device, row, column), room, bytes, cudaMemcpyHostToDevice, stream_.get())
                : cudaMemcpy2DAsync(at(device, row, column), device.pitch, room, bytes, bytes, n,
                                    cudaMemcpyHostToDevice, stream_.get());
        cuda_check(error, ordinal_, "copying to the GPU");
    });
}

void DeviceRuntime::copy_out(Rows host, Rows device, std::size_t width, std::size_t height) {
    synchronize();
    in_parts(width, height, [&](std::size_t row, std::size_t n, std::size_t column, std::size_t bytes) {
        char* room = staging_.all();
        const cudaError_t error =
            n == 1
                ? cudaMemcpyAsync(room, at(device, row, column), bytes, cudaMemcpyDeviceToHost, stream_.get())
                : cudaMemcpy2DAsync(room, bytes, at(device, row, column), device.pitch, bytes, n,
                                    cudaMemcpyDeviceToHost, stream_.get());
        cuda_check(error, ordinal_, "copying from the GPU");
        synchronize();
        for (std::size_t i = 0; i < n; ++i) std::memcpy(at(host, row + i, column), room + i * bytes, bytes);
    });
}

void DeviceRuntime::write(void* device, std::size_t bytes, std::size_t granule, const Fill& fill) {
    if (granule > kSlotBytes) return Runtime::write(device, bytes, granule, fill);
    enter();
    if (ring_ == nullptr) {
        copies_ = std::make_unique<RingCopies>(ordinal_);
        ring_ = std::make_unique<PinnedRing>(*copies_, kSlots, kSlotBytes, fill_threads());
    }
    ring_->write(device, bytes, granule, fill);
    copies_->order_before(stream_.get());
}

}  // namespace

std::unique_ptr<Runtime> make_device_runtime(int ordinal) {
    if (const std::string problem = device_problem(ordinal); !problem.empty())
        fail("cuda:{}: {}", ordinal, problem);
    cuda_check(cudaSetDevice(ordinal), ordinal, "opening the GPU");
    return std::make_unique<DeviceRuntime>(ordinal);
}

}  // namespace llmgen::cuda
