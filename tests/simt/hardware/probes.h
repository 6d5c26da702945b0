// A launch that only tests make.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/launch.h"

namespace llmgen::kernels {

/// One warp: the registers of each lane, as the hardware (or the emulator) deals them out.
struct Maps {
    const std::uint32_t* a;      // [32][4] registers of mma's A, two bf16 each
    const std::uint32_t* b;      // [32][2]
    float* d;                    // [32][4]: A · B
    const std::uint16_t* tiles;  // [4][8][8] for ldmatrix
    std::uint32_t* rows;         // [32][4]: ldmatrix
    std::uint32_t* columns;      // [32][4]: ldmatrix, transposed
    int* shuffles;               // [32][5]: shfl from 3, xor 5, up 2, down 7, ballot of odd lanes
};
void read_maps(const Maps& maps, Stream stream);
/// Whether dependent launches overlap on the current card, as this was compiled for it.
bool launches_overlap();

}  // namespace llmgen::kernels
