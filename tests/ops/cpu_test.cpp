// The CPU backend's own parts: instruction sets by name, threads, limits of the machine, packing, exactness
// over instruction sets.
#include <cstdlib>

#include "backends.h"
#include "base/error.h"
#include "ops/cpu/bandwidth.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/pack_rows.h"
#include "ops/cpu/packed_weight.h"

namespace llmgen::test {
namespace {

TEST(CpuIsa, Names) {
    EXPECT_EQ(cpu::parse_isa("avx2"), cpu::Isa::avx2);
    EXPECT_EQ(cpu::parse_isa("avx512_bf16"), cpu::Isa::avx512_bf16);
    EXPECT_THROW(cpu::parse_isa("AVX2"), UsageError);
    EXPECT_THROW(cpu::parse_isa(""), UsageError);
}

TEST(CpuIsa, TheEnvironmentCapsIt) {
    setenv("LLMGEN_CPU_ISA", "scalar", 1);
    const std::string capped = make_cpu_ops(Compute::bf16, {})->info().description;
    setenv("LLMGEN_CPU_ISA", "sse9", 1);
    EXPECT_THROW(make_cpu_ops(Compute::bf16, {}), UsageError);
    unsetenv("LLMGEN_CPU_ISA");
    EXPECT_NE(capped.find("no SIMD"), std::string::npos) << capped;
}

TEST(CpuLimits, AreMeasured) {
    EXPECT_GT(measure_read_bandwidth(1), 1e8);
    EXPECT_GT(measure_matmul_peak(1, Compute::f32), 1e8);
    EXPECT_GT(measure_matmul_peak(1, Compute::bf16), 1e8);
}

TEST(PackedWeight, EveryValueIsWhereItsOffsetSays) {
    const auto ops = make_cpu_ops(Compute::bf16, {.threads = 2});
    for (const int out : {1, 31, 32, 33, 70})
        for (const int in : {1, 2, 31, 33, 64, 100}) {
            Random random(static_cast<std::uint64_t>(out * in));
            const auto values = rounded(DType::bf16, random.values(out * in));
            for (const DType stored : {DType::bf16, DType::f32}) {
                const Weight w = make_weight(*ops, stored, out, in, values);
                const cpu::PanelWeight& panels = cpu::panels_of(w);
                for (int o = 0; o < out; ++o)
                    for (int i = 0; i < in; ++i) ASSERT_EQ(panels.at(o, i), values[std::size_t(o * in + i)]);
            }
        }
}

TEST(PackRows, RowsStandInnermost) {
    for (const cpu::Isa isa : {cpu::Isa::scalar, cpu::Isa::avx2, cpu::Isa::avx512})
        for (const DType from : {DType::f32, DType::bf16})
            for (const DType to : {DType::f32, DType::bf16})
                for (const int rows : {1, 2, 3, 4, 7, 12})
                    for (const int n : {1, 2, 5, 16, 127, 128, 129, 300}) {
                        Random random(static_cast<std::uint64_t>(n));
                        const auto values = random.values(rows * n);
                        // One element in front: rows need no alignment beyond their own type's.
                        std::vector<char> bytes = encode(from, values);
                        bytes.insert(bytes.begin(), size_of(from), char(0));
                        const void* sources[12];
                        for (int r = 0; r < rows; ++r)
                            sources[r] = bytes.data() + size_of(from) * std::size_t(r * n + 1);
                        const int group = to == DType::bf16 ? 2 : 1, depth = (n + group - 1) / group * group;
                        std::vector<std::uint32_t> packed(
                            std::size_t(rows * depth * int(size_of(to)) / 4) + 1, 0xffffffffu);
                        cpu::pack_rows(std::min(isa, cpu::best_isa()))(packed.data(), to, sources, from, rows,
                                                                       n);
                        for (int r = 0; r < rows; ++r)
                            for (int i = 0; i < depth; ++i) {
                                const float want =
                                    i < n ? rounded(to, rounded(from, values[std::size_t(r * n + i)])) : 0;
                                const int at = (i / group * rows + r) * group + i % group;
                                const float got =
                                    to == DType::f32
                                        ? reinterpret_cast<const float*>(packed.data())[at]
                                        : to_f32(reinterpret_cast<const bf16*>(packed.data())[at]);
                                ASSERT_EQ(got, want)
                                    << rows << " rows of " << n << ", row " << r << " value " << i;
                            }
                        ASSERT_EQ(packed.back(), 0xffffffffu) << "wrote past the end";
                    }
}

TEST(CpuExactness, FusedInstructionSetsAgreeInF32) {
    // One chain of fused multiply-adds an output: AVX2 and AVX-512 can't differ.
    if (cpu::best_isa() < cpu::Isa::avx512) GTEST_SKIP() << "needs AVX-512";
    Random random(21);
    const auto values = random.values(70 * 300), x = random.values(9 * 300);
    std::vector<std::vector<float>> results;
    for (const cpu::Isa isa : {cpu::Isa::avx2, cpu::Isa::avx512}) {
        const auto ops = make_cpu_ops(Compute::f32, {.threads = 2, .isa = isa});
        const Matrix in(*ops, DType::f32, 9, 300, x), out(*ops, DType::f32, 9, 70);
        ops->linear(out.view(), in.view(), make_weight(*ops, DType::f32, 70, 300, values));
        results.push_back(out.values());
    }
    EXPECT_TRUE(bit_equal(results[0], results[1]));
}

}  // namespace
}  // namespace llmgen::test
