// Whatever CUDA answers, a person reads one line that says what is missing and what to do.
#include "ops/cuda/discovery.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/device_api.h"
#include "simt/fake/fake_cuda.h"

namespace llmgen::cuda {
namespace {

using simt::FakeCard;
using simt::FakeCuda;
using ::testing::HasSubstr;

class Discovery : public ::testing::Test {
protected:
    void SetUp() override { FakeCuda::get().reset(); }
    void TearDown() override { FakeCuda::get().reset(); }

    static void use(const std::function<void(FakeCard&)>& change) {
        FakeCard card;
        change(card);
        FakeCuda::get().reset(card);
    }
    /// The same line from all who ask: `auto`'s reason, --device cuda's error, the list of devices.
    static void expect_problem(const std::string& part, int ordinal = 0) {
        const std::string problem = device_problem(ordinal);
        EXPECT_THAT(problem, HasSubstr(part));
        EXPECT_EQ(problem.find('\n'), std::string::npos);
        EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "an error stays on the runtime's record";
    }
    static std::string error_of_opening(int ordinal = 0) {
        try {
            make_cuda_ops(ordinal, Compute::bf16);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    }
};

TEST_F(Discovery, AGoodCardHasNoProblem) {
    EXPECT_EQ(device_problem(0), "");
    EXPECT_EQ(cuda_unavailable_reason(), "");
    EXPECT_EQ(FakeCuda::get().n_device_allocations(), 0u) << "the probe leaves nothing behind";
    EXPECT_EQ(FakeCuda::get().n_pinned_allocations(), 0u);
    EXPECT_EQ(FakeCuda::get().n_streams(), 0u);
    const DeviceInfo info = device_info(0);
    EXPECT_EQ(info.name, "cuda:0");
    EXPECT_EQ(info.description, "a GPU emulated on the CPU, sm_90, 4 SMs, driver for CUDA 13.0");
    EXPECT_EQ(info.memory_total, FakeCard().memory);
    EXPECT_EQ(info.memory_free, FakeCard().memory);
}

TEST_F(Discovery, NoDriver) {
    use([](FakeCard& card) { card.driver_version = 0; });
    expect_problem("no NVIDIA driver found (libcuda.so.1): install the driver");
    EXPECT_TRUE(list_cuda_devices().empty());
    EXPECT_THAT(error_of_opening(), HasSubstr("cuda:0: no NVIDIA driver found"));
}

TEST_F(Discovery, ADriverTooOldNamesBothVersions) {
    use([](FakeCard& card) { card.driver_version = 12040; });
    expect_problem("the NVIDIA driver is too old: it knows CUDA 12.4, this llmgen was built with CUDA 13.0");
}

TEST_F(Discovery, NoCard) {
    use([](FakeCard& card) { card.n_devices = 0; });
    expect_problem("no NVIDIA GPU found; where there is one, CUDA_VISIBLE_DEVICES may hide it");
}

TEST_F(Discovery, AnOrdinalThatIsNotThere) {
    use([](FakeCard& card) { card.n_devices = 2; });
    expect_problem("no such GPU: this machine offers 2, numbered from 0", 2);
    EXPECT_EQ(device_problem(1), "");
    EXPECT_EQ(list_cuda_devices().size(), 2u);
}

TEST_F(Discovery, NoKernelImageNamesTheCardAndWhatWasBuilt) {
    use([](FakeCard& card) {
        card.name = "Tesla T4";
        card.major = 7;
        card.minor = 5;
    });
    FakeCuda::get().fail_call("launch", cudaErrorNoKernelImageForDevice);
    expect_problem(
        "no kernels for this card: it is sm_75 (Tesla T4), this llmgen has emulated; build it on "
        "this machine");
}

TEST_F(Discovery, ABusyCard) {
    FakeCuda::get().fail_call("cudaSetDevice", cudaErrorDevicesUnavailable);
    expect_problem("the GPU is busy: another process holds it alone");
    use([](FakeCard& card) { card.compute_mode = 2; });
    expect_problem("compute mode is Prohibited");
}

TEST_F(Discovery, AFullCardSaysHowFull) {
    FakeCuda::get().fail_call("cudaMalloc", cudaErrorMemoryAllocation);
    expect_problem("out of GPU memory: 3072 of 3072 MiB are free; nvidia-smi shows who uses the rest");
}

TEST_F(Discovery, EveryErrorOfOpeningIsOneLine) {
    const std::pair<cudaError_t, const char*> errors[] = {
        {cudaErrorSystemNotReady, "fabric manager"},
        {cudaErrorSystemDriverMismatch, "different versions"},
        {cudaErrorCompatNotSupportedOnDevice, "LD_LIBRARY_PATH"},
        {cudaErrorECCUncorrectable, "uncorrectable"},
        {cudaErrorOperatingSystem, "/dev/nvidia"},
        {cudaErrorUnsupportedPtxVersion, "PTX is newer than the driver"},
        {cudaErrorIllegalAddress, "a kernel failed (cudaErrorIllegalAddress)"},
        {cudaErrorUnknown, "("},
    };
    for (const auto& [error, part] : errors)
        for (const char* call : {"cudaSetDevice", "cudaStreamCreateWithFlags", "cudaMalloc", "cudaHostAlloc",
                                 "cudaMemsetAsync", "launch", "cudaMemcpyAsync", "cudaStreamSynchronize"}) {
            FakeCuda::get().reset();
            FakeCuda::get().fail_call(call, error);
            SCOPED_TRACE(call);
            expect_problem(part);
        }
}

TEST_F(Discovery, OpeningTellsWhatAllocationFailed) {
    for (int after = 0; after < 8; ++after) {
        FakeCuda::get().reset();
        FakeCuda::get().fail_call("cudaMalloc", cudaErrorMemoryAllocation, after);
        const std::string error = error_of_opening();
        if (after >= 2) {  // the probe's, the workspace
            EXPECT_EQ(error, "");
        } else {
            EXPECT_THAT(error, HasSubstr("out of GPU memory"));
        }
        EXPECT_EQ(FakeCuda::get().n_device_allocations(), 0u) << after;
        EXPECT_EQ(FakeCuda::get().n_pinned_allocations(), 0u) << after;
        EXPECT_EQ(FakeCuda::get().n_streams(), 0u) << after;
    }
}

TEST_F(Discovery, LimitsAreMeasuredAndLeaveNothingBehind) {
    const MachineLimits limits = measure_cuda(0);
    EXPECT_GT(limits.read_bytes_per_s, 0);
    EXPECT_GT(limits.bf16_flop_per_s, 0);
    EXPECT_GT(limits.f32_flop_per_s, 0);
    EXPECT_EQ(FakeCuda::get().n_device_allocations(), 0u);
    EXPECT_EQ(FakeCuda::get().n_streams(), 0u);
    use([](FakeCard& card) { card.memory = 1 << 16; });
    EXPECT_EQ(measure_cuda(0).read_bytes_per_s, 0) << "unknown where there is no room";
    use([](FakeCard& card) { card.driver_version = 0; });
    EXPECT_EQ(measure_cuda(0).read_bytes_per_s, 0);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(Discovery, ABufferThatDoesNotFitSaysNeededFreeAndTotal) {
    auto ops = make_cuda_ops(0, Compute::bf16);
    try {
        ops->allocate(std::size_t(5) << 30, "keys and values");
        FAIL() << "5 GiB on a card of 3";
    } catch (const Error& error) {
        EXPECT_THAT(error.what(),
                    HasSubstr("cuda:0: keys and values needs 5120 MiB of GPU memory, 3040 of 3072 "
                              "MiB are free"));
    }
    EXPECT_NE(ops->allocate(1 << 20, "and a small one")->data(), nullptr);
}

}  // namespace
}  // namespace llmgen::cuda
