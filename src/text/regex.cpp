#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/utf8.h"
#include "text/quote.h"
#include "text/regex_syntax.h"

namespace llmgen {
namespace {

using regex_syntax::Greed;
using regex_syntax::Kind;
using regex_syntax::Node;
using regex_syntax::Tree;

constexpr std::uint32_t kMatchLimit =
    20'000'000;  // steps of one match; the reference's engine gives up at 10 million
constexpr std::size_t kMaxJitStack = 64 << 20;  // bytes
constexpr std::uint32_t kHeapLimit = 1 << 20;   // KiB, of the interpreter
constexpr std::size_t kMaxAtoms = 256;

/// Which atom each code point is: blocks of 256, shared where equal.
class AtomTable {
public:
    explicit AtomTable(const std::vector<std::uint8_t>& atoms) {
        std::map<std::string_view, std::uint16_t> seen;
        for (std::size_t b = 0; b < atoms.size(); b += 256) {
            const std::string_view block(reinterpret_cast<const char*>(&atoms[b]), 256);
            const auto [it, is_new] = seen.emplace(block, std::uint16_t(blocks_.size() / 256));
            if (is_new) blocks_.append(block);
            index_.push_back(it->second);
        }
    }
    char operator[](std::uint32_t c) const { return blocks_[std::size_t(index_[c >> 8]) << 8 | (c & 0xFF)]; }

private:
    std::vector<std::uint16_t> index_;
    std::string blocks_;
};

/// Characters that are in the same sets become one atom. Returns the atom of each code point and fills
/// `members` with the atoms of each set.
std::vector<std::uint8_t> cut_into_atoms(const Tree& tree,
                                         std::vector<std::vector<std::uint8_t>>& members,
                                         const std::string& where) {
    std::vector<std::uint32_t> edges{0};
    for (const auto& set : tree.sets) {
        for (const auto& [first, last] : set.ranges()) {
            edges.push_back(first);
            edges.push_back(last + 1);
        }
    }
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    if (edges.back() <= unicode::kMaxCodePoint) edges.push_back(unicode::kMaxCodePoint + 1);
    const std::size_t n = edges.size() - 1;
    std::vector<std::string> signature(n, std::string(tree.sets.size(), '0'));
    for (std::size_t s = 0; s < tree.sets.size(); ++s) {
        for (const auto& [first, last] : tree.sets[s].ranges()) {
            auto i = std::size_t(std::lower_bound(edges.begin(), edges.end(), first) - edges.begin());
            for (; i < n && edges[i] <= last; ++i) signature[i][s] = '1';
        }
    }
    std::map<std::string_view, std::uint8_t> atom_of;
    std::vector<std::uint8_t> atoms(unicode::kMaxCodePoint + 1);
    members.assign(tree.sets.size(), {});
    for (std::size_t i = 0; i < n; ++i) {
        auto it = atom_of.find(signature[i]);
        if (it == atom_of.end()) {
            if (atom_of.size() == kMaxAtoms)
                fail("{}: the pattern tells more than {} kinds of characters apart", where, kMaxAtoms);
            it = atom_of.emplace(signature[i], std::uint8_t(atom_of.size())).first;
            for (std::size_t s = 0; s < tree.sets.size(); ++s)
                if (signature[i][s] == '1') members[s].push_back(it->second);
        }
        std::fill(atoms.begin() + edges[i], atoms.begin() + edges[i + 1], it->second);
    }
    return atoms;
}

/// The tree as a PCRE2 pattern over atoms.
class Writer {
public:
    Writer(const Tree& tree, const std::vector<std::vector<std::uint8_t>>& members)
        : tree_(tree), members_(members) {}
    std::string write() {
        node(tree_.root);
        return std::move(out_);
    }

private:
    void set(int index) {
        const std::vector<std::uint8_t>& atoms = members_[std::size_t(index)];
        if (atoms.empty()) {
            out_ += "(?!)";
            return;
        }
        out_ += '[';
        for (std::uint8_t a : atoms) out_ += fmt::format("\\x{:02x}", a);
        out_ += ']';
    }
    void wrapped(const char* open, const Node& n) {
        out_ += open;
        for (const Node& c : n.children) node(c);
        out_ += ')';
    }
    // PCRE2 takes branches of different lengths only at the top of a look-behind.
    void behind(const char* open, const Node& n) {
        const Node& inside = n.children[0];
        if (inside.kind != Kind::kAlternate) return wrapped(open, n);
        out_ += open;
        branches(inside);
        out_ += ')';
    }
    void branches(const Node& n) {
        for (std::size_t i = 0; i < n.children.size(); ++i) {
            if (i > 0) out_ += '|';
            node(n.children[i]);
        }
    }
    void repeat(const Node& n) {
        wrapped("(?:", n);
        if (n.min == 0 && n.max == 1)
            out_ += '?';
        else if (n.max == regex_syntax::kUnbounded)
            out_ += n.min == 0 ? "*" : n.min == 1 ? "+" : fmt::format("{{{},}}", n.min);
        else
            out_ += fmt::format("{{{},{}}}", n.min, n.max);
        if (n.greed == Greed::kLazy) out_ += '?';
        if (n.greed == Greed::kPossessive) out_ += '+';
    }
    void word_edge(bool negated) {
        const auto look = [&](const char* open) {
            out_ += open;
            set(tree_.word);
            out_ += ')';
        };
        out_ += "(?:";
        look("(?<=");
        look(negated ? "(?=" : "(?!");
        out_ += '|';
        look("(?<!");
        look(negated ? "(?!" : "(?=");
        out_ += ')';
    }
    void at_line(const char* open, const char* close) {
        out_ += open;
        set(tree_.line_feed);
        out_ += close;
    }
    void node(const Node& n) {
        switch (n.kind) {
            case Kind::kEmpty:
                break;
            case Kind::kSet:
                set(n.set);
                break;
            case Kind::kConcat:
                wrapped("(?:", n);
                break;
            case Kind::kAlternate:
                out_ += "(?:";
                branches(n);
                out_ += ')';
                break;
            case Kind::kAtomic:
                wrapped("(?>", n);
                break;
            case Kind::kAhead:
                wrapped("(?=", n);
                break;
            case Kind::kNotAhead:
                wrapped("(?!", n);
                break;
            case Kind::kBehind:
                behind("(?<=", n);
                break;
            case Kind::kNotBehind:
                behind("(?<!", n);
                break;
            case Kind::kRepeat:
                repeat(n);
                break;
            case Kind::kTextStart:
                out_ += "\\A";
                break;
            case Kind::kTextEnd:
                out_ += "\\z";
                break;
            case Kind::kTextEndLine:
                at_line("(?:\\z|(?=", "\\z))");
                break;
            case Kind::kLineStart:
                at_line("(?:\\A|(?<=", ")(?!\\z))");
                break;
            case Kind::kLineEnd:
                at_line("(?:\\z|(?=", "))");
                break;
            case Kind::kWordEdge:
                word_edge(false);
                break;
            case Kind::kNotWordEdge:
                word_edge(true);
                break;
            case Kind::kSearchStart:
                out_ += "\\G";
                break;
        }
    }
    const Tree& tree_;
    const std::vector<std::vector<std::uint8_t>>& members_;
    std::string out_;
};

}  // namespace

struct Regex::Program {
    Program(std::string pattern, const std::string& where, AtomTable table)
        : source(std::move(pattern)), place(where), atoms(std::move(table)) {}
    ~Program() { pcre2_code_free(code); }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    std::string source, place;
    AtomTable atoms;
    pcre2_code* code = nullptr;
    bool jit = false;
};

Regex::Regex(std::string_view pattern, const std::string& where) {
    const Tree tree = regex_syntax::parse(pattern, where);
    std::vector<std::vector<std::uint8_t>> members;
    AtomTable atoms(cut_into_atoms(tree, members, where));
    const std::string text = Writer(tree, members).write();
    program_ = std::make_unique<Program>(std::string(pattern), where, std::move(atoms));
    int error = 0;
    PCRE2_SIZE offset = 0;
    program_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                   PCRE2_DOTALL | PCRE2_DOLLAR_ENDONLY, &error, &offset, nullptr);
    if (program_->code == nullptr) {
        PCRE2_UCHAR message[256];
        pcre2_get_error_message(error, message, sizeof message);
        fail("{}: pattern {} is not supported: {}", where, quote(pattern),
             reinterpret_cast<const char*>(message));
    }
    program_->jit = pcre2_jit_compile(program_->code, PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

struct Regex::Subject::Match {
    explicit Match(const pcre2_code* code)
        : data(pcre2_match_data_create_from_pattern(code, nullptr)),
          context(pcre2_match_context_create(nullptr)) {
        CHECK(data != nullptr && context != nullptr);
        pcre2_set_match_limit(context, kMatchLimit);
        pcre2_set_heap_limit(context, kHeapLimit);
    }
    ~Match() {
        pcre2_match_data_free(data);
        pcre2_match_context_free(context);
        if (stack != nullptr) pcre2_jit_stack_free(stack);
    }
    Match(const Match&) = delete;
    Match& operator=(const Match&) = delete;

    /// Number of a pcre2_match: > 0, PCRE2_ERROR_NOMATCH or another error.
    int run(const Program& program, std::string_view subject, std::size_t at) {
        const auto* text = reinterpret_cast<PCRE2_SPTR>(subject.data());
        if (program.jit) {
            int rc = pcre2_jit_match(program.code, text, subject.size(), at, 0, data, context);
            if (rc == PCRE2_ERROR_JIT_STACKLIMIT && stack == nullptr) {
                stack = pcre2_jit_stack_create(32 << 10, kMaxJitStack, nullptr);
                if (stack != nullptr) {
                    pcre2_jit_stack_assign(context, nullptr, stack);
                    rc = pcre2_jit_match(program.code, text, subject.size(), at, 0, data, context);
                }
            }
            if (rc != PCRE2_ERROR_JIT_STACKLIMIT) return rc;
        }
        return pcre2_match(program.code, text, subject.size(), at, PCRE2_NO_JIT, data, context);
    }

    pcre2_match_data* data;
    pcre2_match_context* context;
    pcre2_jit_stack* stack = nullptr;
};

Regex::Subject::Subject(const Regex& regex, std::string_view text)
    : regex_(regex), ascii_(true), match_(std::make_unique<Match>(regex.program_->code)) {
    const AtomTable& table = regex.program_->atoms;
    atoms_.reserve(text.size());
    std::size_t at = 0;
    for (; at < text.size() && static_cast<unsigned char>(text[at]) < 0x80; ++at)
        atoms_ += table[static_cast<unsigned char>(text[at])];
    if (at == text.size()) return;
    ascii_ = false;
    begins_.reserve(text.size() + 1);
    for (std::size_t i = 0; i < at; ++i) begins_.push_back(std::uint32_t(i));
    while (at < text.size()) {
        const utf8::Decoded d = utf8::decode(text.substr(at));
        begins_.push_back(std::uint32_t(at));
        atoms_ += table[d.code_point];
        at += std::size_t(d.length);
    }
    begins_.push_back(std::uint32_t(text.size()));
}

Regex::Subject::~Subject() = default;

std::size_t Regex::Subject::atom_index(std::uint32_t byte) const {
    if (ascii_) return byte;
    return std::size_t(std::lower_bound(begins_.begin(), begins_.end(), byte) - begins_.begin());
}

void Regex::Subject::find_all(Span span, std::vector<Span>& matches) {
    const std::size_t first = atom_index(span.begin), last = atom_index(span.end);
    const std::string_view subject = std::string_view(atoms_).substr(first, last - first);
    const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(match_->data);
    std::size_t previous_end = subject.size() + 1;  // of the last match
    for (std::size_t at = 0; at <= subject.size() && !subject.empty();) {
        const int rc = match_->run(*regex_.program_, subject, at);
        if (rc == PCRE2_ERROR_NOMATCH) return;
        if (rc < 0)
            fail("{}: pattern {} needs too many steps on this text", regex_.program_->place,
                 quote(regex_.program_->source));
        const std::size_t begin = ends[0], end = ends[1];
        if (begin == end && end == previous_end) {
            ++at;
            continue;
        }
        at = previous_end = end;
        const auto byte = [&](std::size_t i) {
            return ascii_ ? std::uint32_t(first + i) : begins_[first + i];
        };
        matches.push_back({byte(begin), byte(end)});
    }
}

}  // namespace llmgen
