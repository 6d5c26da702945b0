// The fake runtime's self-test: each of its detectors finds the mistake planted for it, and what is right
// passes at every moment.
#include "simt/fake/fake_cuda.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "common/device.h"
#include "cublasLt.h"
#include "kernels.h"
#include "ops/cuda/cuda_ops.h"

namespace llmgen::simt {
namespace {

using testing::HasSubstr;

void double_kernel(float* values, int n) {
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) values[i] *= 2;
}
void launch_double(float* values, int n, cudaStream_t stream) {
    kernels::launch("double", double_kernel, {unsigned(n + 31) / 32, 1, 1, 32, 0}, kernels::Dependent::no,
                    stream, values, n);
}

class FakeCudaTest : public testing::TestWithParam<Moment> {
protected:
    void SetUp() override {
        FakeCard card;
        card.moment = GetParam();
        FakeCuda::get().reset(card);
        cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
        cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking);
        cudaHostAlloc(reinterpret_cast<void**>(&host_), kBytes, cudaHostAllocDefault);
        cudaMalloc(reinterpret_cast<void**>(&device_), kBytes);
        cudaEventCreateWithFlags(&event_, cudaEventDisableTiming);
        fill(1);
    }
    void TearDown() override {
        cudaStreamDestroy(stream_);
        cudaStreamDestroy(other_);
        cudaFree(device_);
        cudaFreeHost(host_);
        cudaEventDestroy(event_);
        EXPECT_EQ(FakeCuda::get().n_device_allocations() + FakeCuda::get().n_pinned_allocations(), 0u);
    }
    void fill(float value) { std::fill_n(host_, kValues, value); }
    void upload(cudaStream_t stream) {
        EXPECT_EQ(cudaMemcpyAsync(device_, host_, kBytes, cudaMemcpyHostToDevice, stream), cudaSuccess);
    }
    void download(cudaStream_t stream) {
        EXPECT_EQ(cudaMemcpyAsync(host_, device_, kBytes, cudaMemcpyDeviceToHost, stream), cudaSuccess);
    }
    static constexpr int kValues = 100;
    static constexpr std::size_t kBytes = kValues * sizeof(float);
    cudaStream_t stream_ = nullptr, other_ = nullptr;
    cudaEvent_t event_ = nullptr;
    float *host_ = nullptr, *device_ = nullptr;
};

TEST_P(FakeCudaTest, WorkOfAStreamHappensInOrder) {
    upload(stream_);
    launch_double(device_, kValues, stream_);
    launch_double(device_, kValues, stream_);
    download(stream_);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    for (int i = 0; i < kValues; ++i) ASSERT_EQ(host_[i], 4.0f) << i;
}

TEST_P(FakeCudaTest, AnEventOrdersTwoStreams) {
    upload(other_);
    cudaEventRecord(event_, other_);
    cudaStreamWaitEvent(stream_, event_, 0);
    launch_double(device_, kValues, stream_);
    download(stream_);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(host_[kValues - 1], 2.0f);
}

TEST_P(FakeCudaTest, AGraphRunsAsOftenAsItIsLaunchedAndSeesWhatIsThereThen) {
    upload(stream_);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    launch_double(device_, kValues, stream_);
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    cudaGraphDestroy(graph);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
    cudaGraphExecDestroy(exec);
    download(stream_);
    cudaStreamSynchronize(stream_);
    EXPECT_EQ(host_[0], 8.0f);  // the capture itself ran nothing
}

TEST_P(FakeCudaTest, ACaptureIsSpoiledByWhatItForbids) {
    cudaGraph_t graph = nullptr;
    cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
    cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(cudaGetLastError(), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_P(FakeCudaTest, MemoryEndsWhereTheCardDoes) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, FakeCuda::get().card.memory), cudaErrorMemoryAllocation);
    EXPECT_EQ(memory, nullptr);
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    EXPECT_EQ(total - free, kBytes);
    EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
}

