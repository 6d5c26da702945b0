// From the parsed text to operands that are indices. The letters of Rule::shape, one an operand:
//
//   d destination   a b c sources, in Op's fields    p destination with an optional |predicate (into b's
//   place in more) 2 4 vector of so many into more                  m [address]: base in a, offset     n
//   second [address]: base in b i immediate into offset   s the number 16   z the number 0   l label   e one
//   more source, into more
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ptx/kernel.h"

namespace llmgen::ptx {

const char* name_of(Class kind) {
    static const std::array<const char*, kClasses> names = {
        "integer",    "f32",         "f64",          "convert",     "move",         "predicate", "control",
        "param",      "global_load", "global_store", "shared_load", "shared_store", "local",     "atomic",
        "async_copy", "shuffle",     "barrier",      "mma",         "ldmatrix",     "other"};
    return names[std::size_t(kind)];
}

class Decoder {
public:
    explicit Decoder(Kernel& kernel) : k_(kernel) { k_.special.fill(-1); }

    void run() {
        lay_out();
        for (const Instruction& instruction : k_.entry.instructions) {
            current_ = &instruction;
            k_.ops.push_back(decode(instruction));
        }
        if (k_.ops.empty() || k_.ops.back().flow == Flow::next)
            throw ParseError(fmt::format("{}: {} runs past its end", k_.file->name(), k_.entry.name));
        k_.counts.resize(k_.ops.size());
    }

private:
    [[noreturn]] void error(const std::string& what) const {
        throw ParseError(fmt::format("{}:{}: {} in \"{}\"", k_.file->name(), current_->line, what,
                                     k_.file->line(current_->line)));
    }

    void lay_out() {
        for (const Entry::Parameter& p : k_.entry.parameters) {
            const std::size_t alignment = p.bytes >= 8 ? 8 : p.bytes;
            k_.parameter_bytes = (k_.parameter_bytes + alignment - 1) / alignment * alignment;
            k_.parameters.emplace_back(k_.parameter_bytes, p.bytes);
            parameter_[p.name] = k_.parameter_bytes;
            k_.parameter_bytes += p.bytes;
        }
        for (const Variable& v : k_.entry.variables) {
            if (v.space != "local") continue;
            k_.local_bytes = (k_.local_bytes + v.alignment - 1) / v.alignment * v.alignment;
            local_[v.name] = k_.local_bytes;
            k_.local_bytes += v.bytes;
        }
    }

    std::int32_t new_slot(std::uint64_t value, bool undefined) {
        k_.image.push_back(value);
        k_.undefined.push_back(undefined ? 1 : 0);
        return std::int32_t(k_.image.size() - 1);
    }

    std::int32_t constant(std::uint64_t bits) {
        auto [it, added] = constants_.try_emplace(bits, 0);
        if (added) it->second = new_slot(bits, false);
        return it->second;
    }

    bool is_register(const std::string& name) const {
        if (k_.entry.registers.contains(name)) return true;
        const std::size_t digits = name.find_last_not_of("0123456789") + 1;
        const auto range = k_.entry.ranges.find(name.substr(0, digits));
        return digits < name.size() && range != k_.entry.ranges.end() &&
               std::stoull(name.substr(digits)) < range->second;
    }

    std::int32_t special(const std::string& name) {
        static const std::map<std::string, int> known = {
            {"%tid.x", 0},     {"%tid.y", 1},     {"%tid.z", 2},   {"%ntid.x", 3},  {"%ntid.y", 4},
            {"%ntid.z", 5},    {"%ctaid.x", 6},   {"%ctaid.y", 7}, {"%ctaid.z", 8}, {"%nctaid.x", 9},
            {"%nctaid.y", 10}, {"%nctaid.z", 11}, {"%laneid", 12}};
        const auto it = known.find(name);
        if (it == known.end()) error(fmt::format("unknown register {}", name));
        std::int32_t& slot = k_.special[std::size_t(it->second)];
        if (slot < 0) slot = new_slot(0, false);
        return slot;
    }

    std::int32_t symbol(const std::string& name, std::int64_t offset) {
        for (const auto* space : {&local_, &parameter_})
            if (const auto known = space->find(name); known != space->end())
                return constant(std::uint64_t(std::int64_t(known->second) + offset));
        auto find = [&](const std::vector<Variable>& variables) {
            return std::find_if(variables.begin(), variables.end(),
                                [&](const Variable& v) { return v.name == name; });
        };
        auto known = find(k_.shared);
        if (known == k_.shared.end()) {
            auto it = find(k_.entry.variables);
            if (it == k_.entry.variables.end()) {
                it = find(k_.file->variables());
                if (it == k_.file->variables().end()) error(fmt::format("unknown name {}", name));
            }
            if (it->space != "shared")  // constant data of the module: read where the file holds it
                return constant(std::uint64_t(reinterpret_cast<std::uintptr_t>(it->value.data())) +
                                std::uint64_t(offset));
            k_.shared.push_back(*it);
            known = k_.shared.end() - 1;
        }
        const std::int32_t slot = new_slot(0, false);
        k_.symbols.push_back({slot, offset, std::size_t(known - k_.shared.begin())});
        return slot;
    }

