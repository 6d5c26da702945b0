#include "text/normalizer.h"

#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace llmgen {
namespace {

/// Builds a new text beside the old one, and keeps origins if they are tracked.
class Rewriter {
public:
    explicit Rewriter(NormalText& t) : t_(t) { out_.reserve(t.text.size() + t.text.size() / 4); }
    /// Appends `text`, which comes from the old text's byte `from`.
    void put(std::string_view text, std::size_t from) {
        out_ += text;
        if (t_.tracked) origins_.resize(out_.size(), t_.origin(from));
    }
    void put(char32_t c, std::size_t from) {
        utf8::append(out_, c);
        if (t_.tracked) origins_.resize(out_.size(), t_.origin(from));
    }
    /// Appends the old text's bytes [begin, end).
    void copy(std::size_t begin, std::size_t end) {
        out_.append(t_.text, begin, end - begin);
        if (t_.tracked)
            origins_.insert(origins_.end(), t_.origins.begin() + std::ptrdiff_t(begin),
                            t_.origins.begin() + std::ptrdiff_t(end));
    }
    void finish() {
        t_.text = std::move(out_);
        if (t_.tracked) t_.origins = std::move(origins_);
    }

private:
    NormalText& t_;
    std::string out_;
    std::vector<std::uint32_t> origins_;
};

/// Calls f(code point, begin, end).
template <typename F>
void each_char(std::string_view text, F f) {
    for (std::size_t at = 0; at < text.size();) {
        const utf8::Decoded d = utf8::decode(text.substr(at));
        f(d.code_point, at, at + std::size_t(d.length));
        at += std::size_t(d.length);
    }
}

/// A step that turns each character into some text of its own; F(c, rewriter, begin, end).
template <typename F>
class PerChar final : public Normalizer {
public:
    explicit PerChar(F f) : f_(f) {}
    void apply(NormalText& t) const override {
        Rewriter out(t);
        each_char(t.text, [&](char32_t c, std::size_t begin, std::size_t end) { f_(c, out, begin, end); });
        out.finish();
    }

private:
    F f_;
};
template <typename F>
NormalizerPtr per_char(F f) {
    return std::make_unique<PerChar<F>>(f);
}

bool has(char32_t c, std::uint16_t flag) { return (unicode::flags()[c] & flag) != 0; }

class Sequence final : public Normalizer {
public:
    explicit Sequence(std::vector<NormalizerPtr> steps) : steps_(std::move(steps)) {}
    void apply(NormalText& t) const override {
        for (const NormalizerPtr& step : steps_) step->apply(t);
    }

private:
    std::vector<NormalizerPtr> steps_;
};

class Strip final : public Normalizer {
public:
    Strip(bool left, bool right) : left_(left), right_(right) {}
    void apply(NormalText& t) const override {
        std::size_t begin = 0, end = 0, first = t.text.size();
        each_char(t.text, [&](char32_t c, std::size_t b, std::size_t e) {
            if (has(c, unicode::kIsSpace)) return;
            first = std::min(first, b);
            end = e;
        });
        if (left_) begin = first;
        if (!right_ || end < begin) end = right_ ? begin : t.text.size();
        Rewriter out(t);
        out.copy(begin, end);
        out.finish();
    }

private:
    bool left_, right_;
};

class Prepend final : public Normalizer {
public:
    explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
    void apply(NormalText& t) const override {
        if (t.text.empty()) return;
        if (t.tracked) t.origins.insert(t.origins.begin(), prefix_.size(), t.origin(0));
        t.text.insert(0, prefix_);
    }

private:
    std::string prefix_;
};

class ReplaceString final : public Normalizer {
public:
    ReplaceString(std::string needle, std::string content)
        : needle_(std::move(needle)), content_(std::move(content)) {}
    void apply(NormalText& t) const override {
        std::size_t at = t.text.find(needle_), done = 0;
        if (at == t.text.npos) return;
        Rewriter out(t);
        for (; at != t.text.npos; at = t.text.find(needle_, done)) {
            out.copy(done, at);
            out.put(content_, at);
            done = at + needle_.size();
        }
        out.copy(done, t.text.size());
        out.finish();
    }

private:
    std::string needle_, content_;
};

class ReplaceRegex final : public Normalizer {
public:
    ReplaceRegex(std::string_view pattern, std::string content, const std::string& where)
        : regex_(pattern, where), content_(std::move(content)) {}
    void apply(NormalText& t) const override {
        std::vector<Span> matches;
        Regex::Subject(regex_, t.text).find_all({0, std::uint32_t(t.text.size())}, matches);
        if (matches.empty()) return;
        Rewriter out(t);
        std::size_t done = 0;
        for (const Span m : matches) {
            out.copy(done, m.begin);
            out.put(content_, m.begin);
            done = m.end;
        }
        out.copy(done, t.text.size());
        out.finish();
    }

private:
    Regex regex_;
    std::string content_;
};

}  // namespace

