// The real runtime's own files on the fake device: copies, GEMMs, recorded steps, weights by the ring.
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "kernels.h"
#include "ops/cuda/device_api.h"
#include "ops/cuda/device_gemm.h"
#include "ops/cuda/device_runtime.h"
#include "ops/cuda/lt_api.h"
#include "simt/fake/fake_cuda.h"

namespace llmgen::cuda {
namespace {

using simt::FakeCard;
using simt::FakeCuda;
using simt::Moment;
using ::testing::HasSubstr;

/// Every test with a device that works as late as it may, at once, and at random moments.
class RuntimeOfTheDevice : public ::testing::TestWithParam<Moment> {
protected:
    void SetUp() override {
        FakeCard card;
        card.moment = GetParam();
        FakeCuda::get().reset(card);
        runtime = make_device_runtime(0);
    }
    void TearDown() override {
        buffers.clear();
        runtime.reset();
        EXPECT_EQ(FakeCuda::get().n_device_allocations(), 0u);
        EXPECT_EQ(FakeCuda::get().n_pinned_allocations(), 0u);
        FakeCuda::get().reset();
    }
    char* buffer(std::size_t bytes) {
        void* memory = runtime->allocate(bytes);
        EXPECT_NE(memory, nullptr);
        buffers.emplace_back(memory, [this](void* p) { runtime->release(p); });
        return static_cast<char*>(memory);
    }
    template <typename T>
    T* device(const std::vector<T>& values) {
        const std::size_t bytes = values.size() * sizeof(T);
        char* memory = buffer(bytes);
        runtime->copy_in({memory, bytes}, {const_cast<T*>(values.data()), bytes}, bytes, 1);
        return reinterpret_cast<T*>(memory);
    }
    template <typename T>
    std::vector<T> host(const T* values, std::size_t n) {
        std::vector<T> result(n);
        runtime->copy_out({result.data(), n * sizeof(T)}, {const_cast<T*>(values), n * sizeof(T)},
                          n * sizeof(T), 1);
        return result;
    }

