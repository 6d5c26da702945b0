#include "ptx/profile.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "ptx/context.h"

namespace llmgen::ptx {

namespace {

/// The registers that an instruction reads.
std::vector<std::int32_t> sources_of(const Kernel& kernel, const Op& op) {
    std::vector<std::int32_t> all;
    for (const std::int32_t slot : {op.guard, op.a, op.b, op.c})
        if (slot >= 0) all.push_back(slot);
    if (op.more < 0) return all;
    const Instruction& in = kernel.entry.instructions[kernel.index(op)];
    const bool first_is_destination = !in.opcode.starts_with("st");
    std::size_t at = std::size_t(op.more);
    for (std::size_t i = 0; i < in.operands.size(); ++i) {
        const std::size_t n = in.operands[i].members.size();
        if (!(i == 0 && first_is_destination)) all.insert(all.end(), &kernel.more[at], &kernel.more[at] + n);
        at += n;
    }
    return all;
}

/// The registers that a load fills.
std::vector<std::int32_t> targets_of(const Kernel& kernel, const Op& op) {
    const Instruction& in = kernel.entry.instructions[kernel.index(op)];
    if (in.operands.empty()) return {};
    if (in.operands[0].kind != Operand::Kind::vector) return {op.d};
    const std::size_t n = in.operands[0].members.size();
    return {&kernel.more[std::size_t(op.more)], &kernel.more[std::size_t(op.more)] + n};
}

}  // namespace

std::uint64_t LaunchProfile::all() const {
    return std::accumulate(instructions.begin(), instructions.end(), 0ull);
}

LaunchProfile& Profile::find(const std::string& name) {
    auto it = std::find_if(launches.begin(), launches.end(), [&](const auto& l) { return l.first == name; });
    if (it == launches.end()) it = launches.insert(it, {name, {}});
    return it->second;
}

void Profile::start(const std::string& name, Kernel& kernel, std::uint64_t threads) {
    finish();
    kernel_ = &kernel;
    counts_before_ = kernel.counts;
    sources_.clear();
    for (const Op& op : kernel.ops) sources_.push_back(sources_of(kernel, op));
    now_ = &find(name);
    now_->threads += threads;
    followed_block_ = ~0ull;
}

void Profile::before(Context& c, const Op& op) {
    switch (op.kind) {
        case Class::global_load:
        case Class::global_store: {
            const std::uint64_t address = c.R[op.a] + std::uint64_t(op.offset);
            if (address >= kSharedWindow && address < 2 * kLocalWindow) break;
            record(c, op, address, op.bytes, false);
            (op.kind == Class::global_load ? now_->bytes_read : now_->bytes_written) += op.bytes;
            break;
        }
        case Class::shared_load:
        case Class::shared_store:
        case Class::ldmatrix:
            record(c, op, std::uint32_t(c.R[op.a] + std::uint64_t(op.offset)), op.bytes, true);
            break;
        case Class::async_copy:
            if (op.bytes > 0) {
                const int bytes = op.c >= 0 ? c.get<std::int32_t>(op.c) : 16;
                if (bytes > 0) record(c, op, c.R[op.b], bytes, false);
                now_->bytes_read += std::uint64_t(bytes);
            }
            break;
        case Class::atomic: {
            const bool shared = c.kernel->entry.instructions[c.kernel->index(op)].opcode.find(".shared.") !=
                                std::string::npos;
            if (shared) break;
            record(c, op, c.R[op.a] + std::uint64_t(op.offset), op.bytes, false);
            now_->bytes_read += op.bytes;
            now_->bytes_written += op.bytes;
            break;
        }
        default:
            break;
    }
    const simt::Dim3 block = c.thread->block->index;
    if (c.thread->linear == 0 && block.x == 0 && block.y == 0 && block.z == 0) follow(c, op);
}

void Profile::record(Context& c, const Op& op, std::uint64_t address, int bytes, bool shared) {
    const simt::Dim3 block = c.thread->block->index;
    const std::uint64_t number = block.x | std::uint64_t(block.y) << 24 | std::uint64_t(block.z) << 44;
    const std::size_t index = c.kernel->index(op);
    auto& visits = visits_[{number, std::uint32_t(c.thread->linear)}];
    if (visits.empty()) visits.resize(c.kernel->ops.size());
    accesses_.push_back({number, address, std::uint32_t(index), visits[index]++,
                         std::uint16_t(c.thread->linear / simt::kWarpSize), std::uint8_t(c.thread->lane),
                         std::uint8_t(bytes), shared});
}

// The first thread of the first block stands for all.
void Profile::follow(Context& c, const Op& op) {
    Outstanding& o = outstanding_;
    if (followed_block_ != 0) {
        o = {};
        o.copies.push_back(0);
        followed_block_ = 0;
    }
    auto in_flight = [&] {
        std::uint64_t bytes = 0;
        for (const auto& [number, size] : o.loads) bytes += size;
        for (const std::uint32_t size : o.copies) bytes += size;
        return bytes;
    };
    if (op.kind == Class::move && op.d >= 0 && op.more < 0 &&
        op.b < 0) {  // the same value under another name
        const auto from = o.slots.find(op.a);
        if (from == o.slots.end())
            o.slots.erase(op.d);
        else
            o.slots[op.d] = from->second;
        return;
    }
    for (const std::int32_t slot : sources_[c.kernel->index(op)]) {
        const auto it = o.slots.find(slot);
        if (it == o.slots.end()) continue;
        const std::uint32_t number = it->second;
        if (std::any_of(o.loads.begin(), o.loads.end(), [&](const auto& l) { return l.first == number; })) {
            now_->in_flight = std::max(now_->in_flight, in_flight());
            std::erase_if(o.loads, [&](const auto& l) { return l.first <= number; });
        }
        o.slots.erase(it);
    }
    if (op.kind == Class::global_load) {
        o.loads.emplace_back(o.next, op.bytes);
        for (const std::int32_t slot : targets_of(*c.kernel, op)) o.slots[slot] = o.next;
        ++o.next;
    } else if (op.kind == Class::async_copy) {
        const std::string& opcode = c.kernel->entry.instructions[c.kernel->index(op)].opcode;
        if (op.bytes > 0) {
            o.copies.back() += op.c >= 0 ? c.get<std::uint32_t>(op.c) : 16;
        } else if (opcode == "cp.async.commit_group") {
            o.copies.push_back(0);
        } else {
            now_->in_flight = std::max(now_->in_flight, in_flight());
            while (o.copies.size() > std::size_t(op.offset) + 1) o.copies.erase(o.copies.begin());
        }
    }
}

void Profile::count_request(const Access* first, const Access* last) {
    if (!first->shared) {
        std::set<std::uint64_t> sectors;
        for (const Access* a = first; a != last; ++a)
            for (std::uint64_t s = a->address / 32; s <= (a->address + a->bytes - 1) / 32; ++s)
                sectors.insert(s);
        ++now_->requests;
        now_->sectors += sectors.size();
        return;
    }
    ++now_->shared_requests;
    const int lanes = kernel_->ops[first->op].kind == Class::ldmatrix || first->bytes == 16 ? 8
                      : first->bytes == 8                                                   ? 16
                                                                                            : 32;
    for (int group = 0; group < 32 / lanes; ++group) {
        std::array<std::set<std::uint64_t>, 32> words;
        for (const Access* a = first; a != last; ++a)
            if (a->lane / lanes == group)
                for (std::uint64_t w = a->address / 4; w <= (a->address + a->bytes - 1) / 4; ++w)
                    words[w % 32].insert(w);
        std::size_t most = 1;
        for (const auto& bank : words) most = std::max(most, bank.size());
        now_->conflicts += most - 1;
    }
}

void Profile::finish() {
    if (kernel_ == nullptr) return;
    for (std::size_t i = 0; i < kernel_->ops.size(); ++i) {
        const Op& op = kernel_->ops[i];
        const std::uint64_t n = kernel_->counts[i] - counts_before_[i];
        now_->instructions[std::size_t(op.kind)] += n;
        if (kernel_->entry.instructions[i].opcode == "bar.sync") now_->block_barriers += n;
    }
    auto key = [](const Access& a) { return std::tuple(a.block, a.warp, a.op, a.visit); };
    std::stable_sort(accesses_.begin(), accesses_.end(),
                     [&](const Access& a, const Access& b) { return key(a) < key(b); });
    for (std::size_t i = 0; i < accesses_.size();) {
        std::size_t end = i;
        while (end < accesses_.size() && key(accesses_[end]) == key(accesses_[i])) ++end;
        count_request(&accesses_[i], &accesses_[i] + (end - i));
        i = end;
    }
    accesses_.clear();
    visits_.clear();
    kernel_ = nullptr;
}

}  // namespace llmgen::ptx
