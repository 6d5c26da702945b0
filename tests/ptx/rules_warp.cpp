// Control, shuffles, votes, barriers, and the matrix instructions from the ISA's own formulas of who holds
// what.
#include <cstring>
#include <utility>

#include "base/dtype.h"
#include "ptx/rules.h"

namespace llmgen::ptx {

namespace {

struct ShuffleOperand {
    u64 value;
    u8 undefined;
    int source;
    u64 result = 0;
    u8 result_undefined = 0;
    bool outside = false;
};
void shuffle_collective(void* const operands[simt::kWarpSize], unsigned mask) {
    for (int lane = 0; lane < simt::kWarpSize; ++lane) {
        if (!(mask >> lane & 1)) continue;
        auto& own = *static_cast<ShuffleOperand*>(operands[lane]);
        own.outside = !(mask >> own.source & 1);
        if (own.outside) continue;
        const auto& other = *static_cast<const ShuffleOperand*>(operands[own.source]);
        own.result = other.value;
        own.result_undefined = other.undefined;
    }
}
enum class Shuffle { up, down, bfly, idx };

// The ISA's own formulas of the source lane.
template <Shuffle kMode>
void shuffle(Context& c, const Op& o) {
    const i32* more = &c.kernel->more[std::size_t(o.more)];
    for (const i32 slot : {o.b, o.c, more[1]}) c.want_defined(o, slot, "a lane or mask");
    const int lane = c.thread->lane, b = int(c.get<u32>(o.b) & 31u);
    const int clamp = int(c.get<u32>(o.c) & 31u), segment = int(c.get<u32>(o.c) >> 8 & 31u);
    const int highest = (lane & segment) | (clamp & ~segment), lowest = lane & segment;
    int source;
    bool valid;
    if constexpr (kMode == Shuffle::up) {
        source = lane - b;
        valid = source >= highest;
    } else {
        source = kMode == Shuffle::down   ? lane + b
                 : kMode == Shuffle::bfly ? lane ^ b
                                          : (lowest | (b & ~segment));
        valid = source <= highest;
    }
    ShuffleOperand operand{c.R[o.a], c.U[o.a], valid ? source : lane};
    c.machine->collective(shuffle_collective, &operand, c.get<u32>(more[1]), c.kernel->site(o));
    if (operand.outside) c.fault(o, "reads a lane that the mask leaves out");
    c.R[o.d] = u32(operand.result);
    c.U[o.d] = operand.result_undefined;
    if (more[0] >= 0) {
        c.R[more[0]] = valid ? 1 : 0;
        c.U[more[0]] = 0;
    }
}

struct VoteOperand {
    bool predicate;
    unsigned ballot = 0;
};
void vote_collective(void* const operands[simt::kWarpSize], unsigned mask) {
    unsigned ballot = 0;
    for (int lane = 0; lane < simt::kWarpSize; ++lane)
        if (mask >> lane & 1)
            ballot |= unsigned(static_cast<VoteOperand*>(operands[lane])->predicate) << lane;
    for (int lane = 0; lane < simt::kWarpSize; ++lane)
        if (mask >> lane & 1) static_cast<VoteOperand*>(operands[lane])->ballot = ballot;
}
void vote_ballot(Context& c, const Op& o) {
    c.want_defined(o, o.a, "the predicate");
    VoteOperand operand{c.R[o.a] != 0};
    c.machine->collective(vote_collective, &operand, c.get<u32>(o.b), c.kernel->site(o));
    c.R[o.d] = operand.ballot;
    c.U[o.d] = 0;
}
void sync_collective(void* const[simt::kWarpSize], unsigned) {}
void warp_barrier(Context& c, const Op& o) {
    c.machine->collective(sync_collective, nullptr, c.get<u32>(o.a), c.kernel->site(o));
    ++c.warp_sync;
}
void block_barrier(Context& c, const Op& o) {
    c.machine->barrier(c.kernel->site(o));
    ++c.barrier;
    ++c.warp_sync;
}
void dependency_wait(Context& c, const Op& o) { c.machine->dependency_wait(c.kernel->site(o)); }
void nothing(Context&, const Op&) {}
void grid_fence(Context& c, const Op&) {
    if (c.kernel->meets) c.launch->handovers.fence(c.standing());
}

// --- matrices, from the ISA's own formulas of who holds what

struct MmaOperand {
    u32 a[4], b[2];
    float c[4];
    float d[4];
};
template <typename T>
float half_of(u32 word, int i) {
    return to_f32(T{u16(i == 0 ? word & 0xffffu : word >> 16)});
}
// The hardware's order of summation is not documented: here all products are added in double and rounded
// once.
template <typename T>
void mma_collective(void* const operands[simt::kWarpSize], unsigned) {
    double a[16][16], b[16][8];
    for (int lane = 0; lane < 32; ++lane) {
        const auto& own = *static_cast<const MmaOperand*>(operands[lane]);
        const int group = lane >> 2, in_group = lane % 4;
        for (int i = 0; i < 8; ++i) {
            const int row = (i < 2 || (i >= 4 && i < 6)) ? group : group + 8;
            const int col = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
            a[row][col] = half_of<T>(own.a[i / 2], i & 1);
        }
        for (int i = 0; i < 4; ++i) {
            const int row = in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0);
            b[row][group] = half_of<T>(own.b[i / 2], i & 1);
        }
    }
    for (int lane = 0; lane < 32; ++lane) {
        auto& own = *static_cast<MmaOperand*>(operands[lane]);
        const int group = lane >> 2, in_group = lane % 4;
        for (int i = 0; i < 4; ++i) {
            const int row = i < 2 ? group : group + 8, col = in_group * 2 + (i & 1);
            double sum = own.c[i];
            for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][col];
            own.d[i] = canonical(float(sum));
        }
    }
}
template <typename T>
void mma(Context& c, const Op& o) {
    const i32* m = &c.kernel->more[std::size_t(o.more)];
    MmaOperand operand;
    for (int i = 4; i < 14; ++i) c.want_defined(o, m[i], "a factor");
    for (int i = 0; i < 4; ++i) operand.a[i] = c.get<u32>(m[4 + i]);
    for (int i = 0; i < 2; ++i) operand.b[i] = c.get<u32>(m[8 + i]);
    for (int i = 0; i < 4; ++i) operand.c[i] = c.get<float>(m[10 + i]);
    c.machine->collective(mma_collective<T>, &operand, simt::kFullMask, c.kernel->site(o));
    for (int i = 0; i < 4; ++i) {
        c.set<float>(m[i], operand.d[i]);
        c.U[m[i]] = 0;
    }
}

