// The interpreter by itself, on PTX written here: what each opcode computes at its edges, and that it finds
// what it claims to find, each with an example that fails.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "ptx/context.h"
#include "ptx/witness.h"
#include "simt/testing.h"

namespace llmgen::ptx {
namespace {

constexpr const char* kRegisters =
    ".reg .pred %p<10>;\n.reg .b16 %rs<10>;\n.reg .b32 %r<20>;\n.reg .f32 %f<20>;\n.reg .b64 %rd<20>;\n"
    ".reg .f64 %fd<10>;\n";

std::shared_ptr<const File> file_of(const std::string& body, const std::string& head = "") {
    return std::make_shared<const File>(
        "test.ptx", ".version 9.0\n.target sm_90a\n.address_size 64\n" + head +
                        "\n.visible .entry k(\n.param .u64 k_param_0,\n.param .u64 k_param_1\n)\n{\n" +
                        kRegisters + body + "\nret;\n}\n");
}

struct How {
    unsigned threads = 1, blocks = 1;
    std::size_t dynamic_shared = 0;
    bool dependent = false;
};

void run(const std::string& body, void* in, void* out, const How& how = {}, const std::string& head = "") {
    Kernel kernel(file_of(body, head), "k");
    Running running;
    running.kernel = &kernel;
    running.regions.resize(kernel.ops.size());
    running.parameters.resize(16);
    std::memcpy(running.parameters.data(), &in, 8);
    std::memcpy(running.parameters.data() + 8, &out, 8);
    simt::Launch launch;
    launch.name = "k";
    launch.grid = {how.blocks, 1, 1};
    launch.block = {how.threads, 1, 1};
    launch.dynamic_shared = how.dynamic_shared;
    launch.dependent = how.dependent;
    launch.body = [&] { run_thread(running); };
    auto& machine = simt::Machine::get();
    const auto saved = std::exchange(machine.witness, nullptr);
    struct Restore {
        simt::Machine& machine;
        decltype(saved)& witness;
        ~Restore() { machine.witness = witness; }
    } restore{machine, saved};
    machine.launch(std::move(launch));
    machine.synchronize();
}

/// The finding of a run, or nothing.
std::string fault_of(const std::string& body, const How& how = {}, const std::string& head = "") {
    simt::DeviceArray<float> in(std::vector<float>(64, 1.0f)), out(64);
    try {
        run("ld.param.u64 %rd1, [k_param_0];\nld.param.u64 %rd2, [k_param_1];\nmov.u32 %r1, %tid.x;\n" + body,
            in.get(), out.get(), how, head);
    } catch (const simt::Fault& fault) {
        return fault.what();
    }
    return "";
}

/// The 64 bits that an instruction leaves in its destination; a, b, c are the bits of the sources.
std::uint64_t value_of(const std::string& opcode,
                       char kind,
                       std::uint64_t a,
                       std::uint64_t b = 0,
                       std::uint64_t c = 0,
                       char to = 0,
                       int n = 3) {
    auto name = [](char k, int i) {
        return fmt::format("%{}{}",
                           k == 'r'   ? "r"
                           : k == 'f' ? "f"
                           : k == 'd' ? "rd"
                           : k == 'g' ? "fd"
                                      : "rs",
                           i);
    };
    auto type = [](char k) { return k == 'r' || k == 'f' ? "b32" : k == 'h' ? "b16" : "b64"; };
    if (to == 0) to = kind;
    simt::DeviceArray<std::uint64_t> in(std::vector<std::uint64_t>{a, b, c}),
        out(std::vector<std::uint64_t>{0});
    std::string body = "ld.param.u64 %rd10, [k_param_0];\nld.param.u64 %rd11, [k_param_1];\n";
    std::string operands;
    for (int i = 0; i < n; ++i) {
        // An amount of a shift or a selector is 32 bits wide.
        const char k =
            i > 0 && (opcode.starts_with("sh") || (opcode.starts_with("bf") && i > 0)) ? 'r' : kind;
        const bool second_word = opcode.starts_with("bfi") && i == 1;
        const char used = second_word ? kind : k;
        body += fmt::format("ld.global.{} {}, [%rd10+{}];\n", type(used), name(used, i + 1), i * 8);
        operands += ", " + name(used, i + 1);
    }
    body += fmt::format("{} {}{};\nst.global.{} [%rd11], {};\n", opcode, name(to, 9), operands, type(to),
                        name(to, 9));
    run(body, in.get(), out.get());
    return out[0];
}
std::uint64_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }
std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

TEST(PtxArithmetic, IntegersWrapAndShiftsClamp) {
    EXPECT_EQ(value_of("add.s32", 'r', 0xffffffff, 2, 0, 0, 2), 1u);
    EXPECT_EQ(value_of("sub.s32", 'r', 0, 1, 0, 0, 2), 0xffffffffu);
    EXPECT_EQ(value_of("mul.lo.s32", 'r', 0x10001, 0x10001, 0, 0, 2), 0x20001u);
    EXPECT_EQ(value_of("mul.hi.s32", 'r', 0xffffffff, 0xffffffff, 0, 0, 2), 0u);
    EXPECT_EQ(value_of("mul.hi.s32", 'r', 0xffffffff, 3, 0, 0, 2), 0xffffffffu);
    EXPECT_EQ(value_of("mul.wide.s32", 'r', 0xffffffff, 5, 0, 'd', 2), std::uint64_t(-5));
    EXPECT_EQ(value_of("mul.wide.u32", 'r', 0xffffffff, 5, 0, 'd', 2), 0x4fffffffbull);
    EXPECT_EQ(value_of("mad.lo.s32", 'r', 7, 0xffffffff, 10), 3u);
    EXPECT_EQ(value_of("div.s32", 'r', std::uint32_t(-7), 2, 0, 0, 2), std::uint32_t(-3));
    EXPECT_EQ(value_of("div.u32", 'r', 0xfffffff9, 2, 0, 0, 2), 0x7ffffffcu);
    EXPECT_EQ(value_of("rem.s32", 'r', std::uint32_t(-7), 2, 0, 0, 2), std::uint32_t(-1));
    EXPECT_EQ(value_of("shl.b32", 'r', 1, 31, 0, 0, 2), 0x80000000u);
    EXPECT_EQ(value_of("shl.b32", 'r', 1, 32, 0, 0, 2), 0u);
    EXPECT_EQ(value_of("shr.s32", 'r', 0x80000000, 40, 0, 0, 2), 0xffffffffu);
    EXPECT_EQ(value_of("shr.u32", 'r', 0x80000000, 31, 0, 0, 2), 1u);
    EXPECT_EQ(value_of("shr.u64", 'd', 1ull << 63, 63, 0, 0, 2), 1u);
    EXPECT_EQ(value_of("min.s32", 'r', 0xffffffff, 1, 0, 0, 2), 0xffffffffu);
    EXPECT_EQ(value_of("max.u64", 'd', ~0ull, 1, 0, 0, 2), ~0ull);
    EXPECT_EQ(value_of("not.b32", 'r', 5, 0, 0, 0, 1), 0xfffffffau);
    EXPECT_EQ(value_of("neg.s32", 'r', 5, 0, 0, 0, 1), 0xfffffffbu);
    EXPECT_EQ(value_of("prmt.b32", 'r', 0x03020100, 0x07060504, 0x7531), 0x07050301u);
    EXPECT_EQ(value_of("cvt.s64.s32", 'r', 0xfffffffe, 0, 0, 'd', 1), ~1ull);
    EXPECT_EQ(value_of("cvt.u64.u32", 'r', 0xfffffffe, 0, 0, 'd', 1), 0xfffffffeull);
    EXPECT_EQ(value_of("cvt.u16.u32", 'r', 0x12345678, 0, 0, 'h', 1), 0x5678u);
}

TEST(PtxArithmetic, FloatsRoundOnceAndNanIsCanonical) {
    const float a = 1 + 0x1p-12f;
    EXPECT_EQ(value_of("fma.rn.f32", 'f', bits(a), bits(a), bits(-(1 + 0x1p-11f))), bits(0x1p-24f));
    EXPECT_EQ(value_of("mul.f32", 'f', bits(a), bits(a), 0, 0, 2), bits(1 + 0x1p-11f));
    EXPECT_EQ(value_of("fma.rm.f32", 'f', bits(1.0f), bits(1.0f), bits(-0x1p-30f)), bits(1 - 0x1p-24f));
    EXPECT_EQ(value_of("fma.rn.f32", 'f', bits(1.0f), bits(1.0f), bits(-0x1p-30f)), bits(1.0f));
    EXPECT_EQ(value_of("add.f32", 'f', bits(kInf), bits(-kInf), 0, 0, 2), 0x7fffffffu);
    EXPECT_EQ(value_of("max.f32", 'f', bits(kNan), bits(-3.0f), 0, 0, 2), bits(-3.0f));
    EXPECT_EQ(value_of("max.f32", 'f', bits(-0.0f), bits(0.0f), 0, 0, 2), bits(0.0f));
    EXPECT_EQ(value_of("div.rn.f32", 'f', bits(1.0f), bits(3.0f), 0, 0, 2), bits(1.0f / 3.0f));
    EXPECT_EQ(value_of("rcp.rn.f32", 'f', bits(3.0f), 0, 0, 0, 1), bits(1.0f / 3.0f));
    EXPECT_EQ(value_of("sqrt.rn.f32", 'f', bits(2.0f), 0, 0, 0, 1), bits(std::sqrt(2.0f)));
    EXPECT_EQ(value_of("mul.f32", 'f', bits(0x1p-100f), bits(0x1p-40f), 0, 0, 2), bits(0x1p-140f));  // no ftz
    EXPECT_EQ(value_of("ex2.approx.ftz.f32", 'f', bits(-3.0f), 0, 0, 0, 1), bits(0.125f));
    EXPECT_EQ(value_of("ex2.approx.ftz.f32", 'f', bits(-140.0f), 0, 0, 0, 1), bits(0.0f));  // ftz
    EXPECT_EQ(value_of("ex2.approx.ftz.f32", 'f', bits(-kInf), 0, 0, 0, 1), bits(0.0f));
    EXPECT_EQ(value_of("cvt.sat.f32.f32", 'f', bits(1.5f), 0, 0, 0, 1), bits(1.0f));
    EXPECT_EQ(value_of("cvt.sat.f32.f32", 'f', bits(kNan), 0, 0, 0, 1), bits(0.0f));
    EXPECT_EQ(value_of("cvt.rzi.s32.f32", 'f', bits(-1.9f), 0, 0, 'r', 1), 0xffffffffu);
    EXPECT_EQ(value_of("cvt.rzi.s32.f32", 'f', bits(3e9f), 0, 0, 'r', 1), 0x7fffffffu);
    EXPECT_EQ(value_of("cvt.rni.s32.f32", 'f', bits(2.5f), 0, 0, 'r', 1), 2u);
    EXPECT_EQ(value_of("cvt.rzi.s32.f32", 'f', bits(kNan), 0, 0, 'r', 1), 0u);
    EXPECT_EQ(value_of("cvt.rzi.u64.f64", 'g', bits(-1.0), 0, 0, 'd', 1), 0u);
    EXPECT_EQ(value_of("cvt.rn.f32.s32", 'r', 0x01000001, 0, 0, 'f', 1), bits(16777216.0f));
    EXPECT_EQ(value_of("cvt.rn.bf16x2.f32", 'f', bits(2.0f), bits(1.0f), 0, 'r', 2), 0x40003f80u);
    EXPECT_EQ(value_of("cvt.rn.bf16.f32", 'f', bits(1 + 0x1p-8f), 0, 0, 'h', 1), 0x3f80u);  // a tie, to even
    EXPECT_EQ(value_of("cvt.rn.f16.f32", 'f', bits(65520.0f), 0, 0, 'h', 1), 0x7c00u);
    EXPECT_EQ(value_of("cvt.f32.f16", 'h', 0x0001, 0, 0, 'f', 1), bits(0x1p-24f));
}

TEST(PtxDetector, AddressesOutsideOrAskew) {
    EXPECT_EQ(fault_of("ld.global.f32 %f1, [%rd1+252];"), "");
    EXPECT_THAT(fault_of("ld.global.f32 %f1, [%rd1+256];"), testing::HasSubstr("test.ptx:19: ld.global.f32"));
    EXPECT_THAT(fault_of("ld.global.f32 %f1, [%rd1+256];"), testing::HasSubstr("outside of every array"));
    EXPECT_THAT(fault_of("ld.global.f32 %f1, [%rd1+-4];"), testing::HasSubstr("outside of every array"));
    EXPECT_THAT(fault_of("ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+248];"),
                testing::HasSubstr("not a multiple of 16"));
    EXPECT_THAT(fault_of("st.global.f32 [%rd2+256], 0f00000000;"), testing::HasSubstr("writes 4 bytes"));
    EXPECT_THAT(fault_of("st.global.v2.f32 [%rd2+4], {0f00000000, 0f00000000};"),
                testing::HasSubstr("not a multiple of 8"));
    const std::string shared = ".shared .align 16 .b8 s[32];\nmov.u32 %r2, s;\n";
    EXPECT_EQ(fault_of(shared + "st.shared.u32 [%r2+28], %r1;"), "");
    EXPECT_THAT(fault_of(shared + "st.shared.u32 [%r2+32], %r1;"),
                testing::HasSubstr("touches shared memory"));
    EXPECT_THAT(fault_of(".local .align 4 .b8 l[8];\nmov.u64 %rd3, l;\nst.local.u32 [%rd3+8], %r1;"),
                testing::HasSubstr("writes local memory"));
}

TEST(PtxDetector, ValuesThatNobodySet) {
    EXPECT_THAT(fault_of("add.f32 %f2, %f1, 0f3f800000;\nst.global.f32 [%rd2], %f2;"),
                testing::HasSubstr("nobody has set"));
    EXPECT_EQ(fault_of("add.f32 %f2, %f1, 0f3f800000;"), "");  // not used: not a fault
    EXPECT_EQ(fault_of("setp.eq.s32 %p1, %r1, 0;\nmov.f32 %f3, 0f00000000;\nselp.f32 %f2, %f3, %f1, %p1;\n"
                       "st.global.f32 [%rd2], %f2;"),
              "");  // not selected
    EXPECT_THAT(fault_of("setp.eq.s32 %p1, %r2, 0;\n@%p1 bra L;\nL:\n"), testing::HasSubstr("the condition"));
    EXPECT_THAT(fault_of("add.s64 %rd4, %rd2, %rd3;\nld.global.f32 %f1, [%rd4];"),
                testing::HasSubstr("the address"));
    EXPECT_THAT(fault_of("ld.global.f32 %f1, [%rd2];\nst.global.f32 [%rd2+4], %f1;"),
                testing::HasSubstr("nobody has set"));
    const std::string shared = ".shared .align 16 .b8 s[32];\nmov.u32 %r2, s;\n";
    EXPECT_THAT(fault_of(shared + "ld.shared.f32 %f1, [%r2];\nst.global.f32 [%rd2], %f1;"),
                testing::HasSubstr("nobody has set"));
    EXPECT_THAT(fault_of("add.u64 %rd3, %rd9, 0;\nbar.warp.sync %r5;"), testing::HasSubstr("mask"));
}

TEST(PtxDetector, RacesInSharedMemory) {
    const How two_warps{64};
    const std::string each =
        ".shared .align 16 .b8 s[256];\nmov.u32 %r2, s;\nshl.b32 %r3, %r1, 2;\nadd.s32 %r2, %r2, %r3;\n"
        "xor.b32 %r4, %r3, {};\nmov.u32 %r5, s;\nadd.s32 %r5, %r5, %r4;\nst.shared.u32 [%r2], %r1;\n";
    const std::string lane = fmt::format(fmt::runtime(each), 4), warp = fmt::format(fmt::runtime(each), 128);
    const std::string read = "ld.shared.u32 %r6, [%r5];\n";
    EXPECT_THAT(fault_of(lane + read, two_warps), testing::HasSubstr("no barrier between"));
    EXPECT_EQ(fault_of(lane + "bar.warp.sync -1;\n" + read, two_warps), "");
    EXPECT_THAT(fault_of(warp + "bar.warp.sync -1;\n" + read, two_warps),
                testing::HasSubstr("no barrier between"));
    EXPECT_EQ(fault_of(warp + "bar.sync 0;\n" + read, two_warps), "");
    EXPECT_THAT(fault_of(warp + "bar.sync 0;\n" + read + "st.shared.u32 [%r2], %r1;\n", two_warps),
                testing::HasSubstr("no barrier between"));
    EXPECT_EQ(fault_of(warp + "bar.sync 0;\n" + read + "bar.sync 0;\nst.shared.u32 [%r2], %r1;\n", two_warps),
              "");
    // a shuffle orders nothing
    EXPECT_THAT(fault_of(lane + "shfl.sync.bfly.b32 %r7|%p1, %r1, 1, 31, -1;\n" + read, two_warps),
                testing::HasSubstr("no barrier between"));
}

TEST(PtxDetector, CopiesThatNobodyWaitedFor) {
    const std::string copy =
        ".shared .align 16 .b8 s[32];\nmov.u32 %r2, s;\n"
        "cp.async.cg.shared.global [%r2], [%rd1], 16;\ncp.async.commit_group;\n";
    const std::string read = "ld.shared.f32 %f1, [%r2+4];\nst.global.f32 [%rd2], %f1;\n";
    EXPECT_EQ(fault_of(copy + "cp.async.wait_group 0;\n" + read), "");
    EXPECT_THAT(fault_of(copy + "cp.async.wait_group 1;\n" + read), testing::HasSubstr("under way"));
    EXPECT_THAT(fault_of(copy), testing::HasSubstr("nobody waited for"));
}

// Both orders, whoever writes; a word beside it may change, and so may what is read without the promise.
TEST(PtxDetector, MemoryThatWasPromisedNotToChange) {
    const std::string read = "ld.global.nc.v2.f32 {%f1, %f2}, [%rd1+8];\n";
    const std::string write = "mov.f32 %f3, 0f3f800000;\nst.global.f32 [%rd1+12], %f3;\n";
    EXPECT_THAT(fault_of(read + write),
                testing::AllOf(testing::HasSubstr("test.ptx:21: st.global.f32"),
                               testing::HasSubstr("read as never changing, in test.ptx:19: ld.global.nc")));
    EXPECT_THAT(fault_of(write + read),
                testing::AllOf(testing::HasSubstr("test.ptx:21: ld.global.nc"),
                               testing::HasSubstr("has written, in test.ptx:20: st.global.f32")));
    EXPECT_THAT(fault_of("ld.global.nc.u8 %rs1, [%rd1+3];\nred.global.add.u32 [%rd1], %r1;\n"),
                testing::HasSubstr("never changing"));
    const std::string beside = "mov.f32 %f3, 0f3f800000;\nst.global.f32 [%rd1+16], %f3;\n";
    EXPECT_EQ(fault_of(read + beside), "");
    EXPECT_EQ(fault_of("ld.global.nc.f32 %f4, [%rd1];\nld.global.f32 %f1, [%rd1+12];\n" + write), "");
    // another thread, another block
    const std::string others =
        "setp.eq.s32 %p1, %r1, 0;\n@%p1 bra L;\n" + write + "bra M;\nL:\n" + read + "M:\n";
    EXPECT_THAT(fault_of(others, {2}), testing::HasSubstr("never changing"));
    const std::string blocks = "mov.u32 %r1, %ctaid.x;\n" + others;
    EXPECT_THAT(fault_of(blocks, {1, 2}), testing::HasSubstr("never changing"));
}

// Two blocks of two warps: each thread leaves a word, then the block that comes last reads the other's. Each
// step that orders the two is left out in turn.
TEST(PtxDetector, WhatBlocksHandOverIsOrdered) {
    const auto body = [](int without) {
        const auto unless = [&](int step, const char* text) { return without == step ? "" : text; };
        return std::string(
                   ".shared .align 4 .b8 flag[4];\n"
                   "mov.u32 %r2, %ctaid.x;\nmad.lo.s32 %r3, %r2, 64, %r1;\nmul.wide.u32 %rd3, %r3, 2;\n"
                   "add.s64 %rd4, %rd2, %rd3;\nmov.u16 %rs1, 7;\nst.global.u16 [%rd4], %rs1;\n") +
               unless(1, "bar.sync 0;\n") + "setp.ne.s32 %p1, %r1, 0;\n@%p1 bra L;\n" +
               unless(2, "membar.gl;\n") + "atom.global.add.u32 %r6, [%rd1], 1;\n" +
               unless(3, "membar.gl;\n") +
               "st.shared.u32 [flag], %r6;\nL:\nbar.sync 0;\nld.shared.u32 %r7, [flag];\n"
               "setp.eq.s32 %p2, %r7, 1065353216;\n@%p2 bra M;\n"  // the bits of 1: the first to come
               "xor.b32 %r8, %r3, 64;\nmul.wide.u32 %rd5, %r8, 2;\nadd.s64 %rd6, %rd2, %rd5;\n"
               "ld.global.u16 %rs2, [%rd6];\nM:\n";
    };
    EXPECT_EQ(fault_of(body(0), {64, 2}), "");
    for (const int step : {1, 2, 3})
        EXPECT_THAT(fault_of(body(step), {64, 2}),
                    testing::AllOf(testing::HasSubstr("ld.global.u16"), testing::HasSubstr("st.global.u16"),
                                   testing::HasSubstr("nothing that orders the two")))
            << step;
}

TEST(PtxDetector, BarriersAndCollectives) {
    EXPECT_THAT(
        fault_of("setp.eq.s32 %p1, %r1, 0;\n@%p1 bra L;\nbar.sync 0;\nbra M;\nL:\nbar.sync 0;\nM:\n", {32}),
        testing::HasSubstr("divergent block barriers"));
    EXPECT_THAT(fault_of("setp.eq.s32 %p1, %r1, 0;\n@%p1 bra L;\nbar.sync 0;\nL:\n", {32}),
                testing::HasSubstr("barrier"));
    EXPECT_THAT(fault_of("shfl.sync.idx.b32 %r2|%p1, %r1, 20, 31, 65535;\n", {16}),
                testing::HasSubstr("leaves out"));
    EXPECT_THAT(fault_of("L:\nbra L;\n"), testing::HasSubstr("on and on"));
}

TEST(PtxDetector, WhatItDoesNotKnow) {
    for (const char* line : {"fma.rn.relu.bf16 %rs1, %rs2, %rs3, %rs4;", "add.sat.s32 %r1, %r2, %r3;",
                             "ld.global.v8.f32 %f1, [%rd1];"})
        try {
            Kernel kernel(file_of(line), "k");
            ADD_FAILURE() << line;
        } catch (const ParseError& error) {
            EXPECT_THAT(error.what(), testing::HasSubstr("test.ptx:16: unknown opcode"));
        }
    EXPECT_THROW(Kernel(file_of("add.s32 %r1, %r2;"), "k"), ParseError);
    EXPECT_THROW(Kernel(file_of("add.s32 %r1, %r2, %r99;"), "k"), ParseError);
    EXPECT_THROW(Kernel(file_of("bra NOWHERE;"), "k"), ParseError);
    EXPECT_THROW(Kernel(file_of(".tex .u64 t;"), "k"), ParseError);
    EXPECT_THROW(File("test.ptx", ".version 9.0\nnonsense\n"), ParseError);
}

TEST(PtxDetector, ADependentLaunchThatLeavesWithoutWaiting) {
    const How dependent{1, 1, 0, true};
    EXPECT_THAT(fault_of("", dependent), testing::HasSubstr("without waiting"));
    EXPECT_EQ(fault_of("griddepcontrol.wait;", dependent), "");
}

// A and B of one everywhere but one place each: which element of D that place reaches.
TEST(PtxArithmetic, MmaTakesTheElementsThatTheIsaNames) {
    // Lane 5 (group 1, thread 1) holds in register 1 of A the row 9, columns 2 and 3; B's row 3 of column 2
    // is the upper half of register 0 of lane 9.
    const std::string body =
        "ld.param.u64 %rd1, [k_param_0];\nld.param.u64 %rd2, [k_param_1];\nmov.u32 %r1, %tid.x;\n"
        "setp.eq.s32 %p1, %r1, 5;\nselp.b32 %r2, 1073741824, 0, %p1;\n"  // 2.0 in the upper half
        "setp.eq.s32 %p2, %r1, 9;\nselp.b32 %r3, 1077936128, 0, %p2;\n"  // 3.0 in the upper half
        "mov.f32 %f1, 0f00000000;\n"
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f2, %f3, %f4, %f5}, {0, %r2, 0, 0}, {%r3, 0}, "
        "{%f1, %f1, %f1, %f1};\n"
        "mul.wide.u32 %rd3, %r1, 16;\nadd.s64 %rd4, %rd2, %rd3;\nst.global.v4.f32 [%rd4], {%f2, %f3, %f4, "
        "%f5};\n";
    simt::DeviceArray<float> in(1), out(128);
    run(body, in.get(), out.get(), {32});
    // D's row 9, column 2: rows of group + 8 are elements 2 and 3; column 2 = 2 · 1 + 0, so lane 1 * 4 + 1,
    // element 2.
    for (std::size_t i = 0; i < 128; ++i) EXPECT_EQ(out[i], i == 5 * 4 + 2 ? 6.0f : 0.0f) << i;
}

}  // namespace
}  // namespace llmgen::ptx