    std::int32_t slot(const Operand& o) {
        switch (o.kind) {
            case Operand::Kind::integer:
            case Operand::Kind::f32:
            case Operand::Kind::f64:
                return constant(std::uint64_t(o.value));
            case Operand::Kind::name:
                break;
            default:
                error("an operand of another kind");
        }
        if (!o.second.empty()) error("a second destination");
        if (const auto it = slots_.find(o.name); it != slots_.end()) return it->second;
        if (o.name == "_") error("a sink");
        if (is_register(o.name)) return slots_[o.name] = new_slot(0xfffbfffbfffbfffbull, true);
        if (o.name.front() == '%') return special(o.name);
        return symbol(o.name, 0);
    }

    std::int32_t destination(const Operand& o) {
        if (o.kind != Operand::Kind::name || !is_register(o.name)) error("a destination that is no register");
        return slot(o);
    }

    void address(const Operand& o, std::int32_t& base, std::int64_t& offset) {
        if (o.kind != Operand::Kind::address) error("no address");
        if (o.name.empty()) {
            base = constant(0);
        } else if (is_register(o.name)) {
            Operand name;
            name.name = o.name;
            base = slot(name);
        } else {
            base = symbol(o.name, 0);
        }
        offset = o.value;
    }

    Op decode(const Instruction& in) {
        Op op;
        if (!in.guard.empty()) {
            Operand guard;
            guard.name = in.guard;
            op.guard = destination(guard);
            op.negated = in.negated;
        }
        std::string opcode = in.opcode;  // moves between a register and its parts are rules of their own
        if (opcode.starts_with("mov.") && in.operands.size() == 2)
            for (const auto& [o, name] : {std::pair{&in.operands[0], "unpack"}, {&in.operands[1], "pack"}})
                if (o->kind == Operand::Kind::vector) opcode += fmt::format("/{}{}", name, o->members.size());
        const Rule* rule = find_rule(fmt::format("{}/{}", opcode, in.operands.size()));
        if (rule == nullptr) rule = find_rule(opcode);
        if (rule == nullptr) error(fmt::format("unknown opcode {}", in.opcode));
        const std::string shape = rule->shape;
        if (shape.size() != in.operands.size())
            error(fmt::format("{} operands where {} has {}", in.operands.size(), in.opcode, shape.size()));
        op.run = rule->run;
        op.kind = rule->kind;
        k_.reads_only = k_.reads_only || opcode.starts_with("ld.global.nc");
        k_.meets = k_.meets || (op.kind == Class::atomic && opcode.find(".global.") != std::string::npos);
        op.bytes = std::uint8_t(rule->bytes);
        const bool vectors = shape.find_first_of("24pe") != std::string::npos;
        if (vectors) op.more = std::int32_t(k_.more.size());
        for (std::size_t i = 0; i < shape.size(); ++i) operand(op, shape[i], in.operands[i]);
        if (in.opcode == "bra" || in.opcode == "bra.uni") op.flow = Flow::branch;
        if (in.opcode == "ret" || in.opcode == "exit") op.flow = Flow::leave;
        return op;
    }

    void operand(Op& op, char letter, const Operand& o) {
        switch (letter) {
            case 'd':
                op.d = destination(o);
                return;
            case 'a':
                op.a = slot(o);
                return;
            case 'b':
                op.b = slot(o);
                return;
            case 'c':
                op.c = slot(o);
                return;
            case 'p': {
                Operand first = o, second;
                first.second.clear();
                op.d = destination(first);
                second.name = o.second;
                k_.more.push_back(o.second.empty() ? -1 : destination(second));
                return;
            }
            case 'e':  // one more source
                k_.more.push_back(slot(o));
                return;
            case '2':
            case '4':
                if (o.kind != Operand::Kind::vector || int(o.members.size()) != letter - '0')
                    error(fmt::format("no vector of {}", letter));
                for (const Operand& member : o.members) {
                    // A name that is only ever a sink, as nvcc's %temp, is a register like any other.
                    const std::int32_t index = member.name == "_" ? new_slot(0, true) : slot(member);
                    k_.more.push_back(index);
                }
                return;
            case 'm':
                return address(o, op.a, op.offset);
            case 'n': {
                std::int64_t offset = 0;
                address(o, op.b, offset);
                if (offset != 0) error("a second address with an offset");
                return;
            }
            case 'i':
                if (o.kind != Operand::Kind::integer) error("no number");
                op.offset = o.value;
                return;
            case 's':
            case 'z':
                if (o.kind != Operand::Kind::integer || o.value != (letter == 's' ? 16 : 0))
                    error("another number");
                return;
            case 'l': {
                const auto it = k_.entry.labels.find(o.name);
                if (it == k_.entry.labels.end()) error(fmt::format("unknown label {}", o.name));
                op.offset = std::int64_t(it->second);
                return;
            }
        }
        error("a rule with a wrong letter");
    }

    Kernel& k_;
    const Instruction* current_ = nullptr;
    std::map<std::string, std::size_t> parameter_, local_;
    std::unordered_map<std::string, std::int32_t> slots_;
    std::unordered_map<std::uint64_t, std::int32_t> constants_;
};

Kernel::Kernel(std::shared_ptr<const File> from, const std::string& name) : file(std::move(from)) {
    entry = file->parse(name);
    Decoder(*this).run();
}

std::string Kernel::place(const Op& op) const {
    const Instruction& in = entry.instructions[index(op)];
    return fmt::format("{}:{}: {} ({}:{})", file->name(), in.line, file->line(in.line), file->source(in.file),
                       in.source_line);
}

}  // namespace llmgen::ptx
