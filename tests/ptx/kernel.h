// An entry decoded for execution, and the state of the threads that execute it.
//
//   registers   one 64-bit slot for each register, immediate, special register and symbol, so that every
//   operand is an
//               index; beside each a byte that says "not defined", carried along by arithmetic and reported
//               where it would decide something: a branch, an address, a store to global memory, a matrix
//               product
//   addresses   global: the host's; shared: offset in the block's window; local: offset in the thread's;
//   generic:
//               kSharedWindow and kLocalWindow above the offset, global unchanged
//
// An opcode is looked up as a whole, modifiers included: what isn't in the table is a ParseError, never
// skipped.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ptx/text.h"
#include "simt/machine.h"

namespace llmgen::ptx {

inline constexpr std::uint64_t kSharedWindow = 1ull << 56, kLocalWindow = 1ull << 57;

struct Context;
struct Op;
using Execute = void (*)(Context&, const Op&);

enum class Flow : std::uint8_t { next, branch, leave };

/// What an instruction is counted as in the profile.
enum class Class : std::uint8_t {
    integer,
    f32,
    f64,
    convert,
    move,
    predicate,
    control,
    param,
    global_load,
    global_store,
    shared_load,
    shared_store,
    local,
    atomic,
    async_copy,
    shuffle,
    barrier,
    mma,
    ldmatrix,
    other,
};
inline constexpr std::size_t kClasses = std::size_t(Class::other) + 1;
const char* name_of(Class);

struct Op {
    Execute run = nullptr;
    std::int32_t guard = -1;
    bool negated = false;
    Flow flow = Flow::next;
    Class kind = Class::other;
    std::uint8_t bytes = 0;  // of a memory access, all members together
    std::int32_t d = -1, a = -1, b = -1, c = -1;
    std::int32_t more = -1;   // in Kernel::more: members of vectors, in the order of the operands
    std::int64_t offset = 0;  // of an address; target of a branch; count of a wait
};

class Kernel {
public:
    Kernel(std::shared_ptr<const File> file, const std::string& entry);

    std::shared_ptr<const File> file;
    Entry entry;
    std::vector<Op> ops;
    std::vector<std::int32_t> more;
    std::vector<std::uint64_t> counts;  // executions by op
    std::vector<std::uint64_t> image;   // initial registers
    std::vector<std::uint8_t> undefined;
    struct Symbol {
        std::int32_t slot;
        std::int64_t offset;
        std::size_t variable;  // in shared
    };
    std::vector<Variable> shared;  // that the entry names; the dynamic one among them
    std::vector<Symbol> symbols;   // slots that hold a shared address
    std::vector<std::pair<std::size_t, std::size_t>> parameters;  // offset and size in the parameter space
    std::size_t parameter_bytes = 0, local_bytes = 0;
    bool reads_only = false;  // has loads that say their memory never changes
    bool meets = false;       // has atomics on global memory, by which blocks meet
    std::array<std::int32_t, 13>
        special;  // slots of tid, ntid, ctaid, nctaid (x y z each) and laneid; -1: not used

    std::size_t index(const Op& op) const { return std::size_t(&op - ops.data()); }
    /// "gemv.ptx:120: ld.global… (gemv.cuh:93)"
    std::string place(const Op& op) const;
    simt::Site site(const Op& op) const { return {file->name().c_str(), entry.instructions[index(op)].line}; }

private:
    friend class Decoder;
};

/// How an opcode's operands are laid out, and what runs it.
struct Rule {
    Execute run = nullptr;
    Class kind = Class::other;
    const char* shape = "";  // one letter an operand, see decode.cpp
    int bytes = 0;
};
/// The rule of a whole opcode, or null.
const Rule* find_rule(const std::string& opcode);
/// Every opcode there is a rule for.
std::vector<std::string> all_opcodes();

}  // namespace llmgen::ptx
