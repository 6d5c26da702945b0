#include "text/unicode.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <unordered_map>

#include "text/unicode_data.inc"

namespace llmgen::unicode {
namespace {

enum Category : unsigned {
    Cn,
    Cc,
    Cf,
    Cs,
    Co,
    Lu,
    Ll,
    Lt,
    Lm,
    Lo,
    Mn,
    Mc,
    Me,
    Nd,
    Nl,
    No,
    Pc,
    Pd,
    Ps,
    Pe,
    Pi,
    Pf,
    Po,
    Sm,
    Sc,
    Sk,
    So,
    Zs,
    Zl,
    Zp
};

template <std::size_t N>
CodeSet from_table(const std::uint32_t (&table)[N]) {
    std::vector<CodeSet::Range> ranges;
    for (std::size_t i = 0; i + 1 < N; i += 2)
        if (table[i] <= table[i + 1]) ranges.emplace_back(table[i], table[i + 1]);
    return CodeSet(std::move(ranges));
}

/// Ranges of a packed run table whose value satisfies `wanted`.
template <std::size_t N, typename F>
CodeSet from_runs(const std::uint32_t (&runs)[N], int shift, F wanted) {
    std::vector<CodeSet::Range> ranges;
    for (std::size_t i = 0; i < N; ++i) {
        const std::uint32_t last = i + 1 < N ? (runs[i + 1] >> shift) - 1 : kMaxCodePoint;
        if (wanted(runs[i] & ((1U << shift) - 1))) ranges.emplace_back(runs[i] >> shift, last);
    }
    return CodeSet(std::move(ranges));
}

CodeSet categories(std::uint32_t mask) {
    return from_runs(kCategoryRuns, 5, [&](std::uint32_t v) { return (mask >> v & 1U) != 0; });
}

std::uint32_t category_mask(std::string_view name) {
    std::uint32_t mask = 0;
    for (unsigned i = 0; i < std::size(kCategoryNames); ++i) {
        const char* full = kCategoryNames[i];
        const auto same = [](char a, char b) { return (a | 0x20) == (b | 0x20); };
        if (name.size() == 1 ? same(name[0], full[0])
                             : name.size() == 2 && same(name[0], full[0]) && same(name[1], full[1]))
            mask |= 1U << i;
    }
    if (name == "lc") mask = 1U << Lu | 1U << Ll | 1U << Lt;
    return mask;
}

struct LongName {
    const char *name, *category;
};
constexpr LongName kLongNames[] = {
    {"other", "c"},
    {"control", "cc"},
    {"format", "cf"},
    {"unassigned", "cn"},
    {"privateuse", "co"},
    {"surrogate", "cs"},
    {"letter", "l"},
    {"casedletter", "lc"},
    {"lowercaseletter", "ll"},
    {"modifierletter", "lm"},
    {"otherletter", "lo"},
    {"titlecaseletter", "lt"},
    {"uppercaseletter", "lu"},
    {"mark", "m"},
    {"combiningmark", "m"},
    {"spacingmark", "mc"},
    {"enclosingmark", "me"},
    {"nonspacingmark", "mn"},
    {"number", "n"},
    {"decimalnumber", "nd"},
    {"letternumber", "nl"},
    {"othernumber", "no"},
    {"punctuation", "p"},
    {"connectorpunctuation", "pc"},
    {"dashpunctuation", "pd"},
    {"closepunctuation", "pe"},
    {"finalpunctuation", "pf"},
    {"initialpunctuation", "pi"},
    {"otherpunctuation", "po"},
    {"openpunctuation", "ps"},
    {"symbol", "s"},
    {"currencysymbol", "sc"},
    {"modifiersymbol", "sk"},
    {"mathsymbol", "sm"},
    {"othersymbol", "so"},
    {"separator", "z"},
    {"lineseparator", "zl"},
    {"paragraphseparator", "zp"},
    {"spaceseparator", "zs"},
};

std::string plain_name(std::string_view name) {
    std::string out;
    for (char c : name)
        if (c != ' ' && c != '_' && c != '-') out += char(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return out;
}

const CodeSet& alphabetic() {
    static const CodeSet set = categories(category_mask("l") | 1U << Nl) | from_table(kOtherAlphabetic);
    return set;
}
const CodeSet& posix_word() {
    static const CodeSet set = alphabetic() | categories(category_mask("m") | 1U << Nd | 1U << Pc);
    return set;
}

std::optional<CodeSet> binary_property(const std::string& name) {
    if (name == "alphabetic" || name == "alpha") return alphabetic();
    if (name == "uppercase" || name == "upper") return categories(1U << Lu) | from_table(kOtherUppercase);
    if (name == "lowercase" || name == "lower") return categories(1U << Ll) | from_table(kOtherLowercase);
    if (name == "whitespace" || name == "space") return from_table(kSpace);
    if (name == "emoji") return from_table(kEmoji);
    if (name == "emojipresentation") return from_table(kEmojiPresentation);
    if (name == "extendedpictographic") return from_table(kExtendedPictographic);
    if (name == "ideographic") return from_table(kIdeographic);
    if (name == "any") return CodeSet::of(0, kMaxCodePoint);
    if (name == "assigned") return ~categories(1U << Cn);
    if (name == "ascii") return CodeSet::of(0, 0x7F);
    return std::nullopt;
}

std::uint16_t flags_of_category(unsigned category) {
    std::uint16_t f = std::uint16_t(category);
    if (category >= Lu && category <= Lo) f |= kIsLetter;
    if (category >= Nd && category <= No) f |= kIsNumber | kIsNumeric;
    if (category >= Mn && category <= Me) f |= kIsMark;
    if (category == Mn) f |= kIsAccent;
    if (category == Lu || category == Lt || category == Lm || category == Lo || (f & kIsMark)) f |= kIsUpper;
    if (category == Ll || category == Lm || category == Lo || (f & kIsMark)) f |= kIsLower;
    return f;
}

}  // namespace

CodeSet::CodeSet(std::vector<Range> ranges) {
    std::sort(ranges.begin(), ranges.end());
    for (const Range& r : ranges) {
        if (!ranges_.empty() && r.first <= ranges_.back().second + 1)
            ranges_.back().second = std::max(ranges_.back().second, r.second);
        else
            ranges_.push_back(r);
    }
}

bool CodeSet::contains(std::uint32_t c) const {
    const auto it = std::upper_bound(ranges_.begin(), ranges_.end(), c,
                                     [](std::uint32_t v, const Range& r) { return v < r.first; });
    return it != ranges_.begin() && std::prev(it)->second >= c;
}

CodeSet CodeSet::operator|(const CodeSet& other) const {
    std::vector<Range> all = ranges_;
    all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
    return CodeSet(std::move(all));
}

CodeSet CodeSet::operator~() const {
    CodeSet out;
    std::uint32_t next = 0;
    for (const Range& r : ranges_) {
        if (r.first > next) out.ranges_.emplace_back(next, r.first - 1);
        next = r.second + 1;
    }
    if (next <= kMaxCodePoint) out.ranges_.emplace_back(next, kMaxCodePoint);
    return out;
}

CodeSet CodeSet::operator&(const CodeSet& other) const { return ~(~*this | ~other); }

std::optional<CodeSet> posix_class(std::string_view name) {
    if (name == "alnum") return alphabetic() | categories(1U << Nd);
    if (name == "blank") return categories(1U << Zs) | CodeSet::of(9, 9);
    if (name == "cntrl") return categories(1U << Cc);
    if (name == "digit") return categories(1U << Nd);
    const auto graph = [] { return ~(categories(1U << Cc | 1U << Cn | 1U << Cs) | from_table(kSpace)); };
    if (name == "graph") return graph();
    if (name == "print") return graph() | categories(1U << Zs);
    if (name == "punct") return categories(category_mask("p") | category_mask("s"));
    if (name == "xdigit") return CodeSet({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
    if (name == "word") return posix_word();
    if (name == "alpha" || name == "upper" || name == "lower" || name == "space" || name == "ascii")
        return binary_property(std::string(name));
    return std::nullopt;
}

std::optional<CodeSet> property(std::string_view name) {
    const std::string plain = plain_name(name);
    if (auto set = posix_class(plain)) return set;
    if (auto set = binary_property(plain)) return set;
    if (const std::uint32_t mask = category_mask(plain)) return categories(mask);
    for (const LongName& n : kLongNames)
        if (plain == n.name) return categories(category_mask(n.category));
    for (unsigned i = 1; i < std::size(kScriptNames); ++i)
        if (plain == plain_name(kScriptNames[i]))
            return from_runs(kScriptRuns, 8, [&](std::uint32_t v) { return v == i; });
    return std::nullopt;
}

CodeSet bare_word() { return posix_word() | from_table(kWordMore); }

CodeSet case_closure(const CodeSet& set) {
    std::vector<CodeSet::Range> more = set.ranges();
    const std::uint32_t* group = kCaseOrbits;
    const std::uint32_t* const end = std::end(kCaseOrbits);
    while (group < end) {
        const std::uint32_t* stop = std::find(group, end, 0U);
        if (std::any_of(group, stop, [&](std::uint32_t c) { return set.contains(c); }))
            for (const std::uint32_t* c = group; c < stop; ++c) more.emplace_back(*c, *c);
        group = stop + 1;
    }
    return CodeSet(std::move(more));
}

FlagTable::FlagTable() {
    std::vector<std::uint16_t> all(kMaxCodePoint + 1);
    for (std::size_t i = 0; i < std::size(kCategoryRuns); ++i) {
        const std::size_t first = kCategoryRuns[i] >> 5;
        const std::size_t end = i + 1 < std::size(kCategoryRuns) ? kCategoryRuns[i + 1] >> 5 : all.size();
        std::fill(all.begin() + std::ptrdiff_t(first), all.begin() + std::ptrdiff_t(end),
                  flags_of_category(kCategoryRuns[i] & 31));
    }
    const auto mark = [&](const std::uint32_t* table, std::size_t n, std::uint16_t flag, bool on = true) {
        for (std::size_t i = 0; i + 1 < n; i += 2)
            for (std::uint32_t c = table[i]; c <= table[i + 1]; ++c)
                all[c] = std::uint16_t(on ? all[c] | flag : all[c] & ~flag);
    };
    const auto mark_set = [&](const CodeSet& set, std::uint16_t flag) {
        for (const auto& [first, last] : set.ranges())
            for (std::uint32_t c = first; c <= last; ++c) all[c] |= flag;
    };
    mark(kSpace, std::size(kSpace), kIsSpace);
    mark_set(posix_word(), kIsWord);
    mark(kRustWordMore, std::size(kRustWordMore), kIsWord);
    mark(kNumericMore, std::size(kNumericMore), kIsNumeric);
    mark(kPunctuation, std::size(kPunctuation), kIsPunctuation);
    mark(kAccentsLess, std::size(kAccentsLess), kIsAccent, false);
    mark(kAccentsMore, std::size(kAccentsMore), kIsAccent);
    mark(kCanonical, std::size(kCanonical),
         kChanges);  // refined by the normalization code, which knows the pairs
    mark(kCombining, std::size(kCombining), kChanges);
    constexpr std::uint32_t jamo[] = {0x1161, 0x1175, 0x11A8, 0x11C2};  // join the syllable before them
    mark(jamo, std::size(jamo), kChanges);

    index_.resize((kMaxCodePoint + 1) >> 8);
    std::unordered_map<std::string_view, std::uint16_t> seen;
    for (std::size_t b = 0; b < index_.size(); ++b) {
        const std::string_view bytes(reinterpret_cast<const char*>(&all[b << 8]), 512);
        const auto [it, is_new] = seen.emplace(bytes, std::uint16_t(blocks_.size() >> 8));
        if (is_new) blocks_.insert(blocks_.end(), &all[b << 8], &all[b << 8] + 256);
        index_[b] = it->second;
    }
}

const FlagTable& flags() {
    static const FlagTable table;
    return table;
}

Lower to_lower(std::uint32_t c) {
    if (c < 0x80) return {c >= 'A' && c <= 'Z' ? c + 32 : c, 0};
    if (c == 0x130) return {'i', 0x307};
    std::size_t low = 0, high = std::size(kLowercase) / 2;
    while (low < high) {
        const std::size_t mid = (low + high) / 2;
        if (kLowercase[2 * mid] < c)
            low = mid + 1;
        else
            high = mid;
    }
    return {2 * low < std::size(kLowercase) && kLowercase[2 * low] == c ? kLowercase[2 * low + 1] : c, 0};
}

unsigned script_class(std::uint32_t c) {
    const auto it = std::upper_bound(std::begin(kScriptClassRuns), std::end(kScriptClassRuns), c << 8 | 0xFF);
    return it == std::begin(kScriptClassRuns) ? 0 : *std::prev(it) & 0xFF;
}

bool in_ranges(const std::uint32_t* ranges, std::size_t n, std::uint32_t c) {
    // The first range that ends at or after c.
    std::size_t low = 0, high = n / 2;
    while (low < high) {
        const std::size_t mid = (low + high) / 2;
        if (ranges[2 * mid + 1] < c)
            low = mid + 1;
        else
            high = mid;
    }
    return 2 * low < n && ranges[2 * low] <= c && c <= ranges[2 * low + 1];
}

bool is_bert_ideograph(std::uint32_t c) { return in_ranges(kBertIdeograph, std::size(kBertIdeograph), c); }
bool is_bert_accent(std::uint32_t c) {
    const bool is_mn = (flags()[c] & kCategoryMask) == Mn;
    return is_mn ? !in_ranges(kBertAccentsLess, std::size(kBertAccentsLess), c)
                 : in_ranges(kBertAccentsMore, std::size(kBertAccentsMore), c);
}
bool is_bert_removed(std::uint32_t c) { return in_ranges(kBertRemoved, std::size(kBertRemoved), c); }
bool is_bert_space(std::uint32_t c) { return in_ranges(kBertSpace, std::size(kBertSpace), c); }
bool is_nmt_removed(std::uint32_t c) { return in_ranges(kNmtRemoved, std::size(kNmtRemoved), c); }
bool is_nmt_space(std::uint32_t c) { return in_ranges(kNmtSpace, std::size(kNmtSpace), c); }
bool has_canonical(std::uint32_t c) { return in_ranges(kCanonical, std::size(kCanonical), c); }
bool has_compatible(std::uint32_t c) { return in_ranges(kCompatible, std::size(kCompatible), c); }
bool is_combining(std::uint32_t c) { return in_ranges(kCombining, std::size(kCombining), c); }
bool is_not_composed(std::uint32_t c) { return in_ranges(kNotComposed, std::size(kNotComposed), c); }

}  // namespace llmgen::unicode
