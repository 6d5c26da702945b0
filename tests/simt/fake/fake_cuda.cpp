#include "simt/fake/fake_cuda.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>

#include "simt/fake/launch_check.h"

namespace llmgen::simt {
namespace {

/// Fresh and freed memory holds it: NaN in every float format. Of huge allocations (a pool of keys) only the
/// two ends, which is where indices that are off by a little land.
constexpr int kPoison = 0xff;
constexpr std::size_t kPoisonWhole = 64 << 20, kPoisonEnd = 16 << 20;
/// From here on memory is mapped and never counted: a card may have more than the host, if nobody touches it.
constexpr std::size_t kMapped = std::size_t(4) << 30;

void poison(void* memory, std::size_t bytes) {
    if (bytes <= kPoisonWhole) {
        std::memset(memory, kPoison, bytes);
        return;
    }
    std::memset(memory, kPoison, kPoisonEnd);
    std::memset(static_cast<char*>(memory) + bytes - kPoisonEnd, kPoison, kPoisonEnd);
}

constexpr std::align_val_t kAlignment{256};

/// `dry`: addresses that nobody may read or write.
void* new_memory(std::size_t bytes, bool dry) {
    if (bytes < kMapped && !dry) return ::operator new(bytes, kAlignment);
    void* memory = mmap(nullptr, bytes, dry ? PROT_NONE : PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return memory;
}
void delete_memory(void* memory, std::size_t bytes, bool dry) {
    if (bytes < kMapped && !dry) return ::operator delete(memory, kAlignment);
    munmap(memory, bytes);
}

/// Of a dry card: memory up to here has contents.
constexpr std::size_t kReal = 1024;

bool is_discovery(const Launch& launch) {
    void* out = nullptr;
    std::memcpy(&out, launch.parameters[0].data(), sizeof out);
    return launch.name == "rope_angles" && !FakeCuda::get().is_dry(out);
}

Launch copy_of(const Launch& launch) {
    Launch copy;
    copy.name = launch.name;
    copy.grid = launch.grid;
    copy.block = launch.block;
    copy.dynamic_shared = launch.dynamic_shared;
    copy.granted_shared = launch.granted_shared;
    copy.kernel = launch.kernel;
    copy.dependent = launch.dependent;
    copy.body = launch.body;
    return copy;
}

}  // namespace

FakeCuda& FakeCuda::get() {
    static FakeCuda cuda;
    return cuda;
}

void FakeCuda::reset(FakeCard fresh) {
    const std::lock_guard lock(mutex_);
    card = std::move(fresh);
    failures_.clear();
    calls_.clear();
    last_ = cudaSuccess;
    random_.seed(card.seed);
    on_launch = nullptr;
    current_device() = 0;
}

void FakeCuda::fail_call(const std::string& call, cudaError_t error, int after) {
    failures_[call] = {error, after};
}

std::size_t FakeCuda::n_calls(const std::string& call) const {
    const auto found = calls_.find(call);
    return found == calls_.end() ? 0 : found->second;
}

cudaError_t FakeCuda::enter(const char* call, bool needs_device) {
    ++calls_[call];
    if (const auto found = failures_.find(call); found != failures_.end() && found->second.second-- <= 0) {
        const cudaError_t error = found->second.first;
        failures_.erase(found);
        return set(error);
    }
    if (!needs_device) return cudaSuccess;
    if (card.driver_version == 0) return set(cudaErrorInsufficientDriver);
    if (card.n_devices == 0) return set(cudaErrorNoDevice);
    return cudaSuccess;
}

cudaError_t FakeCuda::set(cudaError_t error) {
    if (error != cudaSuccess) last_ = error;
    return error;
}

cudaError_t FakeCuda::take_last() { return std::exchange(last_, cudaSuccess); }

// --- memory

cudaError_t FakeCuda::allocate(bool pinned, void** memory, std::size_t bytes) {
    *memory = nullptr;
    if (bytes == 0) return cudaSuccess;
    const int device = current_device();
    if (!pinned && bytes > card.memory - std::min(card.memory, device_bytes(device)))
        return set(cudaErrorMemoryAllocation);
    const bool dry = !pinned && card.dry && bytes > kReal;
    *memory = new_memory(bytes, dry);
    if (card.dry && !pinned && !dry)
        std::memset(*memory, 0, bytes);
    else if (!dry)
        poison(*memory, bytes);
    (pinned ? pinned_ : device_)[static_cast<const char*>(*memory)] = {bytes, device, dry};
    return cudaSuccess;
}

cudaError_t FakeCuda::release(bool pinned, void* memory) {
    if (memory == nullptr) return cudaSuccess;
    Allocations& from = pinned ? pinned_ : device_;
    const auto found = from.find(static_cast<const char*>(memory));
    if (found == from.end()) return set(cudaErrorInvalidValue);
    if (pinned) {
        for (const auto& stream : streams_)
            for (const auto& work : stream->queue)
                for (const void* used : work->pinned)
                    if (used >= found->first && used < found->first + found->second.bytes)
                        throw Fault(
                            fmt::format("pinned memory is freed before its {} has happened", work->what));
    } else {
        run_all();  // as cudaFree waits
    }
    const std::size_t bytes = found->second.bytes;
    const bool dry = found->second.dry;
    if (!dry) poison(memory, bytes);
    from.erase(found);
    delete_memory(memory, bytes, dry);
    return cudaSuccess;
}

const FakeCuda::Allocation* FakeCuda::find(const Allocations& allocations, const void* p, std::size_t bytes) {
    const auto* at = static_cast<const char*>(p);
    auto next = allocations.upper_bound(at);
    if (next == allocations.begin()) return nullptr;
    const auto& [start, allocation] = *--next;
    return bytes <= allocation.bytes && at + bytes <= start + allocation.bytes ? &allocation : nullptr;
}

std::size_t FakeCuda::device_bytes(int device) const {
    std::size_t bytes = 0;
    for (const auto& [start, allocation] : device_)
        bytes += allocation.device == device ? allocation.bytes : 0;
    return bytes;
}

int FakeCuda::device_of(const void* p) const {
    const Allocation* allocation = find(device_, p, 1);
    return allocation == nullptr ? -1 : allocation->device;
}

bool FakeCuda::is_dry(const void* p) const {
    const Allocation* allocation = find(device_, p, 1);
    return allocation != nullptr && allocation->dry;
}

bool FakeCuda::is_awaited(const void* p, std::size_t bytes) const {
    const auto* at = static_cast<const char*>(p);
    for (const auto& stream : streams_)
        for (const auto& work : stream->queue)
            for (const void* used : work->pinned)
                if (used >= at && used < at + bytes) return true;
    return false;
}

// --- streams

cudaError_t FakeCuda::create_stream(cudaStream_t* stream) {
    streams_.push_back(std::make_unique<FakeStream>());
    streams_.back()->device = current_device();
    *stream = streams_.back().get();
    return cudaSuccess;
}

cudaError_t FakeCuda::check_current(const FakeStream& stream) {
    return stream.device == current_device() ? cudaSuccess : set(cudaErrorInvalidResourceHandle);
}

cudaError_t FakeCuda::destroy_stream(cudaStream_t stream) {
    FakeStream* mine = find(stream);
    if (mine == nullptr) return set(cudaErrorInvalidResourceHandle);
    run(*mine);
    std::erase_if(streams_, [&](const auto& s) { return s.get() == mine; });
    return cudaSuccess;
}

FakeStream* FakeCuda::find(cudaStream_t stream) const {
    for (const auto& mine : streams_)
        if (mine.get() == stream) return mine.get();
    return nullptr;
}

bool FakeCuda::spoils_capture() {
    bool any = false;
    for (const auto& stream : streams_)
        if (stream->captured != nullptr) any = stream->spoiled = true;
    return any;
}

void FakeStream::launch(Launch launch) {
    FakeCuda& cuda = FakeCuda::get();
    const std::lock_guard lock(cuda.mutex());
    const bool dry = cuda.card.dry && !is_discovery(launch);
    // An error is found by the caller's cudaGetLastError().
    if (launch.asked) cuda.count("asked about a kernel");
    if (cuda.enter("launch") != cudaSuccess || cuda.check_current(*this) != cudaSuccess) return;
    cuda.check(launch);
    if (cuda.on_launch) cuda.on_launch(launch);
    auto work = std::make_shared<Work>();
    work->kind = dry ? Work::Kind::host : Work::Kind::kernel;
    work->what = "kernel " + launch.name;
    work->run = [] {};  // of a dry card
    work->launch = std::move(launch);
    cuda.enqueue(*this, std::move(work));
}

void FakeCuda::check(const Launch& launch) const {
    Machine::check_limits(launch);
    check_memory(launch, [this](const void* p, std::size_t bytes) { return is_device(p, bytes); });
}

bool FakeStream::has_kernels() const {
    return std::ranges::any_of(queue, [](const auto& work) { return work->kind == Work::Kind::kernel; });
}

void FakeCuda::enqueue(FakeStream& stream, std::shared_ptr<const Work> work) {
    if (stream.captured != nullptr) {
        stream.captured->push_back(std::move(work));
        return;
    }
    stream.queue.push_back(std::move(work));
    if (card.moment == Moment::at_once) run(stream);
    if (card.moment == Moment::random)
        for (const auto& some : streams_)
            if (random_() % 4 == 0 && !some->queue.empty() && !some->running) run_one(*some);
}

void FakeCuda::run_one(FakeStream& stream) {
    WorkList rest(stream.queue.begin() + 1, stream.queue.end());
    stream.queue.resize(1);
    run(stream);
    stream.queue = std::move(rest);
}

void FakeCuda::run_all() {
    for (std::size_t i = 0; i < streams_.size(); ++i) run(*streams_[i]);
}

void FakeCuda::drop_everything() {
    for (const auto& stream : streams_) {
        stream->queue.clear();
        stream->running = false;
    }
}

// Kernels gather on the emulator as long as nothing else comes between them, so that dependent ones overlap.
void FakeCuda::run(FakeStream& stream, const EventState* event, std::uint64_t ticket) {
    if (stream.queue.empty()) return;
    if (stream.running) throw Fault("streams wait for each other");
    Machine& machine = Machine::get();
    machine.config = card.machine;
    stream.running = true;
    try {
        while (!stream.queue.empty() && (event == nullptr || event->reached < ticket)) {
            const std::shared_ptr<const Work> work = std::move(stream.queue.front());
            stream.queue.pop_front();
            if (work->kind == Work::Kind::kernel) {
                machine.launch(copy_of(work->launch));
                continue;
            }
            machine.synchronize();
            if (work->kind == Work::Kind::host) work->run();
            if (work->kind == Work::Kind::record) {
                work->event->reached = std::max(work->event->reached, work->ticket);
                work->event->time = std::chrono::steady_clock::now();
            }
            if (work->kind == Work::Kind::wait && work->event->reached < work->ticket)
                run(*work->event->stream, work->event.get(), work->ticket);
        }
        machine.synchronize();
    } catch (...) {
        drop_everything();
        // A stream that is destroyed while another fault unwinds must not throw a second one.
        if (std::uncaught_exceptions() == 0) throw;
    }
    stream.running = false;
}

}  // namespace llmgen::simt