    std::unique_ptr<Runtime> runtime;
    std::vector<std::shared_ptr<void>> buffers;
};

TEST_P(RuntimeOfTheDevice, CopiesOfEverySizeComeBackAndTheirSourceMayGoAtOnce) {
    for (const std::size_t bytes : {1u, 63u, 4096u, (1u << 20) - 1, 1u << 20, (1u << 20) + 1, 5u << 20}) {
        std::vector<char> source(bytes);
        for (std::size_t i = 0; i < bytes; ++i) source[i] = char(i * 7 + bytes);
        const std::vector<char> wanted = source;
        char* memory = device(source);
        std::ranges::fill(source, char(0xee));
        EXPECT_EQ(host(memory, bytes), wanted) << bytes;
    }
}

TEST_P(RuntimeOfTheDevice, RowsKeepTheirPitch) {
    constexpr std::size_t kWidth = 5000, kRows = 700, kPitch = 8192;  // more than one part of staging
    std::vector<char> source(kWidth * kRows);
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = char(i * 31);
    char* memory = buffer(kPitch * kRows);
    runtime->copy_in({memory, kPitch}, {source.data(), kWidth}, kWidth, kRows);
    std::vector<char> back(source.size());
    runtime->copy_out({back.data(), kWidth}, {memory, kPitch}, kWidth, kRows);
    EXPECT_EQ(back, source);
}

TEST_P(RuntimeOfTheDevice, ManySmallCopiesKeepTheirOrder) {
    constexpr std::size_t kValues = 1000;
    const std::size_t bytes = kValues * sizeof(int);
    int* memory = reinterpret_cast<int*>(buffer(bytes));
    for (int i = 0; i < 700; ++i) {  // more than both halves of staging hold
        std::vector<int> values(kValues, i);
        runtime->copy_in({memory, bytes}, {values.data(), bytes}, bytes, 1);
    }
    EXPECT_EQ(host(memory, kValues), std::vector<int>(kValues, 699));
}

TEST_P(RuntimeOfTheDevice, WritesArriveBeforeWhatComesAfter) {
    constexpr std::size_t kBytes = (40 << 20) + 12345 * 3;
    char* memory = buffer(kBytes);
    runtime->write(memory, kBytes, 3, [](char* to, std::size_t first, std::size_t bytes) {
        for (std::size_t i = 0; i < bytes; ++i) to[i] = char((first + i) * 13 >> 4);
    });
    EXPECT_LE(FakeCuda::get().n_pinned_allocations(), 17u) << "16 slots and staging, however much is written";
    runtime->finish_writes();
    EXPECT_EQ(FakeCuda::get().n_pinned_allocations(), 1u);
    const std::vector<char> back = host(memory, kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(back[i], char(i * 13 >> 4)) << i;
}

TEST_P(RuntimeOfTheDevice, ReadAllReadsEveryWord) {
    for (const std::size_t words : {4u, 8192u, 70004u})
        for (const std::size_t at : {std::size_t(0), words / 2 + 1, words - 1}) {
            std::vector<int> values(words, 0);
            values[at] = 5;
            int* out = device(std::vector<int>{0});
            kernels::read_all(out, device(values), words * sizeof(int), 2, runtime->stream());
            runtime->check("read_all");
            EXPECT_EQ(host(out, 1)[0], 5) << "word " << at << " of " << words;
            buffers.clear();
        }
}

TEST_P(RuntimeOfTheDevice, MoreThanThereIsIsNull) {
    EXPECT_EQ(runtime->allocate(std::size_t(1) << 40), nullptr);
    runtime->check("afterwards");
}

TEST_P(RuntimeOfTheDevice, GemmsOfEveryKind) {
    constexpr int kTokens = 13, kOut = 24, kIn = 40;
    std::vector<float> x(kTokens * kIn), w(kOut * kIn), bias(kOut), y(kTokens * kOut);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = float(int(i * 7 % 17) - 8) / 8;
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = float(int(i * 5 % 13) - 6) / 4;
    for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = float(i) / 2;
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = float(i % 9);
    const auto stored = [&](const std::vector<float>& values, DType type) -> void* {  // all of them exact
        std::vector<bf16> b;
        std::vector<f16> h;
        for (const float v : values) b.push_back(to_bf16(v)), h.push_back(to_f16(v));
        if (type == DType::f32) return device(values);
        if (type == DType::bf16) return device(b);
        return device(h);
    };

    for (const DType act : {DType::f32, DType::bf16, DType::f16})
        for (const bool with_bias : {false, true})
            for (const bool accumulate : {false, true}) {
                Gemm p{};
                float* out = device(y);
                p.y = out;
                p.y_type = DType::f32;
                p.y_stride = kOut;
                p.x = stored(x, act);
                p.act_type = act;
                p.x_stride = kIn;
                p.weight = stored(w, act);
                p.bias = with_bias ? device(bias) : nullptr;
                p.n_tokens = kTokens;
                p.out = kOut;
                p.in = kIn;
                p.accumulate = accumulate;
                EXPECT_TRUE(runtime->gemm(p));
                const std::vector<float> got = host(out, y.size());
                for (int t = 0; t < kTokens; ++t)
                    for (int o = 0; o < kOut; ++o) {
                        float sum = with_bias ? bias[std::size_t(o)] : 0;
                        if (accumulate) sum += y[std::size_t(t * kOut + o)];
                        for (int k = 0; k < kIn; ++k)
                            sum += x[std::size_t(t * kIn + k)] * w[std::size_t(o * kIn + k)];
                        ASSERT_NEAR(got[std::size_t(t * kOut + o)], sum, 1e-3) << t << ", " << o;
                    }
            }
}

TEST_P(RuntimeOfTheDevice, AnAlgorithmIsPickedOncePerShape) {
    const DeviceStream stream(0);
    cuda::DeviceGemm gemm(lt_api(), nullptr, 0);
    constexpr int kIn = 32, kOut = 16;
    float* x = device(std::vector<float>(64 * kIn));
    float* y = device(std::vector<float>(64 * kOut));
    const float* w = device(std::vector<float>(kOut * kIn));
    Gemm p{};
    p.y = y;
    p.y_type = p.act_type = DType::f32;
    p.y_stride = kOut;
    p.x = x;
    p.x_stride = kIn;
    p.weight = w;
    p.out = kOut;
    p.in = kIn;
    p.n_tokens = 9;
    runtime->synchronize();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(gemm.run(p, stream.get()));
    EXPECT_EQ(gemm.n_plans(), 1u);
    p.n_tokens = 10;
    EXPECT_TRUE(gemm.run(p, stream.get()));
    EXPECT_EQ(gemm.n_plans(), 2u);
    p.x = x + 4;  // less aligned: another algorithm may be needed
    EXPECT_TRUE(gemm.run(p, stream.get()));
    EXPECT_EQ(gemm.n_plans(), 3u);
    p.accumulate = true;
    EXPECT_TRUE(gemm.run(p, stream.get()));
    EXPECT_TRUE(gemm.run(p, stream.get()));
    EXPECT_EQ(gemm.n_plans(), 4u);
    p.n_tokens = 0;
    EXPECT_TRUE(gemm.run(p, stream.get()));
    EXPECT_EQ(gemm.n_plans(), 4u);
}

TEST(DeviceGemm, ShapesAreNamedInErrors) {
    Gemm p{};
    p.y_type = DType::f32;
    p.act_type = DType::bf16;
    p.n_tokens = 512;
    p.out = 4096;
    p.in = 14336;
    p.accumulate = true;
    EXPECT_EQ(describe(shape_of(p)), "y [512, 4096] f32 += x [512, 14336] bf16 · Wᵀ [4096, 14336]");
}

TEST_P(RuntimeOfTheDevice, AStepRunsOnceIsRecordedOnceAndIsReplayedFromThenOn) {
    // out = swiglu of rows: something whose inputs change from step to step.
    float* in = reinterpret_cast<float*>(buffer(2 * sizeof(float)));
    float* out = reinterpret_cast<float*>(buffer(sizeof(float)));
    int n_enqueued = 0;
    const auto step = [&](std::uint64_t key, float gate, float up) {
        const float values[2] = {gate, up};
        runtime->copy_in({in, sizeof(values)}, {const_cast<float*>(values), sizeof(values)}, sizeof(values),
                         1);
        const Tensor result = runtime->step(key, [&] {
            ++n_enqueued;
            kernels::swiglu(out, DType::f32, 1, in, 1, 1, runtime->stream());
            runtime->check("swiglu");
            return Tensor(out, DType::f32, {1});
        });
        EXPECT_EQ(result.data, out);
        return host(out, 1)[0];
    };
    const auto wanted = [](float gate, float up) { return gate / (1 + std::exp(-gate)) * up; };
    for (int i = 1; i <= 5; ++i) EXPECT_NEAR(step(1, float(i), 2), wanted(float(i), 2), 1e-5) << i;
    EXPECT_EQ(n_enqueued, 2);
    EXPECT_EQ(FakeCuda::get().n_calls("cudaGraphInstantiate"), 1u);
    EXPECT_EQ(FakeCuda::get().n_calls("cudaGraphLaunch"), 4u);
    step(2, 1, 1);  // another key is another step
    EXPECT_EQ(n_enqueued, 3);
    runtime->forget_steps();
    for (int i = 1; i <= 3; ++i) EXPECT_NEAR(step(1, float(i), 3), wanted(float(i), 3), 1e-5) << i;
    EXPECT_EQ(n_enqueued, 5);
}

/// Two switches with which a fault on a card is narrowed down.
TEST_P(RuntimeOfTheDevice, NothingIsRecordedAndNothingOverlapsWhereTheEnvironmentForbidsIt) {
    const auto dependents = [&] {
        int n = 0;
        FakeCuda::get().on_launch = [&](const simt::Launch& launch) { n += launch.dependent; };
        float* x = device(std::vector<float>{1, 2});
        for (int i = 0; i < 3; ++i)
            runtime->step(1, [&] {
                kernels::RmsNorm p{};
                p.out = p.x = x;
                p.weight = x;
                p.out_type = DType::f32;
                p.out_stride = p.x_stride = p.hidden = 2;
                p.n_tokens = 1;
                kernels::rmsnorm(p, kernels::Dependent::yes, runtime->stream());
                runtime->check("rmsnorm");
                return Tensor();
            });
        runtime->synchronize();
        FakeCuda::get().on_launch = nullptr;
        return n;
    };
    EXPECT_EQ(dependents(), 2) << "run once, recorded once";
    for (const char* name : {"LLMGEN_RECORD", "LLMGEN_OVERLAP"}) {
        SCOPED_TRACE(name);
        setenv(name, "0", 1);
        buffers.clear();
        runtime = make_device_runtime(0);
        unsetenv(name);
        const bool records = name == std::string("LLMGEN_OVERLAP");
        const std::size_t made = FakeCuda::get().n_calls("cudaGraphInstantiate");
        EXPECT_EQ(dependents(), records ? 0 : 3);
        EXPECT_EQ(FakeCuda::get().n_calls("cudaGraphInstantiate"), made + records);
    }
}

TEST_P(RuntimeOfTheDevice, AStepThatFailsWhileItIsRecordedLeavesNoCaptureBehind) {
    const auto good = [] { return Tensor(); };
    runtime->step(1, good);
    EXPECT_THROW(runtime->step(1, []() -> Tensor { fail("in the middle"); }), Error);
    runtime->synchronize();  // forbidden in a capture
    runtime->step(1, good);
    runtime->step(1, good);
    runtime->synchronize();
}

/// The current device is each thread's own: an engine computes on another thread than it was loaded on.
TEST(RuntimeOfTheSecondDevice, AnotherThreadComputesOnItToo) {
    FakeCard card;
    card.n_devices = 2;
    FakeCuda::get().reset(card);
    std::unique_ptr<Runtime> runtime = make_device_runtime(1);
    std::jthread([&] {
        const auto memory = [&](std::vector<float> values) {
            const std::size_t bytes = values.size() * sizeof(float);
            void* device = runtime->allocate(bytes);
            EXPECT_EQ(FakeCuda::get().device_of(device), 1);
            runtime->copy_in({device, bytes}, {values.data(), bytes}, bytes, 1);
            return static_cast<float*>(device);
        };
        float *gate_up = memory({1, 2}), *out = memory({0}), *x = memory(std::vector<float>(9, 3)),
              *weight = memory({2}), *y = memory(std::vector<float>(9, 0)), *written = memory({0, 0, 0});
        runtime->write(written, 12, 4, [](char* to, std::size_t, std::size_t n) { std::memset(to, 0, n); });
        runtime->finish_writes();
        Gemm p{};
        p.y = y;
        p.x = x;
        p.weight = weight;
        p.y_type = p.act_type = DType::f32;
        p.x_stride = p.y_stride = p.in = p.out = 1;
        p.n_tokens = 9;
        EXPECT_TRUE(runtime->gemm(p));
        for (int i = 0; i < 3; ++i)
            runtime->step(1, [&] {
                kernels::swiglu(out, DType::f32, 1, gate_up, 1, 1, runtime->stream());
                runtime->check("swiglu");
                return Tensor();
            });
        float got[2] = {};
        runtime->finish_read(&got[0], 4, runtime->begin_read(out, 4));
        runtime->copy_out({&got[1], 4}, {y + 8, 4}, 4, 1);
        EXPECT_NEAR(got[0], 2 / (1 + std::exp(-1.0f)), 1e-5);
        EXPECT_EQ(got[1], 6.0f);
        const DeviceInfo info = runtime->info();
        EXPECT_EQ(info.memory_total - info.memory_free, FakeCuda::get().device_bytes(1));
        for (float* device : {gate_up, out, x, weight, y, written}) runtime->release(device);
    }).join();
    runtime.reset();
    EXPECT_EQ(FakeCuda::get().n_device_allocations() + FakeCuda::get().n_pinned_allocations(), 0u);
    FakeCuda::get().reset();
}

TEST_P(RuntimeOfTheDevice, AShapeThatTheLibraryCannotDoIsRemembered) {
    Gemm p{};
    p.y = device(std::vector<float>(9));
    p.x = device(std::vector<float>(9));
    p.weight = device(std::vector<float>(1));
    p.y_type = p.act_type = DType::f32;
    p.x_stride = p.y_stride = p.in = p.out = 1;
    p.n_tokens = 9;
    FakeCuda::get().fail_call("cublasLtMatmulAlgoGetHeuristic", cudaErrorUnknown);
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(runtime->gemm(p));
    p.n_tokens = 8;
    EXPECT_TRUE(runtime->gemm(p));
    runtime->check("afterwards");
}

TEST_P(RuntimeOfTheDevice, ErrorsOfLaunchesNameTheStep) {
    float* in = device(std::vector<float>{1, 2});
    FakeCuda::get().fail_call("launch", cudaErrorIllegalAddress);
    kernels::swiglu(in, DType::f32, 1, in, 1, 1, runtime->stream());
    try {
        runtime->check("swiglu");
        FAIL();
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("cuda:0: swiglu: a kernel failed (cudaErrorIllegalAddress)"));
    }
    runtime->check("the next");
}

TEST_P(RuntimeOfTheDevice, AKernelIsAskedAboutOnce) {
    const auto asked = [] { return FakeCuda::get().n_calls("asked about a kernel"); };
    float* gate_up = device(std::vector<float>{1, 2});
    float* out = device(std::vector<float>{0});
    auto* best = device(std::vector<kernels::Best>{0});
    const std::size_t before = asked();  // the probe has no runtime yet
    const auto launch_three = [&] {
        kernels::swiglu(out, DType::f32, 1, gate_up, 1, 1, runtime->stream());
        kernels::argmax(best, gate_up, 2, 1, 2, runtime->stream());
        kernels::swiglu(out, DType::f32, 1, gate_up, 1, 1, runtime->stream());
    };
    launch_three();
    EXPECT_EQ(asked(), before + 2);
    std::jthread(launch_three).join();
    EXPECT_EQ(asked(), before + 2);
    kernels::swiglu(out, DType::f32, 1, gate_up, 1, 1, runtime->stream().handle);
    EXPECT_EQ(asked(), before + 3) << "a stream without a runtime has nobody who remembers";
    runtime->synchronize();
}

/// What was granted stays granted, more is asked for, and a refusal is asked about again.
TEST(KnownKernels, AsksForMoreAndAfterARefusal) {
    kernels::KnownKernels known;
    const int kernel = 0, other = 0;
    int n_asked = 0;
    bool willing = false;
    const auto ask = [&](kernels::KnownKernels::Answers& answers) {
        ++n_asked;
        answers.overlaps = true;
        return willing;
    };
    known.of(&kernel, 100, ask);
    known.of(&kernel, 100, ask);
    EXPECT_EQ(n_asked, 2);
    willing = true;
    EXPECT_TRUE(known.of(&kernel, 100, ask).overlaps);
    EXPECT_EQ(known.of(&kernel, 60, ask).shared, 100u);
    EXPECT_EQ(n_asked, 3);
    EXPECT_EQ(known.of(&kernel, 101, ask).shared, 101u);
    EXPECT_EQ(known.of(&kernel, 100, ask).shared, 101u);
    EXPECT_EQ(n_asked, 4);
    known.of(&other, 1, ask);
    EXPECT_EQ(n_asked, 5);

    kernels::KnownKernels shared;
    std::atomic<int> n_by_threads = 0;
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 4; ++i)
            threads.emplace_back([&] {
                for (int j = 0; j < 100; ++j)
                    shared.of(&kernel, 7, [&](auto&) { return ++n_by_threads, true; });
            });
    }
    EXPECT_EQ(n_by_threads, 1);
}

std::string name_of_moment(const ::testing::TestParamInfo<Moment>& info) {
    return info.param == Moment::latest ? "latest" : info.param == Moment::at_once ? "at_once" : "random";
}
INSTANTIATE_TEST_SUITE_P(Moments,
                         RuntimeOfTheDevice,
                         ::testing::Values(Moment::latest, Moment::at_once, Moment::random),
                         name_of_moment);

}  // namespace
}  // namespace llmgen::cuda