TEST_P(FakeCudaTest, CopiesWantLiveDeviceMemoryAndPinnedMemory) {
    std::vector<float> ordinary(kValues);
    EXPECT_THROW(cudaMemcpyAsync(device_, ordinary.data(), kBytes, cudaMemcpyHostToDevice, stream_), Fault);
    EXPECT_THROW(cudaMemcpyAsync(device_, host_, kBytes + 4, cudaMemcpyHostToDevice, stream_), Fault);
    EXPECT_THROW(cudaMemcpyAsync(host_, host_, kBytes, cudaMemcpyDeviceToHost, stream_), Fault);
}

TEST_P(FakeCudaTest, AThreadThatIsOnAnotherDeviceCannotUseAStream) {
    FakeCuda::get().card.n_devices = 2;
    upload(stream_);
    cudaEvent_t foreign = nullptr;
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    launch_double(device_, kValues, stream_);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
    upload(stream_);  // copies may be asked for from anywhere
    cudaEventCreateWithFlags(&foreign, cudaEventDisableTiming);
    EXPECT_EQ(cudaEventRecord(foreign, stream_), cudaErrorInvalidResourceHandle);
    cudaEventDestroy(foreign);
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
    EXPECT_EQ(FakeCuda::get().device_of(memory), 1);
    EXPECT_EQ(FakeCuda::get().device_of(device_), 0);
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
    cudaGetLastError();
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    launch_double(device_, kValues, stream_);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    cudaStreamSynchronize(stream_);
}

INSTANTIATE_TEST_SUITE_P(Moments,
                         FakeCudaTest,
                         testing::Values(Moment::latest, Moment::at_once, Moment::random),
                         [](const auto& info) {
                             return info.param == Moment::latest    ? "latest"
                                    : info.param == Moment::at_once ? "at_once"
                                                                    : "random";
                         });

// --- mistakes that only lateness shows

class LateCudaTest : public FakeCudaTest {};
INSTANTIATE_TEST_SUITE_P(Moments, LateCudaTest, testing::Values(Moment::latest));

TEST_P(LateCudaTest, AResultReadBeforeTheWaitIsPoison) {
    upload(stream_);
    cudaStreamSynchronize(stream_);
    download(stream_);
    EXPECT_TRUE(std::isnan(host_[0]));
    cudaStreamSynchronize(stream_);
}

TEST_P(LateCudaTest, ASourceReusedBeforeTheCopyReadItIsSeenInTheResult) {
    upload(stream_);
    fill(7);
    download(stream_);
    cudaStreamSynchronize(stream_);
    EXPECT_EQ(host_[0], 7.0f);
}

TEST_P(LateCudaTest, TwoStreamsWithoutAnEventAreNotOrdered) {
    upload(other_);
    launch_double(device_, kValues, stream_);
    download(stream_);
    cudaStreamSynchronize(stream_);
    EXPECT_TRUE(std::isnan(host_[0]));  // doubled before anything was there
}

