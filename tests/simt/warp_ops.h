// The collectives of a warp as functions over what its lanes passed.
#pragma once

#include <cstdint>
#include <cstring>

#include "simt/machine.h"

namespace llmgen::simt {

struct ShuffleOperand {
    alignas(8) unsigned char value[8], result[8];
    int source;
    bool outside;  // the source lane is not in the mask
};
void shuffle_op(void* const operands[kWarpSize], unsigned mask);

struct VoteOperand {
    bool predicate;
    unsigned ballot;
};
void vote_op(void* const operands[kWarpSize], unsigned mask);

void sync_op(void* const operands[kWarpSize], unsigned mask);

struct MmaOperand {
    float* d;
    const std::uint32_t* a;
    const std::uint32_t* b;
};
void mma_bf16_op(void* const operands[kWarpSize], unsigned mask);
void mma_f16_op(void* const operands[kWarpSize], unsigned mask);

struct LdmatrixOperand {
    std::uint32_t* r;
    const void* row;
};
void ldmatrix_op(void* const operands[kWarpSize], unsigned mask);
void ldmatrix_trans_op(void* const operands[kWarpSize], unsigned mask);

template <typename T>
T shuffle(unsigned mask, T value, int source, Site site) {
    static_assert(sizeof(T) <= 8);
    ShuffleOperand operand{};
    std::memcpy(operand.value, &value, sizeof value);
    operand.source = source & (kWarpSize - 1);
    Machine::get().collective(shuffle_op, &operand, mask, site);
    if (operand.outside) Machine::get().fault("a shuffle reads a lane outside its mask");
    std::memcpy(&value, operand.result, sizeof value);
    return value;
}

}  // namespace llmgen::simt
