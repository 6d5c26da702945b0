// A detector without a failing example is not trusted: each planted bug must be found, and the kernel without
// it must pass in every order.
#include <algorithm>

#include "simt/fragments.h"
#include "simt/selftest_kernels.h"
#include "simt/testing.h"

namespace llmgen::selftest {
namespace {

using namespace simt;

template <Bug kBug>
bool sum_squares_right(int n = 1000) {
    const int rows = 3;
    const auto x = Values(1).vector<float>(std::size_t(rows * n));
    DeviceArray<float> out(rows), in(x);
    launch("sum_squares", sum_squares<kBug>, Shape{3, 1, 1, 128, 0}, Dependent::no, nullptr, out.get(),
           in.get(), n);
    for (int row = 0; row < rows; ++row) {
        double want = 0;
        for (int i = 0; i < n; ++i) want += double(x[std::size_t(row * n + i)]) * x[std::size_t(row * n + i)];
        if (!(std::abs(out[std::size_t(row)] - want) < want * 1e-5)) return false;
    }
    return true;
}

/// How many of the orders show a wrong result.
template <typename Run>
int orders_that_show(Run right) {
    int shown = 0;
    for (const Config& config : all_orders()) {
        Setting setting(config);
        shown += right() ? 0 : 1;
    }
    return shown;
}

/// The text of the fault that must come, in every order.
template <typename Run>
void expect_fault(Run run, const char* text) {
    in_every_order([&] {
        try {
            run();
            ADD_FAILURE() << "no fault";
        } catch (const Fault& fault) {
            EXPECT_NE(std::string(fault.what()).find(text), std::string::npos) << fault.what();
        }
    });
}

TEST(SelfTest, RightKernelsPassInEveryOrder) {
    in_every_order([] {
        EXPECT_TRUE(sum_squares_right<Bug::none>());
        EXPECT_TRUE(sum_squares_right<Bug::none>(5));
    });
}

TEST(SelfTest, FindsAMissingBarrier) {
    EXPECT_GE(orders_that_show([] { return sum_squares_right<Bug::no_barrier>(); }), 3);
}
TEST(SelfTest, FindsAReadOfUnwrittenSharedMemory) {
    EXPECT_EQ(orders_that_show([] { return sum_squares_right<Bug::unwritten_shared>(); }),
              int(all_orders().size()));
}
TEST(SelfTest, FindsAWritePastASharedArray) {
    if (kHasAsan)
        EXPECT_DEATH(sum_squares_right<Bug::past_shared>(), "use-after-poison");
    else
        expect_fault([] { sum_squares_right<Bug::past_shared>(); }, "red zone");
}
TEST(SelfTest, FindsAReadPastAGlobalArray) {
    if (!kHasAsan) GTEST_SKIP() << "needs AddressSanitizer";
    EXPECT_DEATH(sum_squares_right<Bug::past_global>(), "heap-buffer-overflow");
}
TEST(SelfTest, FindsALaneThatLeavesBeforeACollective) {
    expect_fault([] { sum_squares_right<Bug::lane_leaves>(); }, "");
}
TEST(SelfTest, FindsABarrierThatSomeNeverReach) {
    expect_fault([] { sum_squares_right<Bug::divergent_barrier>(); }, "barrier");
}
TEST(SelfTest, FindsABarrierAfterSomeLeft) {
    expect_fault([] { sum_squares_right<Bug::late_barrier>(); }, "");
}
TEST(SelfTest, FindsTwoBarriersTakenForOne) {
    expect_fault([] { sum_squares_right<Bug::two_barriers>(); }, "divergent block barriers");
}

template <typename T, Bug kBug>
bool gemm_right() {
    const std::size_t m = 128, n = 64, k = 128;
    const auto a = Values(2).vector<T>(m * k), b = Values(3).vector<T>(n * k);
    DeviceArray<float> c(m * n);
    DeviceArray<T> da(a), db(b);
    launch("gemm64", gemm64<T, kBug>, Shape{1, 2, 1, 128, 0}, Dependent::no, nullptr, c.get(), da.get(),
           db.get(), int(n), int(k));
    for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; j < n; ++j) {
            double want = 0;
            for (std::size_t x = 0; x < k; ++x) want += as_double(a[i * k + x]) * as_double(b[j * k + x]);
            if (!(std::abs(c[i * n + j] - want) < 1e-4)) return false;
        }
    return true;
}

TEST(SelfTest, TensorCoreGemmPassesInEveryOrder) {
    in_every_order([] { EXPECT_TRUE((gemm_right<bf16, Bug::none>())); });
    EXPECT_TRUE((gemm_right<f16, Bug::none>()));
    EXPECT_EQ(Machine::get().counters.ldmatrix_conflicts, 0u);
}
TEST(SelfTest, FindsAnAsynchronousCopyThatIsNotWaitedFor) {
    EXPECT_EQ(orders_that_show(gemm_right<bf16, Bug::no_async_wait>), int(all_orders().size()));
}
TEST(SelfTest, FindsARingSlotOverwrittenTooEarly) {
    EXPECT_GE(orders_that_show(gemm_right<bf16, Bug::no_reuse_barrier>), 3);
}
TEST(SelfTest, FindsACopyLeftBehind) {
    expect_fault([] { gemm_right<bf16, Bug::async_left>(); }, "nobody waited for");
}

// --- programmatic dependent launch

template <Bug kBug>
bool chain_right() {
    const int n = 512;
    std::vector<float> start(std::size_t(n), 0.0f);
    for (int i = 0; i < n; ++i) start[std::size_t(i)] = float(i);
    DeviceArray<float> a(start), b(n), c(n);
    const Shape shape{4, 1, 1, 128, 0};
    launch("first", reverse_plus_one<Bug::none>, shape, Dependent::no, nullptr, b.get(), a.get(), n);
    launch("second", reverse_plus_one<kBug>, shape, Dependent::yes, nullptr, c.get(), b.get(), n);
    launch("third", reverse_plus_one<Bug::none>, shape, Dependent::yes, nullptr, a.get(), c.get(), n);
    Machine::get().synchronize();
    for (int i = 0; i < n; ++i)
        if (a[std::size_t(i)] != float(n - 1 - i + 3)) return false;
    return true;
}

template <typename Run>
bool overlapped(Run run) {
    Machine::get().config.overlap = true;
    return run();
}

TEST(SelfTest, DependentLaunchesThatWaitPass) {
    in_every_order([] {
        EXPECT_TRUE(overlapped(chain_right<Bug::none>));
        Machine::get().config.overlap = false;
        EXPECT_TRUE(chain_right<Bug::none>());
    });
}
TEST(SelfTest, FindsADependentLaunchThatReadsTooEarly) {
    EXPECT_EQ(orders_that_show([] { return overlapped(chain_right<Bug::early_read>); }),
              int(all_orders().size()));
}
TEST(SelfTest, FindsADependentLaunchThatNeverWaits) {
    expect_fault([] { overlapped(chain_right<Bug::no_dependency_wait>); }, "without waiting");
    expect_fault([] { chain_right<Bug::no_dependency_wait>(); }, "without waiting");
}
TEST(SelfTest, FindsADependentLaunchThatWritesTooEarly) {
    // the second launch's early write goes to what the first one reads
    auto right = [] {
        Machine::get().config.overlap = true;
        std::vector<float> start(128, 1.0f);
        DeviceArray<float> a(start), b(128);
        const Shape shape{1, 1, 1, 128, 0};
        launch("first", reverse_plus_one<Bug::none>, shape, Dependent::no, nullptr, b.get(), a.get(), 128);
        launch("second", reverse_plus_one<Bug::early_write>, shape, Dependent::yes, nullptr, a.get(), b.get(),
               128);
        Machine::get().synchronize();
        return a[0] == 3.0f && a[127] == 3.0f;
    };
    EXPECT_EQ(orders_that_show(right), int(all_orders().size()));
}

// --- between blocks

template <Bug kBug>
bool grid_sum_right() {
    const auto x = Values(4).vector<float>(5 * 64);
    DeviceArray<float> in(x), parts(5), total(1);
    DeviceArray<unsigned> arrived(std::vector<unsigned>{0});
    launch("grid_sum", grid_sum<kBug>, Shape{5, 1, 1, 64, 0}, Dependent::no, nullptr, total.get(),
           parts.get(), arrived.get(), in.get());
    double want = 0;
    for (const float value : x) want += value;
    return std::abs(total[0] - want) < 1e-4;
}
TEST(SelfTest, TheLastBlockAddsUpInEveryOrder) {
    in_every_order([] { EXPECT_TRUE(grid_sum_right<Bug::none>()); });
}
TEST(SelfTest, FindsABlockThatTrustsTheOrderOfBlocks) {
    EXPECT_GE(orders_that_show(grid_sum_right<Bug::no_last_block>), 2);
}

// --- collectives, alignment, limits

__global__ void stale_shared(float* out) {
    SHARED_ARRAY(float, slot, 32);
    if (blockIdx.x == 0) slot[threadIdx.x] = 1;
    out[blockIdx.x * 32 + threadIdx.x] = slot[threadIdx.x];
}
TEST(SelfTest, SharedMemoryIsPoisonedForEveryBlock) {
    DeviceArray<float> out(64);
    launch("stale_shared", stale_shared, Shape{2, 1, 1, 32, 0}, Dependent::no, nullptr, out.get());
    EXPECT_EQ(out[31], 1.0f);
    EXPECT_TRUE(std::isnan(out[32]));
}

template <int kCase>
__global__ void bad_collective(int* out) {
    const int lane = int(threadIdx.x);
    if (kCase == 0) out[lane] = shfl(lane, 20, lane < 16 ? 0xffffu : 0xffff0000u);  // lanes 0–15 read lane 20
    if (kCase == 1) out[lane] = shfl(lane, 0, 0xfffffffeu);  // lane 0 is not in its own mask
    if (kCase == 2 && lane != 5) out[lane] = shfl(lane, 0);  // lane 5 never comes
    if (kCase == 2 && lane == 5) out[lane] = int(ballot(true, 1u << 5));
}
TEST(SelfTest, FindsBadMasks) {
    DeviceArray<int> out(32);
    const Shape shape{1, 1, 1, 32, 0};
    expect_fault([&] { launch("bad", bad_collective<0>, shape, Dependent::no, nullptr, out.get()); },
                 "outside its mask");
    expect_fault([&] { launch("bad", bad_collective<1>, shape, Dependent::no, nullptr, out.get()); }, "mask");
    expect_fault([&] { launch("bad", bad_collective<2>, shape, Dependent::no, nullptr, out.get()); }, "");
}

__global__ void halves(int* out) {
    const int lane = int(threadIdx.x);
    // two halves of a warp, each with collectives of its own, arriving independently
    const unsigned mask = lane < 16 ? 0x0000ffffu : 0xffff0000u;
    int sum = lane;
    for (int bits = 8; bits > 0; bits /= 2) sum += shfl_xor(sum, bits, mask);
    if (lane < 16) sum += int(ballot(lane % 2 == 0, mask));
    out[lane] = sum;
}
TEST(SelfTest, HalvesOfAWarpGoTheirOwnWays) {
    in_every_order([] {
        DeviceArray<int> out(32);
        launch("halves", halves, Shape{1, 1, 1, 32, 0}, Dependent::no, nullptr, out.get());
        EXPECT_EQ(out[3], 120 + 0x5555);
        EXPECT_EQ(out[30], 376);
    });
}

__global__ void shuffles(int* out) {
    const int lane = int(threadIdx.x);
    out[lane] = shfl_down(lane, 5) * 1000000 + shfl_up(lane, 3) * 1000 + shfl(lane, lane + 1);
}
TEST(SelfTest, ShufflesFollowTheManual) {
    DeviceArray<int> out(32);
    launch("shuffles", shuffles, Shape{1, 1, 1, 32, 0}, Dependent::no, nullptr, out.get());
    EXPECT_EQ(out[0], 5 * 1000000 + 0 * 1000 + 1);      // shfl_up keeps its own value below the distance
    EXPECT_EQ(out[30], 30 * 1000000 + 27 * 1000 + 31);  // shfl_down likewise at the top
    EXPECT_EQ(out[31], 31 * 1000000 + 28 * 1000 + 0);   // the source lane counts modulo 32
}

__global__ void loads(float* out, const char* in, int stride, int offset) {
    const Vec16 value = load16(in + offset + int(threadIdx.x) * stride);
    float first;
    std::memcpy(&first, value.w, sizeof first);
    out[threadIdx.x] = first;
}
TEST(SelfTest, FindsAMisalignedVectorLoad) {
    DeviceArray<float> out(32);
    DeviceArray<char> in(std::vector<char>(4096));
    expect_fault(
        [&] {
            launch("loads", loads, Shape{1, 1, 1, 32, 0}, Dependent::no, nullptr, out.get(), in.get(), 16, 4);
        },
        "multiple of 16");
}
TEST(SelfTest, CountsSectorsOfGlobalAccesses) {
    DeviceArray<float> out(32);
    DeviceArray<char> in(std::vector<char>(4096));
    for (const auto& [stride, sectors] : {std::pair{16, 16u}, {32, 32u}, {128, 32u}, {0, 1u}}) {
        Setting setting;
        launch("loads", loads, Shape{1, 1, 1, 32, 0}, Dependent::no, nullptr, out.get(), in.get(), stride, 0);
        ASSERT_EQ(Machine::get().counters.global.size(), 1u);
        EXPECT_EQ(Machine::get().counters.global.begin()->second.bytes, 512u);
        EXPECT_EQ(Machine::get().counters.global.begin()->second.sectors, sectors) << stride;
    }
}

template <int kRow>
__global__ void read_matrix(std::uint32_t* out) {
    SHARED_ARRAY(std::uint16_t, tile, 16 * kRow);
    const int lane = int(threadIdx.x);
    for (int i = lane; i < 16 * kRow; i += 32) tile[i] = std::uint16_t(i);
    sync_warp();
    std::uint32_t r[4], t[4];
    ldmatrix_x4(r, &tile[lane % 16 * kRow + lane / 16 * 8]);
    ldmatrix_x4_trans(t, &tile[lane % 16 * kRow + lane / 16 * 8]);
    for (int i = 0; i < 4; ++i) {
        out[lane * 8 + i] = r[i];
        out[lane * 8 + 4 + i] = t[i];
    }
}
TEST(SelfTest, LdmatrixFollowsTheManualAndCountsConflicts) {
    DeviceArray<std::uint32_t> out(256);
    Setting setting;
    launch("read_matrix", read_matrix<64>, Shape{1, 1, 1, 32, 0}, Dependent::no, nullptr, out.get());
    EXPECT_EQ(Machine::get().counters.ldmatrix_conflicts,
              2u * 4 * 7);                                    // rows of 128 bytes: all 8 on the same banks
    ASSERT_EQ(Machine::get().counters.conflicts.size(), 2u);  // each ldmatrix at its own line
    for (const auto& [site, conflicts] : Machine::get().counters.conflicts) EXPECT_EQ(conflicts, 4u * 7);
    // tile 1 begins at row 8; lane 9 holds its row 2, columns 2 and 3, or transposed its rows 2 and 3 of
    // column 2
    EXPECT_EQ(out[9 * 8 + 1], std::uint32_t((10 * 64 + 2) | (10 * 64 + 3) << 16));
    EXPECT_EQ(out[9 * 8 + 4 + 1], std::uint32_t((10 * 64 + 2) | (11 * 64 + 2) << 16));
    Machine::get().counters = {};
    launch("read_matrix", read_matrix<72>, Shape{1, 1, 1, 32, 0}, Dependent::no, nullptr, out.get());
    EXPECT_EQ(Machine::get().counters.ldmatrix_conflicts, 0u);
}

TEST(SelfTest, FragmentMapsCoverEachElementOnce) {
    std::vector<int> a(256), b(128), c(128);
    for (std::size_t lane = 0; lane < 32; ++lane) {
        for (const auto [row, col] : kMmaA[lane]) ++a[std::size_t(row * 16 + col)];
        for (const auto [row, col] : kMmaB[lane]) ++b[std::size_t(row * 8 + col)];
        for (const auto [row, col] : kMmaC[lane]) ++c[std::size_t(row * 8 + col)];
    }
    for (const auto& counts : {a, b, c})
        EXPECT_TRUE(std::all_of(counts.begin(), counts.end(), [](int n) { return n == 1; }));
    // spot values of the PTX manual's figures
    EXPECT_EQ(kMmaA[5][2], (Element{9, 2}));
    EXPECT_EQ(kMmaA[5][5], (Element{1, 11}));
    EXPECT_EQ(kMmaB[6][3], (Element{13, 1}));
    EXPECT_EQ(kMmaC[31][3], (Element{15, 7}));
}

__global__ void greedy_shared(float* out) {
    SHARED_ARRAY(float, a, 10000);
    SHARED_ARRAY(float, b, 3000);
    a[threadIdx.x] = 0;
    b[threadIdx.x] = 0;
    out[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x];
}
TEST(SelfTest, FindsMoreSharedMemoryThanACardHas) {
    DeviceArray<float> out(32);
    expect_fault(
        [&] {
            launch("greedy", greedy_shared, Shape{1, 1, 1, 32, 0}, Dependent::no, nullptr, out.get());
        },
        "do not fit");
    EXPECT_THROW(launch("greedy", greedy_shared, Shape{1, 1, 1, 2048, 0}, Dependent::no, nullptr, out.get()),
                 Fault);
    EXPECT_THROW(launch("greedy", greedy_shared, Shape{0, 1, 1, 32, 0}, Dependent::no, nullptr, out.get()),
                 Fault);
}

/// 2 KiB of its own beside what the launch brings.
void run_with_shared(std::size_t dynamic, std::size_t granted) {
    simt::Launch launch;
    launch.name = "modest";
    launch.block = {32, 1, 1};
    launch.dynamic_shared = dynamic;
    launch.granted_shared = granted;
    launch.body = [] {
        SHARED_ARRAY(float, own, 512);
        own[threadIdx.x] = 0;
    };
    Machine::get().launch(std::move(launch));
}
TEST(SelfTest, FindsSharedMemoryThatNobodyAskedFor) {
    run_with_shared(46 << 10, 0);
    run_with_shared(97 << 10, 97 << 10);
    expect_fault([] { run_with_shared(47 << 10, 0); }, "do not fit");  // 48 KiB less its own
    expect_fault([] { run_with_shared(49 << 10, 0); }, "0 were asked for");
    expect_fault([] { run_with_shared(60 << 10, 59 << 10); }, "were asked for");
    expect_fault([] { run_with_shared(16, 98 << 10); }, "do not fit");  // the asking fails
    expect_fault([] { run_with_shared(16, 100 << 10); }, "were asked for");
}
TEST(SelfTest, FindsGridsThatNoCardTakes) {
    for (const simt::Dim3 grid : {simt::Dim3{1, 65536, 1}, {1, 1, 65536}, {0x80000000u, 1, 1}, {1, 0, 1}}) {
        simt::Launch tried;
        tried.block = {32, 1, 1};
        tried.grid = grid;
        tried.body = [] {};
        expect_fault([&] { Machine::get().launch(std::move(tried)); }, "no card takes a grid");
    }
}

TEST(LaunchRules, SharedMemoryIsAlwaysAskedForAndByOneKernelAlwaysTheSame) {
    EXPECT_EQ(shared_to_ask_for({1, 1, 1, 32, 0, 88 << 10}), 0u);
    EXPECT_EQ(shared_to_ask_for({1, 1, 1, 32, 16}), 16u);
    EXPECT_EQ(shared_to_ask_for({1, 1, 1, 32, 16, 88 << 10}), 88u << 10);
}
TEST(LaunchRules, LaunchesOverlapOnlyWhereCardCodeAndDriverKnowIt) {
    EXPECT_TRUE(may_overlap(9, 90, 12030));
    EXPECT_TRUE(may_overlap(12, 120, 13000));
    EXPECT_FALSE(may_overlap(8, 80, 13000));
    EXPECT_FALSE(may_overlap(9, 80, 13000));  // code made by the driver of older PTX: its waits are empty
    EXPECT_FALSE(may_overlap(9, 90, 12020));
}

}  // namespace
}  // namespace llmgen::selftest