NormalizerPtr make_normalizer_sequence(std::vector<NormalizerPtr> steps) {
    return std::make_unique<Sequence>(std::move(steps));
}

NormalizerPtr make_lowercase() {
    return per_char([](char32_t c, Rewriter& out, std::size_t begin, std::size_t) {
        const unicode::Lower lower = unicode::to_lower(c);
        out.put(lower.first, begin);
        if (lower.second != 0) out.put(lower.second, begin);
    });
}

NormalizerPtr make_strip(bool left, bool right) { return std::make_unique<Strip>(left, right); }

NormalizerPtr make_strip_accents() {
    return per_char([](char32_t c, Rewriter& out, std::size_t begin, std::size_t end) {
        if (!has(c, unicode::kIsAccent)) out.copy(begin, end);
    });
}

NormalizerPtr make_prepend(std::string prefix) { return std::make_unique<Prepend>(std::move(prefix)); }

NormalizerPtr make_replace_string(std::string needle, std::string content) {
    return std::make_unique<ReplaceString>(std::move(needle), std::move(content));
}

NormalizerPtr make_replace_regex(std::string_view pattern, std::string content, const std::string& where) {
    return std::make_unique<ReplaceRegex>(pattern, std::move(content), where);
}

NormalizerPtr make_nmt() {
    return per_char([](char32_t c, Rewriter& out, std::size_t begin, std::size_t end) {
        if (unicode::is_nmt_removed(c)) return;
        if (unicode::is_nmt_space(c))
            out.put(U' ', begin);
        else
            out.copy(begin, end);
    });
}

NormalizerPtr make_byte_level_normalizer() {
    return per_char([](char32_t c, Rewriter& out, std::size_t begin, std::size_t) {
        out.put(bytes_to_alphabet(utf8::encode(c)), begin);
    });
}

NormalizerPtr make_bert_normalizer(const BertOptions& options) {
    std::vector<NormalizerPtr> steps;
    if (options.clean_text) {
        steps.push_back(per_char([](char32_t c, Rewriter& out, std::size_t begin, std::size_t end) {
            if (unicode::is_bert_removed(c)) return;
            if (unicode::is_bert_space(c))
                out.put(U' ', begin);
            else
                out.copy(begin, end);
        }));
    }
    if (options.handle_chinese_chars) {
        steps.push_back(per_char([](char32_t c, Rewriter& out, std::size_t begin, std::size_t end) {
            if (!unicode::is_bert_ideograph(c)) return out.copy(begin, end);
            out.put(U' ', begin);
            out.copy(begin, end);
            out.put(U' ', begin);
        }));
    }
    if (options.strip_accents) {
        steps.push_back(make_normal_form(NormalForm::kNfd));
        steps.push_back(per_char([](char32_t c, Rewriter& out, std::size_t begin, std::size_t end) {
            if (!unicode::is_bert_accent(c)) out.copy(begin, end);
        }));
    }
    if (options.lowercase) steps.push_back(make_lowercase());
    return make_normalizer_sequence(std::move(steps));
}

}  // namespace llmgen