TEST_P(LateCudaTest, PinnedMemoryFreedUnderACopyIsAFault) {
    void* pinned = nullptr;
    cudaHostAlloc(&pinned, kBytes, cudaHostAllocDefault);
    cudaMemcpyAsync(device_, pinned, kBytes, cudaMemcpyHostToDevice, stream_);
    EXPECT_THROW(cudaFreeHost(pinned), Fault);
    cudaStreamSynchronize(stream_);
    EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

/// Found by the launch itself, whatever its kernel would read of it.
TEST_P(FakeCudaTest, AnArgumentOutsideOfLiveMemoryIsAFault) {
    kernels::RmsNorm p{};
    p.out = p.x = device_;
    p.weight = device_ + 80;
    p.out_type = DType::f32;
    p.out_stride = p.x_stride = 20;
    p.n_tokens = 4;
    p.hidden = 20;
    const auto run = [&] { kernels::rmsnorm(p, kernels::Dependent::no, stream_); };
    const auto fault = [&](const char* part) {
        try {
            run();
            ADD_FAILURE() << "no fault: " << part;
        } catch (const Fault& found) {
            EXPECT_THAT(found.what(), HasSubstr(part));
        }
    };
    EXPECT_NO_THROW(run());
    p.n_tokens = 6;
    fault("rmsnorm: out of 480 bytes is not in live device memory");
    p.n_tokens = 4;
    p.weight = device_ + 81;
    fault("rmsnorm: weight of 80 bytes");
    p.weight = host_;
    fault("weight");

    kernels::Gemv g{};
    g.weight = device_ + 1;
    g.weight_type = g.act_type = g.y_type = DType::f32;
    g.x = device_;
    g.y = device_ + 8;
    g.out = 2;
    g.in = 8;
    g.n_tokens = 1;
    try {
        kernels::gemv(g, kernels::Dependent::no, stream_);
        ADD_FAILURE() << "no fault of the weight's alignment";
    } catch (const Fault& found) {
        EXPECT_THAT(found.what(), HasSubstr("gemv: weight does not begin at a multiple of 16"));
    }
}

/// What a dry card takes is never computed, and checked all the same.
TEST(DryCard, ChecksAndComputesNothing) {
    FakeCard card;
    card.memory = std::size_t(200) << 30;
    card.dry = true;
    FakeCuda::get().reset(card);
    cudaStream_t stream = nullptr;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    float *device = nullptr, *host = nullptr;
    constexpr std::size_t kBytes = std::size_t(150) << 30;
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&device), kBytes), cudaSuccess);
    ASSERT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&host), 64, cudaHostAllocDefault), cudaSuccess);
    host[3] = 5;
    kernels::RmsNorm p{};
    p.out = p.x = device;
    p.weight = device;
    p.out_type = DType::f32;
    p.out_stride = p.x_stride = p.hidden = 1 << 20;
    p.n_tokens = 1000;
    kernels::rmsnorm(p, kernels::Dependent::no, stream);
    EXPECT_EQ(cudaMemcpyAsync(host, device, 64, cudaMemcpyDeviceToHost, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(host[3], 0);
    p.n_tokens = 100000;
    EXPECT_THROW(kernels::rmsnorm(p, kernels::Dependent::no, stream), Fault);
    EXPECT_THROW(kernels::launch("double", double_kernel, {1, 1, 70000, 32, 0}, kernels::Dependent::no,
                                 stream, device, 1),
                 Fault);
    cudaStreamDestroy(stream);
    cudaFree(device);
    cudaFreeHost(host);
    FakeCuda::get().reset();
}

TEST_P(LateCudaTest, AKernelsFaultIsThrownWhereSomebodyWaits) {
    kernels::launch(
        "misaligned", +[](char* p) { kernels::load16(p + 4); }, {1, 1, 1, 32, 0}, kernels::Dependent::no,
        stream_, reinterpret_cast<char*>(device_));
    EXPECT_THROW(cudaStreamSynchronize(stream_), Fault);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

// --- shapes that cuBLASLt has no algorithm for

TEST(EmulatedGemm, AnEpilogueWithoutItsBiasAndAStreamOfAnotherCardAreFaults) {
    FakeCard card;
    card.n_devices = 2;
    FakeCuda::get().reset(card);
    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t what = nullptr;
    cublasLtMatrixLayout_t square = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&what, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&square, CUDA_R_32F, 8, 8, 8);
    cublasLtMatmulPreferenceCreate(&preference);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtMatmulDescSetAttribute(what, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    cublasLtMatmulHeuristicResult_t best{};
    int n = 0;
    const auto pick = [&] {
        return cublasLtMatmulAlgoGetHeuristic(handle, what, square, square, square, square, preference, 1,
                                              &best, &n);
    };
    EXPECT_EQ(pick(), CUBLAS_STATUS_SUCCESS);
    cudaStream_t stream = nullptr;
    cudaSetDevice(1);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    const float one = 1, zero = 0;
    float memory[64] = {};
    EXPECT_THROW(cublasLtMatmul(handle, what, &one, memory, square, memory, square, &zero, memory, square,
                                memory, square, &best.algo, nullptr, 0, stream),
                 Fault);
    cudaStreamDestroy(stream);
    const cublasLtEpilogue_t with_bias = CUBLASLT_EPILOGUE_BIAS;
    cublasLtMatmulDescSetAttribute(what, CUBLASLT_MATMUL_DESC_EPILOGUE, &with_bias, sizeof with_bias);
    EXPECT_THROW(pick(), Fault);
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatrixLayoutDestroy(square);
    cublasLtMatmulDescDestroy(what);
    cublasLtDestroy(handle);
    FakeCuda::get().reset();
}

TEST(EmulatedGemm, AShapeThatCublasLtCannotDoIsDoneByTheKernels) {
    for (const Compute compute : {Compute::f32, Compute::bf16}) {
        FakeCuda::get().reset();
        const auto ops = make_cuda_ops(0, compute);
        constexpr int kRows = 19, kOut = 7, kIn = 13;
        std::vector<float> w(kOut * kIn), bias(kOut), x(kRows * kIn), y(kRows * kOut);
        for (std::size_t i = 0; i < w.size(); ++i) w[i] = float(int(i * 5 % 13) - 6) / 4;
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = float(int(i * 7 % 17) - 8) / 8;  // exact in bf16
        for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = float(i);
        for (std::size_t i = 0; i < y.size(); ++i) y[i] = float(i % 9);
        std::vector<bf16> rounded;
        for (const float value : x) rounded.push_back(to_bf16(value));
        const Tensor parts[] = {Tensor(w.data(), DType::f32, {kOut, kIn})};
        const Tensor biases[] = {Tensor(bias.data(), DType::f32, {kOut})};
        const Weight weight = ops->make_weight(parts, biases);
        const DType act = activation_type(compute);
        const auto input = ops->allocate(x.size() * size_of(act), "x");
        const auto output = ops->allocate(y.size() * sizeof(float), "y");
        const Tensor in(input->data(), act, {kRows, kIn}), out(output->data(), DType::f32, {kRows, kOut});
        ops->upload(in, act == DType::f32 ? static_cast<const void*>(x.data()) : rounded.data());
        for (const bool add : {false, true}) {
            std::vector<float> got(y.size());
            ops->upload(out, y.data());
            FakeCuda::get().fail_call("cublasLtMatmulAlgoGetHeuristic", cudaErrorUnknown);
            add ? ops->linear_add(out, in, weight) : ops->linear(out, in, weight);
            ops->download(got.data(), out);
            for (std::size_t i = 0; i < y.size(); ++i) {
                double want = bias[i % kOut] + (add ? y[i] : 0);
                for (std::size_t k = 0; k < kIn; ++k) want += x[i / kOut * kIn + k] * w[i % kOut * kIn + k];
                ASSERT_NEAR(got[i], want, 1e-4) << i;
            }
        }
        EXPECT_EQ(FakeCuda::get().n_calls("cublasLtMatmul"), 0u);
    }
    FakeCuda::get().reset();
}

// --- what the backend says of cards that can't be used

std::string reason_with(const std::function<void(FakeCuda&)>& prepare) {
    FakeCuda& cuda = FakeCuda::get();
    cuda.reset();
    prepare(cuda);
    std::string reason = cuda_unavailable_reason();
    cuda.reset();
    EXPECT_EQ(cuda.n_streams() + cuda.n_device_allocations() + cuda.n_pinned_allocations(), 0u);
    return reason;
}

TEST(EmulatedDiscovery, SaysInOneLineWhatIsMissing) {
    EXPECT_EQ(reason_with([](FakeCuda&) {}), "");
    EXPECT_THAT(reason_with([](FakeCuda& c) { c.card.driver_version = 0; }), HasSubstr("no NVIDIA driver"));
    EXPECT_THAT(reason_with([](FakeCuda& c) { c.card.driver_version = 12020; }),
                HasSubstr("driver is too old: it knows CUDA 12.2"));
    EXPECT_THAT(reason_with([](FakeCuda& c) { c.card.n_devices = 0; }), HasSubstr("no NVIDIA GPU found"));
    EXPECT_THAT(reason_with([](FakeCuda& c) { c.fail_call("launch", cudaErrorNoKernelImageForDevice); }),
                HasSubstr("no kernels for this card: it is sm_90"));
    EXPECT_THAT(reason_with([](FakeCuda& c) { c.fail_call("cudaSetDevice", cudaErrorDevicesUnavailable); }),
                HasSubstr("busy"));
    EXPECT_THAT(reason_with([](FakeCuda& c) { c.card.memory = 512; }), HasSubstr("out of GPU memory"));
    EXPECT_THAT(reason_with([](FakeCuda& c) { c.card.compute_mode = cudaComputeModeProhibited; }),
                HasSubstr("Prohibited"));
}

}  // namespace
}  // namespace llmgen::simt
