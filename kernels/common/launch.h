// The shape of a launch, for both sides of the seam, and the rules of launches that the host must keep.
#pragma once

#include <cstddef>
#include <mutex>
#include <unordered_map>

struct CUstream_st;  // what a cudaStream_t points to

namespace llmgen::kernels {

/// What one device has answered about kernels: to ask at each launch costs as much as the launch. Belongs to
/// whoever owns the stream; any thread may launch.
class KnownKernels {
public:
    /// `overlap`: whether dependent launches may overlap at all.
    explicit KnownKernels(bool overlap = true) : overlap_(overlap) {}
    struct Answers {
        std::size_t shared = 0;  // dynamic bytes that it was asked for, and granted
        bool overlaps = false;   // its dependent launches
    };
    /// `ask(Answers&)`: of this kernel, for the first time or for more shared memory than before; false where
    /// the device refused, which is then asked again.
    template <typename Ask>
    Answers of(const void* kernel, std::size_t shared, Ask ask) {
        const std::lock_guard lock(mutex_);
        const auto found = known_.find(kernel);
        if (found != known_.end() && found->second.shared >= shared) return found->second;
        Answers answers{shared, false};
        const bool granted = ask(answers);
        answers.overlaps = answers.overlaps && overlap_;
        if (granted) known_[kernel] = answers;
        return answers;
    }

private:
    bool overlap_;
    std::mutex mutex_;
    std::unordered_map<const void*, Answers> known_;
};

/// A cudaStream_t, with what is known of the kernels on its device; null: every launch asks.
struct Stream {
    Stream(CUstream_st* stream = nullptr, KnownKernels* known_kernels = nullptr)
        : handle(stream), known(known_kernels) {}
    CUstream_st* handle;
    KnownKernels* known;
};

struct Shape {
    unsigned grid_x = 1, grid_y = 1, grid_z = 1;
    unsigned threads = 1;
    std::size_t dynamic_shared = 0;
    /// The most that any launch of this kernel takes; 0: all take the same.
    std::size_t most_shared = 0;
};

/// How much dynamic shared memory a launch must ask for first; 0: nothing. Without asking, a block has 48 KiB
/// less the kernel's own arrays, whose size the host doesn't know, so any amount is asked for. Of one kernel
/// it is always the same, lest a small launch take back what a recorded larger one was granted.
inline std::size_t shared_to_ask_for(const Shape& shape) {
    return shape.dynamic_shared == 0                  ? 0
           : shape.dynamic_shared < shape.most_shared ? shape.most_shared
                                                      : shape.dynamic_shared;
}

/// What is known of a kernel, or what `ask` finds out.
template <typename Ask>
KnownKernels::Answers answers_of(const Stream& stream, const void* kernel, std::size_t shared, Ask ask) {
    if (stream.known != nullptr) return stream.known->of(kernel, shared, ask);
    KnownKernels::Answers answers{shared, false};
    ask(answers);
    return answers;
}

/// Whether a launch may start before the one before it in the stream has ended (programmatic dependent
/// launch). Its kernel must call grid_dependency_wait() in every thread before it reads what a predecessor
/// wrote, writes what one reads, or leaves.
enum class Dependent : bool { no, yes };

/// Whether dependent launches of a kernel may overlap. `major`: of the card; older ones refuse the attribute.
/// `virtual_arch`: what the kernel was compiled for (90 for sm_90a): below 90 its waits are empty, also where
/// the driver makes code for a newer card of it. `driver`: before CUDA 12.3 such launches can't be recorded.
inline bool may_overlap(int major, int virtual_arch, int driver) {
    return major >= 9 && virtual_arch >= 90 && driver >= 12030;
}

}  // namespace llmgen::kernels