struct LdmatrixOperand {
    const char* row;
    u32 r[4];
};
template <bool kTranspose>
void ldmatrix_collective(void* const operands[simt::kWarpSize], unsigned) {
    for (int tile = 0; tile < 4; ++tile)
        for (int lane = 0; lane < 32; ++lane) {
            auto& own = *static_cast<LdmatrixOperand*>(operands[lane]);
            u32 word = 0;
            for (int i = 0; i < 2; ++i) {
                int row = lane / 4, col = lane % 4 * 2 + i;
                if (kTranspose) std::swap(row, col);
                u16 value;
                std::memcpy(&value,
                            static_cast<const LdmatrixOperand*>(operands[tile * 8 + row])->row + col * 2, 2);
                word |= u32(value) << (16 * i);
            }
            own.r[tile] = word;
        }
}
template <bool kTranspose>
void ldmatrix(Context& c, const Op& o) {
    c.want_defined(o, o.a, "the address");
    u8 undefined = 0;
    LdmatrixOperand operand{c.read_shared(o, u32(c.R[o.a] + u64(o.offset)), 16, undefined), {}};
    if (undefined != 0) c.fault(o, "reads a row of shared memory that nobody has written");
    c.machine->collective(ldmatrix_collective<kTranspose>, &operand, simt::kFullMask, c.kernel->site(o));
    const i32* m = &c.kernel->more[std::size_t(o.more)];
    for (int i = 0; i < 4; ++i) {
        c.set<u32>(m[i], operand.r[i]);
        c.U[m[i]] = 0;
    }
}

}  // namespace

void add_warp_rules(Table& t) {
    for (const char* name : {"bra", "bra.uni"}) t[name] = {nothing, Class::control, "l"};
    for (const char* name : {"ret", "exit"}) t[name] = {nothing, Class::control, ""};
    t["shfl.sync.up.b32"] = {shuffle<Shuffle::up>, Class::shuffle, "pabce"};
    t["shfl.sync.down.b32"] = {shuffle<Shuffle::down>, Class::shuffle, "pabce"};
    t["shfl.sync.bfly.b32"] = {shuffle<Shuffle::bfly>, Class::shuffle, "pabce"};
    t["shfl.sync.idx.b32"] = {shuffle<Shuffle::idx>, Class::shuffle, "pabce"};
    t["vote.sync.ballot.b32"] = {vote_ballot, Class::shuffle, "dab"};
    t["bar.warp.sync"] = {warp_barrier, Class::barrier, "a"};
    t["bar.sync"] = {block_barrier, Class::barrier, "z"};
    t["griddepcontrol.wait"] = {dependency_wait, Class::barrier, ""};
    t["griddepcontrol.launch_dependents"] = {nothing, Class::other, ""};
    for (const char* name : {"membar.gl", "fence.acq_rel.gpu", "fence.sc.gpu"})
        t[name] = {grid_fence, Class::barrier, ""};
    t["membar.cta"] = {nothing, Class::barrier, ""};
    t["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"] = {mma<bf16>, Class::mma, "4424"};
    t["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"] = {mma<f16>, Class::mma, "4424"};
    t["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] = {ldmatrix<false>, Class::ldmatrix, "4m", 16};
    t["ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"] = {ldmatrix<true>, Class::ldmatrix, "4m", 16};
}

}  // namespace llmgen::ptx
