// One thread of a kernel, from its entry to its end: a fiber of the emulator, so that barriers, collectives
// and the grid dependency park it and every order of execution is the emulator's.
#include <fmt/format.h>

#include <algorithm>

#include "ptx/context.h"
#include "ptx/profile.h"

namespace llmgen::ptx {

namespace {

constexpr std::uint64_t kMostJumps =
    20'000'000;  // of one thread: a loop that never ends is a finding, not a hang

std::shared_ptr<BlockState> make_block(const Running& launch, simt::Block& block) {
    const Kernel& k = *launch.kernel;
    auto state = std::make_shared<BlockState>();
    const std::size_t n = block.threads.size();
    state->registers.resize(n * k.image.size());
    state->undefined.resize(n * k.image.size());
    state->local.resize(n * k.local_bytes, char(0xff));
    state->local_bytes.resize(n * k.local_bytes, Byte::undefined);
    std::size_t end = 0;
    std::vector<std::pair<std::size_t, std::size_t>> arrays;
    for (const Variable& v : k.shared) {
        const char* at = block.shared.memory();
        std::size_t bytes = block.shared.dynamic_bytes();
        if (!v.dynamic) {
            bytes = v.bytes;
            at = static_cast<const char*>(block.shared.array(&v, v.bytes));
            if (at == nullptr)
                simt::Machine::get().fault(fmt::format("{} does not fit into shared memory", v.name));
        }
        const auto offset = std::size_t(at - block.shared.memory());
        state->shared_offsets.push_back(std::int64_t(offset));
        arrays.emplace_back(offset, bytes);
        end = std::max(end, offset + bytes);
    }
    state->bytes.resize(end, Byte::outside);
    state->touches.resize(end / 2 + 1);
    for (const auto& [offset, bytes] : arrays)
        std::fill_n(state->bytes.begin() + std::ptrdiff_t(offset), bytes, Byte::undefined);
    return state;
}

void set_special(Context& c, const simt::Dim3& grid, const simt::Dim3& shape) {
    const simt::Dim3 tid = c.thread->index, ctaid = c.thread->block->index;
    const std::uint64_t values[13] = {tid.x,
                                      tid.y,
                                      tid.z,
                                      shape.x,
                                      shape.y,
                                      shape.z,
                                      ctaid.x,
                                      ctaid.y,
                                      ctaid.z,
                                      grid.x,
                                      grid.y,
                                      grid.z,
                                      std::uint64_t(c.thread->lane)};
    for (std::size_t i = 0; i < 13; ++i)
        if (c.kernel->special[i] >= 0) c.R[c.kernel->special[i]] = values[i];
    for (const Kernel::Symbol& symbol : c.kernel->symbols)
        c.R[symbol.slot] = std::uint64_t(c.block->shared_offsets[symbol.variable] + symbol.offset);
}

template <bool kProfile>
void loop(Context& c) {
    Kernel& k = *c.kernel;
    const Op* const ops = k.ops.data();
    std::uint64_t* const counts = k.counts.data();
    std::uint64_t jumps = 0;
    for (std::size_t pc = 0;;) {
        const Op& op = ops[pc];
        if (op.guard >= 0) {
            ++counts[pc];
            c.want_defined(op, op.guard, "the condition");
            if ((c.R[op.guard] != 0) == op.negated) {
                ++pc;
                continue;
            }
        } else {
            ++counts[pc];
        }
        if (op.flow != Flow::next) {
            if (op.flow == Flow::leave) return;
            if (++jumps > kMostJumps) c.fault(op, "runs on and on");
            pc = std::size_t(op.offset);
            continue;
        }
        if constexpr (kProfile) c.launch->profile->before(c, op);
        op.run(c, op);
        ++pc;
    }
}

}  // namespace

void run_thread(Running& launch) {
    simt::Machine& machine = simt::Machine::get();
    simt::Thread& thread = machine.current();
    simt::Block& block = *thread.block;
    Kernel& kernel = *launch.kernel;
    if (block.witness == nullptr) block.witness = make_block(launch, block);
    auto* state = static_cast<BlockState*>(block.witness.get());
    const std::size_t n = kernel.image.size(), self = std::size_t(thread.linear);
    Context c{&launch,
              &kernel,
              state,
              &machine,
              &thread,
              state->registers.data() + self * n,
              state->undefined.data() + self * n,
              block.shared.memory(),
              state->local.data() + self * kernel.local_bytes,
              state->local_bytes.data() + self * kernel.local_bytes};
    const simt::Dim3 at = block.index, grid = block.launch->grid;
    c.block_index = int((at.z * grid.y + at.y) * grid.x + at.x);
    std::copy(kernel.image.begin(), kernel.image.end(), c.R);
    std::copy(kernel.undefined.begin(), kernel.undefined.end(), c.U);
    set_special(c, block.launch->grid, block.launch->block);
    if (launch.profile != nullptr)
        loop<true>(c);
    else
        loop<false>(c);
}

}  // namespace llmgen::ptx
