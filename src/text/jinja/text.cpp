#include "text/jinja/text.h"

#include <algorithm>

#include "base/utf8.h"

namespace llmgen::jinja {
namespace {

// Number of lead bytes: the texts of the interpreter are valid UTF-8.
std::size_t count_code_points(std::string_view bytes) {
    std::size_t n = 0;
    for (const char c : bytes) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    return n;
}

}  // namespace

void raise(std::string type, std::string message) { throw Failure{std::move(type), std::move(message)}; }

void TextBuilder::too_long() { raise("ResourceError", "a text of more than 16 MiB"); }

const std::vector<TextRange>& Text::none() {
    static const std::vector<TextRange> empty;
    return empty;
}

Text::Text(std::string bytes, bool user) {
    if (bytes.empty()) return;
    auto rep = std::make_shared<Rep>();
    rep->length = count_code_points(bytes);
    if (user) rep->user.push_back({0, bytes.size()});
    rep->bytes = std::move(bytes);
    rep_ = std::move(rep);
}

Text Text::slice(std::size_t begin, std::size_t end) const {
    if (begin == 0 && end == size()) return *this;
    TextBuilder out;
    out.append(*this, begin, end);
    return out.finish();
}

std::size_t Text::offset(std::size_t index) const {
    if (index >= length()) return size();
    if (is_ascii()) return index;
    const std::string_view bytes = view();
    std::size_t at = 0;
    for (;; ++at) {
        if ((static_cast<unsigned char>(bytes[at]) & 0xC0) == 0x80) continue;
        if (index-- == 0) return at;
    }
}

void TextBuilder::mark(std::size_t begin, std::size_t end) {
    if (begin >= end) return;
    if (!user_.empty() && user_.back().end == begin)
        user_.back().end = end;
    else
        user_.push_back({begin, end});
}

void TextBuilder::append(const Text& text, std::size_t begin, std::size_t end) {
    if (begin >= end) return;
    check(end - begin);
    const std::size_t base = bytes_.size();
    bytes_.append(text.view().substr(begin, end - begin));
    const std::vector<TextRange>& ranges = text.user();
    auto range = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                  [](std::size_t at, const TextRange& r) { return at < r.end; });
    for (; range != ranges.end() && range->begin < end; ++range)
        mark(base + std::max(range->begin, begin) - begin, base + std::min(range->end, end) - begin);
}

void TextBuilder::append(std::string_view bytes, bool user) {
    check(bytes.size());
    const std::size_t base = bytes_.size();
    bytes_.append(bytes);
    if (user) mark(base, bytes_.size());
}

void TextBuilder::append(char32_t code_point, bool user) {
    check(4);
    const std::size_t base = bytes_.size();
    utf8::append(bytes_, code_point);
    if (user) mark(base, bytes_.size());
}

Text TextBuilder::finish() {
    Text text;
    if (bytes_.empty()) return text;
    auto rep = std::make_shared<Text::Rep>();
    rep->length = count_code_points(bytes_);
    rep->bytes = std::move(bytes_);
    rep->user = std::move(user_);
    text.rep_ = std::move(rep);
    bytes_.clear();
    user_.clear();
    return text;
}

TextReader::TextReader(const Text& text, std::size_t at)
    : bytes_(text.view()), ranges_(text.user()), at_(at) {}

char32_t TextReader::next() {
    while (range_ < ranges_.size() && ranges_[range_].end <= at_) ++range_;
    user_ = range_ < ranges_.size() && ranges_[range_].begin <= at_;
    const utf8::Decoded d = utf8::decode(bytes_.substr(at_));
    at_ += std::size_t(d.length);
    return d.code_point;
}

}  // namespace llmgen::jinja
