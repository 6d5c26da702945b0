// Opening backends, memory, and what a wrong shape says.
#include "ops/backend.h"

#include "backends.h"
#include "base/error.h"
#include "ops/cuda/cuda_ops.h"

namespace llmgen::test {
namespace {

TEST(OpenBackend, CpuByName) {
    const Backend backend = open_backend({.device = "cpu", .compute = "f32", .threads = 2});
    EXPECT_EQ(backend.ops->info().name, "cpu");
    EXPECT_EQ(backend.ops->compute(), Compute::f32);
    EXPECT_EQ(backend.note, "");
    EXPECT_NE(backend.ops->info().description.find("2 threads"), std::string::npos);
    EXPECT_GT(backend.ops->info().memory_total, std::size_t(1) << 20);
    EXPECT_EQ(open_backend({.device = "cpu"}).ops->compute(), Compute::bf16);
}

TEST(OpenBackend, AutoNamesTheReasonForTheCpu) {
    const Backend backend = open_backend({});
    if (cuda_unavailable_reason().empty()) {
        EXPECT_EQ(backend.ops->info().name, "cuda:0");
        return;
    }
    EXPECT_EQ(backend.ops->info().name, "cpu");
    EXPECT_NE(backend.note.find(cuda_unavailable_reason()), std::string::npos);
    EXPECT_THROW(open_backend({.device = "cuda"}), Error);
}

TEST(OpenBackend, WrongNamesAreUsageErrors) {
    for (const char* device : {"gpu", "", "cuda:", "cuda:x", "cuda:-1", "cuda:0x", "cpu:1"})
        EXPECT_THROW(open_backend({.device = device}), UsageError) << device;
    EXPECT_THROW(open_backend({.compute = "f16"}), UsageError);
    EXPECT_THROW(open_backend({.device = "cpu", .threads = -1}), UsageError);
}

TEST(ListDevices, HasTheCpuLast) {
    const auto devices = list_devices();
    ASSERT_FALSE(devices.empty());
    EXPECT_EQ(devices.back().info.name, "cpu");
    EXPECT_EQ(devices.back().problem, "");
}

TEST(CpuMemory, AskingForMoreThanThereIsNamesTheNumbers) {
    const auto ops = make_cpu_ops(Compute::f32, {});
    try {
        ops->allocate(std::size_t(1) << 50, "KV cache");
        FAIL();
    } catch (const Error& error) {
        const std::string text = error.what();
        EXPECT_EQ(text.find("KV cache: needs 1073741824 MiB"), 0u) << text;
        EXPECT_NE(text.find("free"), std::string::npos);
    }
}

TEST(CpuMemory, BuffersAreAligned) {
    const auto ops = make_cpu_ops(Compute::f32, {});
    for (const std::size_t bytes : {std::size_t(0), std::size_t(1), std::size_t(100), std::size_t(5000000)}) {
        const auto buffer = ops->allocate(bytes, "test");
        EXPECT_EQ(buffer->bytes(), bytes);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0u);
    }
}

TEST(CpuMemory, WeightsOutliveTheBackend) {
    Weight w;
    {
        const auto ops = make_cpu_ops(Compute::f32, {});
        w = make_weight(*ops, DType::f32, 3, 2, {1, 2, 3, 4, 5, 6});
    }
    const auto other = make_cpu_ops(Compute::f32, {});
    const Matrix x(*other, DType::f32, 1, 2, {1, 10}), out(*other, DType::f32, 1, 3);
    other->linear(out.view(), x.view(), w);
    EXPECT_EQ(out.values(), (std::vector<float>{21, 43, 65}));
}

TEST(WrongShapesDeathTest, NameTensorAxisAndNumbers) {
    const auto ops = make_cpu_ops(Compute::f32, {});
    const Weight w = make_weight(*ops, DType::f32, 3, 2, {1, 2, 3, 4, 5, 6});
    const Matrix x(*ops, DType::f32, 1, 3), out(*ops, DType::f32, 1, 3), x2(*ops, DType::f32, 1, 2);
    EXPECT_DEATH(ops->linear(out.view(), x.view(), w), "x is \\[1, 3\\] f32: axis 1 is 3, expected 2");
    EXPECT_DEATH(ops->linear(x2.view(), x2.view(), w), "out is \\[1, 2\\] f32: axis 1 is 2, expected 3");
    const Integers ids(*ops, {3});
    EXPECT_DEATH(ops->embed(x2.view(), w, ids.view()), "ids\\[0\\] is 3, limit 3");
}

}  // namespace
}  // namespace llmgen::test
