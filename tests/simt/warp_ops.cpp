#include "simt/warp_ops.h"

#include <algorithm>
#include <array>

#include "base/dtype.h"
#include "simt/fragments.h"

namespace llmgen::simt {

void shuffle_op(void* const operands[kWarpSize], unsigned mask) {
    for (int lane = 0; lane < kWarpSize; ++lane) {
        if (!(mask >> lane & 1)) continue;
        auto& own = *static_cast<ShuffleOperand*>(operands[lane]);
        own.outside = !(mask >> own.source & 1);
        if (own.outside) continue;
        const auto& other = *static_cast<const ShuffleOperand*>(operands[own.source]);
        std::memcpy(own.result, other.value, sizeof own.result);
    }
}

void vote_op(void* const operands[kWarpSize], unsigned mask) {
    unsigned ballot = 0;
    for (int lane = 0; lane < kWarpSize; ++lane)
        if (mask >> lane & 1)
            ballot |= unsigned(static_cast<VoteOperand*>(operands[lane])->predicate) << lane;
    for (int lane = 0; lane < kWarpSize; ++lane)
        if (mask >> lane & 1) static_cast<VoteOperand*>(operands[lane])->ballot = ballot;
}

void sync_op(void* const[kWarpSize], unsigned) {}

namespace {
template <typename T>
float half_of(std::uint32_t word, int i) {
    return to_f32(T{std::uint16_t(i == 0 ? word & 0xffffu : word >> 16)});
}

// Products of 16-bit values are exact in f32; the hardware's order of summation is not documented, so nothing
// may depend on the one used here.
template <typename T>
void mma(void* const operands[kWarpSize]) {
    ++Machine::get().counters.mma;
    float a[16][16], b[16][8], d[16][8];
    for (std::size_t lane = 0; lane < kWarpSize; ++lane) {
        const auto& own = *static_cast<const MmaOperand*>(operands[lane]);
        for (std::size_t i = 0; i < 8; ++i)
            a[kMmaA[lane][i].row][kMmaA[lane][i].col] = half_of<T>(own.a[i / 2], int(i % 2));
        for (std::size_t i = 0; i < 4; ++i) {
            b[kMmaB[lane][i].row][kMmaB[lane][i].col] = half_of<T>(own.b[i / 2], int(i % 2));
            d[kMmaC[lane][i].row][kMmaC[lane][i].col] = own.d[i];
        }
    }
    for (int row = 0; row < 16; ++row)
        for (int k = 0; k < 16; ++k)
            for (int col = 0; col < 8; ++col) d[row][col] += a[row][k] * b[k][col];
    for (std::size_t lane = 0; lane < kWarpSize; ++lane)
        for (std::size_t i = 0; i < 4; ++i)
            static_cast<const MmaOperand*>(operands[lane])->d[i] = d[kMmaC[lane][i].row][kMmaC[lane][i].col];
}

// Lane m * 8 + i gives row i of tile m. A phase reads one tile: 8 rows of 16 bytes over 32 banks of 4 bytes.
template <bool kTranspose>
void ldmatrix(void* const operands[kWarpSize]) {
    Counters& counters = Machine::get().counters;
    ++counters.ldmatrix;
    const Site site = Machine::get().collective_site();
    for (std::size_t tile = 0; tile < 4; ++tile) {
        std::uint16_t values[8][8];
        std::array<int, 8> group{};  // how many rows fall on each group of 4 banks
        for (std::size_t i = 0; i < 8; ++i) {
            const void* row = static_cast<const LdmatrixOperand*>(operands[tile * 8 + i])->row;
            std::memcpy(values[i], row, 16);
            ++group[reinterpret_cast<std::uintptr_t>(row) / 16 % 8];
        }
        const auto conflicts = std::uint64_t(*std::max_element(group.begin(), group.end()) - 1);
        counters.ldmatrix_conflicts += conflicts;
        if (conflicts > 0) counters.conflicts[{site.file, site.line}] += conflicts;
        for (std::size_t lane = 0; lane < kWarpSize; ++lane) {
            std::uint32_t word = 0;
            for (std::size_t i = 0; i < 2; ++i) {
                const auto [row, col] = kLdmatrix[lane][i];
                word |= std::uint32_t(kTranspose ? values[col][row] : values[row][col]) << (16 * i);
            }
            static_cast<const LdmatrixOperand*>(operands[lane])->r[tile] = word;
        }
    }
}
}  // namespace

void mma_bf16_op(void* const operands[kWarpSize], unsigned) { mma<bf16>(operands); }
void mma_f16_op(void* const operands[kWarpSize], unsigned) { mma<f16>(operands); }
void ldmatrix_op(void* const operands[kWarpSize], unsigned) { ldmatrix<false>(operands); }
void ldmatrix_trans_op(void* const operands[kWarpSize], unsigned) { ldmatrix<true>(operands); }

}  // namespace llmgen::simt
