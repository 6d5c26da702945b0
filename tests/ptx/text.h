// The text of `nvcc -ptx`, parsed: which entries a file has, and one entry's instructions.
//
// A file is only indexed when it is opened (gemv's have 60,000 lines); an entry is parsed when it is asked
// for. What the grammar here does not know is a ParseError with file and line.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace llmgen::ptx {

struct ParseError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Operand {
    enum class Kind : std::uint8_t { name, integer, f32, f64, address, vector };
    Kind kind = Kind::name;
    std::string name;              // register, special register, label or symbol; of an address, its base
    std::int64_t value = 0;        // integer, bits of an f32 or f64; of an address, its offset
    std::string second;            // d|p: the predicate
    std::vector<Operand> members;  // of a vector
};

struct Instruction {
    int line = 0;
    int file = 0, source_line = 0;  // of the source, from .loc
    std::string guard;              // register of "@p", empty for none
    bool negated = false;
    std::string opcode;  // with all its modifiers
    std::vector<Operand> operands;
};

/// A variable of a state space: shared, local, or constant data of the module.
struct Variable {
    std::string name;
    std::string space;
    std::size_t bytes = 0, alignment = 1;
    bool dynamic = false;     // extern, without a size
    std::vector<char> value;  // of module data
};

struct Entry {
    std::string name;  // mangled, its anonymous namespace as g++ spells it
    struct Parameter {
        std::string name;
        std::size_t bytes;
    };
    std::vector<Parameter> parameters;
    std::vector<Variable> variables;            // the entry's own
    std::map<std::string, char> registers;      // name to class: p, h(alf), w(ord), d(ouble word)
    std::map<std::string, std::size_t> ranges;  // prefix of "%f<12>" to its count
    std::map<std::string, char> range_class;
    std::map<std::string, std::size_t> labels;  // to the index of the instruction after it
    std::vector<Instruction> instructions;
};

class File {
public:
    /// `name` is what messages call it.
    File(std::string name, std::string text);
    const std::string& name() const { return name_; }
    /// Names of all entries, as Entry::name has them.
    std::vector<std::string> entries() const;
    bool has(const std::string& entry) const { return spans_.contains(entry); }
    Entry parse(const std::string& entry) const;
    const std::vector<Variable>& variables() const { return variables_; }
    /// The base name of a source file that .loc counts.
    std::string source(int file) const;
    /// One line of the text, from 1.
    std::string_view line(int number) const;
    std::size_t line_count() const { return lines_.size(); }

private:
    struct Span {
        int first, last;  // lines
    };
    std::string name_, text_;
    std::vector<std::string_view> lines_;
    std::map<std::string, Span> spans_;
    std::map<int, std::string> sources_;
    std::vector<Variable> variables_;
};

/// nvcc names an anonymous namespace after the file and a hash of it, g++ calls all of them _GLOBAL__N_1.
std::string plain_name(std::string_view mangled);

}  // namespace llmgen::ptx
