// NFC, NFD, NFKC, NFKD as the reference has them: decompositions from utf8proc, but only for the characters
// that the reference's (older) tables know.
//
//   decompose each character  →  sort each run of marks by combining class (stable)  →  compose pairs from
//   the left
//
// Runs of marks are sorted by std::stable_sort, so that no text makes this quadratic. Text in which no
// character can change, which is nearly all of it for NFC, is recognised in one pass and left alone.
#include <utf8proc.h>

#include <algorithm>
#include <unordered_map>

#include "base/utf8.h"
#include "text/normalizer.h"
#include "text/unicode.h"

namespace llmgen {
namespace {

constexpr std::uint32_t kHangulBase = 0xAC00, kHangulCount = 11172, kLeadBase = 0x1100, kVowelBase = 0x1161,
                        kTailBase = 0x11A7;
constexpr std::uint32_t kVowels = 21, kTails = 28, kLeads = 19;

bool is_hangul(std::uint32_t c) { return c - kHangulBase < kHangulCount; }

struct Element {
    std::uint32_t c;
    std::uint32_t origin;
    int ccc;
};

int combining_class(std::uint32_t c) {
    return unicode::is_combining(c) ? int(utf8proc_get_property(utf8proc_int32_t(c))->combining_class) : 0;
}

/// Full decomposition of a character that has one; the character itself if utf8proc knows none.
std::vector<Element> full_decomposition(std::uint32_t c, bool compatible, std::uint32_t origin) {
    utf8proc_int32_t full[32];
    int boundary = 0;
    const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    auto n = utf8proc_decompose_char(utf8proc_int32_t(c), full, 32, utf8proc_option_t(options), &boundary);
    if (n <= 0 || n > 32) {
        full[0] = utf8proc_int32_t(c);
        n = 1;
    }
    std::vector<Element> out;
    out.reserve(std::size_t(n));
    for (int i = 0; i < n; ++i)
        out.push_back({std::uint32_t(full[i]), origin, combining_class(std::uint32_t(full[i]))});
    return out;
}

/// Pairs that compose: (first, second) → composed. Made once from the canonical decompositions.
const std::unordered_map<std::uint64_t, std::uint32_t>& compositions() {
    static const std::unordered_map<std::uint64_t, std::uint32_t> map = [] {
        struct Full {
            std::uint32_t composed;
            std::vector<std::uint32_t> parts;
        };
        std::vector<Full> all;
        for (std::uint32_t c = 0xC0; c < 0x30000; ++c) {
            if (!(unicode::flags()[c] & unicode::kChanges) || !unicode::has_canonical(c) ||
                unicode::is_not_composed(c))
                continue;
            std::vector<Element> parts = full_decomposition(c, false, 0);
            if (parts.size() < 2) continue;
            all.push_back({c, {}});
            for (const Element& e : parts) all.back().parts.push_back(e.c);
        }
        // A pair is what all but the last part compose to, and the last part; so the shorter ones come first.
        std::stable_sort(all.begin(), all.end(),
                         [](const Full& a, const Full& b) { return a.parts.size() < b.parts.size(); });
        std::unordered_map<std::uint64_t, std::uint32_t> m;
        for (const Full& f : all) {
            std::uint64_t first = f.parts[0];
            bool known = true;
            for (std::size_t i = 1; i + 1 < f.parts.size() && known; ++i) {
                const auto it = m.find(first << 32 | f.parts[i]);
                known = it != m.end();
                if (known) first = it->second;
            }
            if (known) m.emplace(first << 32 | f.parts.back(), f.composed);
        }
        return m;
    }();
    return map;
}

/// The composed character, 0 where the two don't compose.
std::uint32_t compose(std::uint32_t a, std::uint32_t b) {
    if (a - kLeadBase < kLeads && b - kVowelBase < kVowels)
        return kHangulBase + ((a - kLeadBase) * kVowels + (b - kVowelBase)) * kTails;
    if (is_hangul(a) && (a - kHangulBase) % kTails == 0 && b - kTailBase - 1 < kTails - 1)
        return a + (b - kTailBase);
    const auto it = compositions().find(std::uint64_t(a) << 32 | b);
    return it == compositions().end() ? 0 : it->second;
}

class Form final : public Normalizer {
public:
    explicit Form(NormalForm form)
        : composes_(form == NormalForm::kNfc || form == NormalForm::kNfkc),
          compatible_(form == NormalForm::kNfkc || form == NormalForm::kNfkd) {}

