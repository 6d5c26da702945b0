#include "ptx/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>

namespace llmgen::ptx {

namespace {

/// One statement's characters.
class Scanner {
public:
    Scanner(std::string_view text, const std::string& file, int line)
        : text_(text), file_(&file), line_(line) {}

    [[noreturn]] void error(const std::string& what) const {
        throw ParseError(fmt::format("{}:{}: {} in \"{}\"", *file_, line_, what, text_));
    }
    bool done() {
        skip();
        return at_ == text_.size();
    }
    char peek() {
        skip();
        return at_ < text_.size() ? text_[at_] : '\0';
    }
    bool take(char c) {
        if (peek() != c) return false;
        ++at_;
        return true;
    }
    void expect(char c) {
        if (!take(c)) error(fmt::format("no '{}'", c));
    }
    /// Letters, digits and what else names and opcodes have.
    std::string word() {
        skip();
        const std::size_t first = at_;
        while (at_ < text_.size() &&
               (std::isalnum(static_cast<unsigned char>(text_[at_])) || part_of_name(text_[at_])))
            ++at_;
        if (first == at_) error("nothing where a name should be");
        return std::string(text_.substr(first, at_ - first));
    }
    std::int64_t integer() {
        const bool negative = take('-');
        take('+');
        const std::string digits = word();
        std::uint64_t value = 0;
        const bool hex = digits.starts_with("0x") || digits.starts_with("0X");
        const char* first = digits.data() + (hex ? 2 : 0);
        const char* last = digits.data() + digits.size() - (digits.back() == 'U' ? 1 : 0);
        const auto [end, status] = std::from_chars(first, last, value, hex ? 16 : 10);
        if (status != std::errc() || end != last) error(fmt::format("\"{}\" is no number", digits));
        return negative ? -std::int64_t(value) : std::int64_t(value);
    }

private:
    static bool part_of_name(char c) { return c == '_' || c == '$' || c == '%' || c == '.' || c == ':'; }
    void skip() {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    }
    std::string_view text_;
    const std::string* file_;
    int line_;
    std::size_t at_ = 0;
};

std::string_view trimmed(std::string_view s) {
    while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
    while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
    return s;
}

std::size_t size_of_type(Scanner& scan, const std::string& type) {
    static const std::map<std::string, std::size_t> sizes = {
        {".b8", 1},  {".u8", 1},  {".s8", 1},  {".b16", 2}, {".u16", 2}, {".s16", 2}, {".b32", 4},
        {".u32", 4}, {".s32", 4}, {".f32", 4}, {".b64", 8}, {".u64", 8}, {".s64", 8}, {".f64", 8}};
    const auto it = sizes.find(type);
    if (it == sizes.end()) scan.error(fmt::format("unknown type {}", type));
    return it->second;
}

char class_of_type(Scanner& scan, const std::string& type) {
    if (type == ".pred") return 'p';
    switch (size_of_type(scan, type)) {
        case 2:
            return 'h';
        case 4:
            return 'w';
        case 8:
            return 'd';
    }
    scan.error(fmt::format("registers of type {}", type));
}

/// "[.extern|.visible] .space [.align n] .type name[size] [= {…}];"
Variable variable(Scanner& scan) {
    Variable result;
    std::size_t element = 1;
    for (;;) {
        const std::string word = scan.word();
        if (word == ".extern") {
            result.dynamic = true;
        } else if (word == ".visible" || word == ".weak") {
        } else if (word == ".shared" || word == ".local" || word == ".global" || word == ".const") {
            result.space = word.substr(1);
        } else if (word == ".align") {
            result.alignment = std::size_t(scan.integer());
        } else if (word.front() == '.') {
            element = size_of_type(scan, word);
        } else {
            result.name = plain_name(word);
            break;
        }
    }
    result.bytes = element;
    result.alignment = std::max(result.alignment, element);
    while (scan.take('[')) {
        if (scan.take(']')) {
            result.bytes = 0;
            break;
        }
        result.bytes *= std::size_t(scan.integer());
        scan.expect(']');
    }
    if (scan.take('=')) {
        scan.expect('{');
        do {
            const std::int64_t value = scan.integer();
            for (std::size_t i = 0; i < element; ++i) result.value.push_back(char(value >> (8 * i)));
        } while (scan.take(','));
        scan.expect('}');
        result.value.resize(result.bytes);
    } else if (result.space == "global" || result.space == "const") {
        result.value.resize(result.bytes);
    }
    if (result.dynamic != (result.bytes == 0)) scan.error("a variable of this size");
    return result;
}

Operand operand(Scanner& scan) {
    Operand result;
    if (scan.take('[')) {
        result.kind = Operand::Kind::address;
        const char c = scan.peek();
        if (std::isdigit(static_cast<unsigned char>(c))) {
            result.value = scan.integer();
        } else {
            result.name = plain_name(scan.word());
            if (scan.take('+')) result.value = scan.integer();
        }
        scan.expect(']');
        return result;
    }
    if (scan.take('{')) {
        result.kind = Operand::Kind::vector;
        do result.members.push_back(operand(scan));
        while (scan.take(','));
        scan.expect('}');
        return result;
    }
    const char c = scan.peek();
    if (c == '-' || std::isdigit(static_cast<unsigned char>(c))) {
        if (c == '0') {
            Scanner ahead = scan;
            const std::string word = ahead.word();
            if (word.size() > 2 && (word[1] == 'f' || word[1] == 'd')) {
                std::uint64_t bits = 0;
                std::from_chars(word.data() + 2, word.data() + word.size(), bits, 16);
                if (word.size() != (word[1] == 'f' ? 10u : 18u)) scan.error("a constant of this length");
                scan = ahead;
                result.kind = word[1] == 'f' ? Operand::Kind::f32 : Operand::Kind::f64;
                result.value = std::int64_t(bits);
                return result;
            }
        }
        result.kind = Operand::Kind::integer;
        result.value = scan.integer();
        return result;
    }
    result.name = plain_name(scan.word());
    if (scan.take('|')) result.second = scan.word();
    return result;
}

Instruction instruction(Scanner& scan, int line) {
    Instruction result;
    result.line = line;
    if (scan.take('@')) {
        result.negated = scan.take('!');
        result.guard = scan.word();
    }
    result.opcode = scan.word();
    if (!scan.done()) do
            result.operands.push_back(operand(scan));
        while (scan.take(','));
    if (!scan.done()) scan.error("more than one understands");
    return result;
}

}  // namespace

std::string plain_name(std::string_view mangled) {
    constexpr std::string_view kMark = "_GLOBAL__N_";
    std::string result;
    for (;;) {
        const std::size_t mark = mangled.find(kMark);
        if (mark == std::string_view::npos || mark == 0) return result + std::string(mangled);
        std::size_t digits = mark;
        while (digits > 0 && std::isdigit(static_cast<unsigned char>(mangled[digits - 1]))) --digits;
        std::size_t length = 0;
        std::from_chars(mangled.data() + digits, mangled.data() + mark, length);
        // The digits before the length may belong to it or not: "43_GLOBAL" after "kernels" is unambiguous.
        result += std::string(mangled.substr(0, digits)) + "12_GLOBAL__N_1";
        mangled.remove_prefix(std::min(mangled.size(), mark + length));
    }
}

File::File(std::string name, std::string text) : name_(std::move(name)), text_(std::move(text)) {
    for (std::size_t at = 0; at < text_.size();) {
        const std::size_t end = std::min(text_.find('\n', at), text_.size());
        lines_.push_back(std::string_view(text_).substr(at, end - at));
        at = end + 1;
    }
    for (std::size_t i = 0; i < lines_.size(); ++i) {
        std::string_view line = trimmed(lines_[i]);
        const int number = int(i) + 1;
        if (line.empty() || line.starts_with("//")) continue;
        if (line.find(".entry ") != std::string_view::npos) {
            std::string_view rest = line.substr(line.find(".entry ") + 7);
            const std::string entry = plain_name(trimmed(rest.substr(0, rest.find('('))));
            std::size_t last = i;
            while (last < lines_.size() && lines_[last] != "}") ++last;  // inner braces are not in column 0
            if (last == lines_.size())
                throw ParseError(fmt::format("{}:{}: an entry without an end", name_, number));
            spans_[entry] = {number, int(last) + 1};
            i = last;
        } else if (line.starts_with(".file")) {
            Scanner scan(line.substr(5), name_, number);
            const int index = int(scan.integer());
            const std::size_t slash = line.rfind('/'), quote = line.rfind('"');
            const std::size_t first = slash == std::string_view::npos ? line.find('"') : slash;
            sources_[index] = std::string(line.substr(first + 1, quote - first - 1));
        } else if (line.starts_with(".section")) {
            break;  // debug information ends the file
        } else if (line.starts_with(".version") || line.starts_with(".target") ||
                   line.starts_with(".address_size")) {
        } else if (line.back() == ';') {
            Scanner scan(line.substr(0, line.size() - 1), name_, number);
            variables_.push_back(variable(scan));
        } else {
            throw ParseError(fmt::format("{}:{}: not understood: {}", name_, number, line));
        }
    }
}

std::vector<std::string> File::entries() const {
    std::vector<std::string> names;
    for (const auto& [name, span] : spans_) names.push_back(name);
    return names;
}

std::string File::source(int file) const {
    const auto it = sources_.find(file);
    return it == sources_.end() ? "?" : it->second;
}

std::string_view File::line(int number) const {
    return number >= 1 && std::size_t(number) <= lines_.size() ? trimmed(lines_[std::size_t(number) - 1])
                                                               : "";
}

Entry File::parse(const std::string& entry) const {
    const Span span = spans_.at(entry);
    Entry result;
    result.name = entry;
    int file = 0, source_line = 0, number = span.first;
    // Head: parameters, one a line, then directives up to "{".
    for (++number; number <= span.last; ++number) {
        std::string_view line = this->line(number);
        if (line == "{") break;
        if (line.empty() || line == ")" || line == "(" || line.starts_with(".maxntid") ||
            line.starts_with(".minnctapersm") || line.starts_with(".reqntid") || line.starts_with("//"))
            continue;
        if (line.back() == ',') line.remove_suffix(1);
        Scanner scan(line, name_, number);
        if (scan.word() != ".param") scan.error("no parameter");
        std::size_t bytes = 0;
        for (;;) {
            const std::string word = scan.word();
            if (word == ".align") {
                scan.integer();
            } else if (word.front() == '.') {
                bytes = size_of_type(scan, word);
            } else {
                result.parameters.push_back({plain_name(word), bytes});
                break;
            }
        }
        if (scan.take('[')) result.parameters.back().bytes *= std::size_t(scan.integer());
    }
    // Inline assembly has blocks of its own: {…} with registers of its own; their names are made unique.
    std::vector<std::string> scopes;
    int n_scopes = 0;
    for (++number; number < span.last; ++number) {
        std::string_view line = this->line(number);
        if (const std::size_t comment = line.find("//"); comment != std::string_view::npos)
            line = trimmed(line.substr(0, comment));
        if (line.starts_with(".loc") && !line.starts_with(".local")) {
            Scanner scan(line.substr(4), name_, number);
            file = int(scan.integer());
            source_line = int(scan.integer());
            continue;
        }
        while (!line.empty()) {
            if (line.front() == '{') {
                scopes.push_back(fmt::format("#{}", ++n_scopes));
                line = trimmed(line.substr(1));
                continue;
            }
            if (line.front() == '}') {
                if (scopes.empty()) throw ParseError(fmt::format("{}:{}: a '}}' too many", name_, number));
                scopes.pop_back();
                line = trimmed(line.substr(1));
                continue;
            }
            if (line.back() == ':' && line.find(' ') == std::string_view::npos) {
                result.labels[std::string(line.substr(0, line.size() - 1))] = result.instructions.size();
                break;
            }
            const std::size_t end = line.find(';');
            if (end == std::string_view::npos)
                throw ParseError(fmt::format("{}:{}: no ';' in {}", name_, number, line));
            const std::string_view statement = trimmed(line.substr(0, end));
            line = trimmed(line.substr(end + 1));
            Scanner scan(statement, name_, number);
            if (statement.starts_with(".reg")) {
                scan.word();
                const char type = class_of_type(scan, scan.word());
                do {
                    std::string name = scan.word();
                    if (scan.take('<')) {
                        result.ranges[name] = std::size_t(scan.integer());
                        result.range_class[name] = type;
                        scan.expect('>');
                    } else {
                        if (!scopes.empty()) name += scopes.back();
                        result.registers[name] = type;
                    }
                } while (scan.take(','));
            } else if (statement.starts_with(".pragma")) {
            } else if (statement.starts_with(".shared") || statement.starts_with(".local")) {
                result.variables.push_back(variable(scan));
            } else if (statement.front() == '.') {
                scan.error("unknown directive");
            } else {
                Instruction parsed = instruction(scan, number);
                parsed.file = file;
                parsed.source_line = source_line;
                if (!scopes.empty()) {
                    auto rename = [&](std::string& name) {
                        if (result.registers.contains(name + scopes.back())) name += scopes.back();
                    };
                    rename(parsed.guard);
                    for (Operand& o : parsed.operands) {
                        rename(o.name);
                        rename(o.second);
                        for (Operand& member : o.members) rename(member.name);
                    }
                }
                result.instructions.push_back(std::move(parsed));
            }
        }
    }
    return result;
}

}  // namespace llmgen::ptx
