#include "simt/device/emulated_runtime.h"

#include <cstring>
#include <map>
#include <new>

#include "base/error.h"
#include "ops/cuda/kernel_ops.h"
#include "simt/machine.h"

namespace llmgen::simt {
namespace {

constexpr std::size_t kMemory = std::size_t(8) << 30;

float element(const void* p, DType type, std::int64_t i) {
    return type == DType::f32 ? static_cast<const float*>(p)[i] : to_f32(static_cast<const bf16*>(p)[i]);
}

class EmulatedRuntime : public cuda::Runtime {
public:
    explicit EmulatedRuntime(bool overlap) : overlap_(overlap) {}
    ~EmulatedRuntime() override {
        CHECK(sizes_.empty(), "{} allocations were never released", sizes_.size());
    }

    DeviceInfo info() const override {
        return {"emulated", "a GPU emulated on the CPU", kMemory, kMemory - used_};
    }
    void* allocate(std::size_t bytes) override {
        if (bytes > kMemory - used_) return nullptr;
        void* memory = ::operator new(bytes, std::align_val_t(256));
        std::memset(memory, 0xff, bytes);
        sizes_[memory] = bytes;
        used_ += bytes;
        return memory;
    }
    void release(void* memory) override {
        synchronize();  // as cudaFree does
        std::memset(memory, 0xff, sizes_.at(memory));
        used_ -= sizes_.at(memory);
        sizes_.erase(memory);
        ::operator delete(memory, std::align_val_t(256));
    }
    void copy_in(cuda::Rows device, cuda::Rows host, std::size_t width, std::size_t height) override {
        copy(device, host, width, height);
    }
    void copy_out(cuda::Rows host, cuda::Rows device, std::size_t width, std::size_t height) override {
        copy(host, device, width, height);
    }
    void synchronize() override { Machine::get().synchronize(); }
    kernels::Stream stream() override {
        Machine::get().config.overlap = overlap_;
        Machine::get().config.count_global = overlap_;
        return nullptr;
    }
    void check(const char*) override {}
    void gemm(const cuda::Gemm& p) override {
        synchronize();  // it stands in for a launch of another library, which the stream orders
        for (int t = 0; t < p.n_tokens; ++t)
            for (int o = 0; o < p.out; ++o) {
                float sum = 0;
                for (int k = 0; k < p.in; ++k)
                    sum += element(p.x, p.act_type, t * p.x_stride + k) *
                           element(p.weight, p.act_type, std::int64_t(o) * p.in + k);
                if (p.bias != nullptr) sum += p.bias[o];
                const std::int64_t at = t * p.y_stride + o;
                if (p.y_type == DType::f32)
                    static_cast<float*>(p.y)[at] = p.accumulate ? static_cast<float*>(p.y)[at] + sum : sum;
                else
                    static_cast<bf16*>(p.y)[at] = to_bf16(sum);
            }
    }

private:
    void copy(cuda::Rows to, cuda::Rows from, std::size_t width, std::size_t height) {
        synchronize();
        for (std::size_t row = 0; row < height; ++row)
            std::memcpy(static_cast<char*>(to.data) + row * to.pitch,
                        static_cast<const char*>(from.data) + row * from.pitch, width);
    }

    bool overlap_;
    std::size_t used_ = 0;
    std::map<void*, std::size_t> sizes_;
};

}  // namespace

std::unique_ptr<Ops> make_emulated_cuda_ops(Compute compute, bool overlap) {
    return cuda::make_kernel_ops(std::make_unique<EmulatedRuntime>(overlap), compute);
}

}  // namespace llmgen::simt
