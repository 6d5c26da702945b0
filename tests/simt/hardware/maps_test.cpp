// The emulator's maps (fragments.h) against what a warp does: on the emulator they agree by construction, on
// a card this is the proof that the emulator is right.
#include "simt/fragments.h"
#include "simt/hardware/probes.h"
#include "simt/testing.h"

namespace llmgen::simt {
namespace {

std::uint32_t pair(std::uint16_t low, std::uint16_t high) {
    return std::uint32_t(low) | std::uint32_t(high) << 16;
}

TEST(Maps, OfMmaLdmatrixAndShufflesAreTheHardwares) {
    // Small whole numbers: exact in bf16, their sums of products exact in f32, whatever the order.
    Values values(5);
    int a[16][16], b[16][8];
    for (auto& row : a)
        for (int& x : row) x = values.below(17) - 8;
    for (auto& row : b)
        for (int& x : row) x = values.below(17) - 8;
    const auto bits = [](int x) { return to_bf16(float(x)).bits; };
    std::vector<std::uint32_t> a_registers, b_registers;
    for (std::size_t lane = 0; lane < 32; ++lane) {
        const auto a_at = [&](std::size_t i) { return bits(a[kMmaA[lane][i].row][kMmaA[lane][i].col]); };
        const auto b_at = [&](std::size_t i) { return bits(b[kMmaB[lane][i].row][kMmaB[lane][i].col]); };
        for (std::size_t i = 0; i < 4; ++i) a_registers.push_back(pair(a_at(2 * i), a_at(2 * i + 1)));
        for (std::size_t i = 0; i < 2; ++i) b_registers.push_back(pair(b_at(2 * i), b_at(2 * i + 1)));
    }
    std::vector<std::uint16_t> tiles(4 * 64);
    for (std::size_t i = 0; i < tiles.size(); ++i) tiles[i] = std::uint16_t(i * 257 + 11);

    DeviceArray<std::uint32_t> da(a_registers), db(b_registers), rows(128), columns(128);
    DeviceArray<std::uint16_t> dtiles(tiles);
    DeviceArray<float> d(128);
    DeviceArray<int> shuffles(160);
    kernels::read_maps({da, db, d, dtiles, rows, columns, shuffles}, nullptr);

    const auto got_d = d.host();
    const auto got_rows = rows.host(), got_columns = columns.host();
    const auto got = shuffles.host();
    for (std::size_t lane = 0; lane < 32; ++lane) {
        SCOPED_TRACE(lane);
        for (std::size_t i = 0; i < 4; ++i) {
            const auto [row, col] = kMmaC[lane][i];
            int sum = 0;
            for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][col];
            EXPECT_EQ(got_d[lane * 4 + i], float(sum)) << "mma, element " << i;
        }
        for (std::size_t tile = 0; tile < 4; ++tile) {
            const auto at = [&](int row, int col) { return tiles[tile * 64 + std::size_t(row * 8 + col)]; };
            const auto [r0, c0] = kLdmatrix[lane][0];
            const auto [r1, c1] = kLdmatrix[lane][1];
            EXPECT_EQ(got_rows[lane * 4 + tile], pair(at(r0, c0), at(r1, c1))) << "ldmatrix";
            EXPECT_EQ(got_columns[lane * 4 + tile], pair(at(c0, r0), at(c1, r1))) << "ldmatrix.trans";
        }
        const int l = int(lane);
        EXPECT_EQ(got[lane * 5], 3);
        EXPECT_EQ(got[lane * 5 + 1], l ^ 5);
        EXPECT_EQ(got[lane * 5 + 2], l < 2 ? l : l - 2);
        EXPECT_EQ(got[lane * 5 + 3], l + 7 > 31 ? l : l + 7);
        EXPECT_EQ(unsigned(got[lane * 5 + 4]), 0xaaaaaaaau);
    }
}

#ifdef LLMGEN_HARDWARE
/// Loops over values read what host() copied: one had 60 million waits, three minutes of a card.
class FewWaits : public testing::Environment {
    void TearDown() override { EXPECT_LT(n_waits(), 200000); }
};
[[maybe_unused]] testing::Environment* const few_waits = testing::AddGlobalTestEnvironment(new FewWaits);
#endif

}  // namespace
}  // namespace llmgen::simt