    void apply(NormalText& t) const override {
        if (unchanged(t.text)) return;
        std::vector<Element> elements;
        elements.reserve(t.text.size());
        for (std::size_t at = 0; at < t.text.size();) {
            const utf8::Decoded d = utf8::decode(std::string_view(t.text).substr(at));
            decompose(d.code_point, t.tracked ? t.origin(at) : 0, elements);
            at += std::size_t(d.length);
        }
        sort_marks(elements);
        if (composes_) compose_all(elements);
        t.text.clear();
        t.origins.clear();
        for (const Element& e : elements) {
            utf8::append(t.text, e.c);
            if (t.tracked) t.origins.resize(t.text.size(), e.origin);
        }
    }

private:
    bool unchanged(std::string_view text) const {
        for (std::size_t at = 0; at < text.size();) {
            if (static_cast<unsigned char>(text[at]) < 0x80) {
                ++at;
                continue;
            }
            const utf8::Decoded d = utf8::decode(text.substr(at));
            if (unicode::flags()[d.code_point] & unicode::kChanges) {
                // For NFC the composed letters stay as they are, unless a mark follows, which is flagged
                // itself. (For NFKC they need not: a part of U+1FCE has a compatibility mapping.)
                if (!composes_ || compatible_ || unicode::is_combining(d.code_point) ||
                    unicode::is_not_composed(d.code_point) || compositions().empty() ||
                    !is_composed(d.code_point))
                    return false;
            }
            if (!composes_ && is_hangul(d.code_point)) return false;
            if (compatible_ && unicode::has_compatible(d.code_point)) return false;
            at += std::size_t(d.length);
        }
        return true;
    }
    static bool is_composed(std::uint32_t c) {
        static const std::vector<std::uint32_t> all = [] {
            std::vector<std::uint32_t> v;
            for (const auto& [pair, composed] : compositions()) v.push_back(composed);
            std::sort(v.begin(), v.end());
            return v;
        }();
        return std::binary_search(all.begin(), all.end(), c);
    }

    void decompose(std::uint32_t c, std::uint32_t origin, std::vector<Element>& out) const {
        if (is_hangul(c)) {
            const std::uint32_t s = c - kHangulBase;
            out.push_back({kLeadBase + s / (kVowels * kTails), origin, 0});
            out.push_back({kVowelBase + s % (kVowels * kTails) / kTails, origin, 0});
            if (s % kTails != 0) out.push_back({kTailBase + s % kTails, origin, 0});
            return;
        }
        if (c < 0xA0 || !(unicode::has_canonical(c) || (compatible_ && unicode::has_compatible(c)))) {
            out.push_back({c, origin, combining_class(c)});
            return;
        }
        for (const Element& e : full_decomposition(c, compatible_, origin)) out.push_back(e);
    }

    static void sort_marks(std::vector<Element>& elements) {
        for (std::size_t i = 0; i < elements.size();) {
            if (elements[i].ccc == 0) {
                ++i;
                continue;
            }
            std::size_t end = i;
            while (end < elements.size() && elements[end].ccc != 0) ++end;
            std::stable_sort(elements.begin() + std::ptrdiff_t(i), elements.begin() + std::ptrdiff_t(end),
                             [](const Element& a, const Element& b) { return a.ccc < b.ccc; });
            i = end;
        }
    }

    // A mark is blocked from its starter when one of the same or a higher class (or any starter) is left
    // between them.
    static void compose_all(std::vector<Element>& elements) {
        std::size_t out = 0, starter = elements.size();
        int last_class = 0;  // of what is left after the starter; 0 = nothing
        for (const Element e : elements) {
            const bool blocked = starter == elements.size() || (starter + 1 != out && last_class >= e.ccc);
            if (!blocked) {
                if (const std::uint32_t c = compose(elements[starter].c, e.c)) {
                    elements[starter].c = c;
                    continue;
                }
            }
            if (e.ccc == 0) starter = out;
            last_class = e.ccc;
            elements[out++] = e;
        }
        elements.resize(out);
    }

    bool composes_, compatible_;
};

}  // namespace

NormalizerPtr make_normal_form(NormalForm form) { return std::make_unique<Form>(form); }

}  // namespace llmgen
