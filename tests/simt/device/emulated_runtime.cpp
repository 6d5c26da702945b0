#include "simt/device/emulated_runtime.h"

#include "base/error.h"
#include "ops/cuda/device_runtime.h"
#include "ops/cuda/kernel_ops.h"
#include "simt/fake/fake_cuda.h"

namespace llmgen::simt {

std::unique_ptr<Ops> make_emulated_cuda_ops(Compute compute, bool overlap, Moment moment) {
    FakeCuda& cuda = FakeCuda::get();
    if (cuda.n_streams() == 0) {  // whatever was open before is closed
        CHECK(cuda.n_device_allocations() == 0 && cuda.n_pinned_allocations() == 0,
              "{} allocations of device memory and {} of pinned memory were never released",
              cuda.n_device_allocations(), cuda.n_pinned_allocations());
        FakeCard card;
        card.machine.overlap = overlap;
        card.moment = moment;
        cuda.reset(card);
    }
    return cuda::make_kernel_ops(cuda::make_device_runtime(0), compute);
}

}  // namespace llmgen::simt
