// The wordwrap filter: Python's textwrap, as jinja2 calls it, a paragraph (a line of the text) at a time.
//
//   "a look-out -- over"   chunks   a| |look-|out| |--| |over      then as many a row as fit its width
//
// A chunk ends at white space, after a hyphen inside a word ("look-", not "-b" and not "1-2") and beside a
// dash of several hyphens between words. One that no row can hold is cut: after its last hyphen that fits,
// else where the row ends. Traps: white space between chunks is ASCII's, but what a row drops at its ends is
// Unicode's; and a long word that finds its row full to the brim leaves an empty piece there, which is then
// the one dropped.
#include <algorithm>
#include <optional>

#include "text/jinja/eval.h"
#include "text/jinja/unicode.h"

namespace llmgen::jinja {
namespace {

bool is_ascii_space(char32_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_letter(char32_t c) { return unicode::is_word(c) && !unicode::is_decimal(c); }
bool ends_word(char32_t c) {
    return unicode::is_word(c) ||
           (c < 128 && std::string_view("!\"'&.,?").find(char(c)) != std::string_view::npos);
}

struct Style {
    std::size_t width;
    bool cut_words;
    bool chunks_at_hyphens;
    bool cut_at_hyphens;
};

class Paragraph {
public:
    Paragraph(const Text& text, const Style& style) : text_(text), style_(style) {
        for (TextReader r(text); !r.done();) {
            offsets_.push_back(std::uint32_t(r.at()));
            chars_.push_back(r.next());
        }
        offsets_.push_back(std::uint32_t(text.size()));
        chunk_end_ = end_of_chunk(0);
    }
    struct Row {
        std::size_t begin, end;  // bytes
    };
    std::optional<Row> next_row();

private:
    std::size_t size() const { return chars_.size(); }
    // 0 past either end, which is in no class of characters.
    char32_t at(std::size_t i) const { return i < size() ? chars_[i] : 0; }
    std::size_t end_of_chunk(std::size_t begin) const;
    std::size_t dash_between_words(std::size_t i) const;
    bool hyphen_inside_word(std::size_t i) const;
    std::size_t cut(std::size_t room) const;
    bool blank(std::size_t begin, std::size_t end) const {
        return std::all_of(chars_.begin() + std::ptrdiff_t(begin), chars_.begin() + std::ptrdiff_t(end),
                           unicode::is_space);
    }
    void take_chunk() {
        chunk_ = chunk_end_;
        chunk_end_ = end_of_chunk(chunk_);
    }

    const Text& text_;
    const Style& style_;
    std::u32string chars_;
    std::vector<std::uint32_t> offsets_;  // of each character, and the text's size
    std::size_t chunk_ = 0;               // what is not in a row yet begins here
    std::size_t chunk_end_ = 0;
    bool any_row_ = false;
};

// The end of a run of hyphens at `i` that is a dash: two or more, after a word's end and before a word. Else
// `i`.
std::size_t Paragraph::dash_between_words(std::size_t i) const {
    if (i == 0 || at(i) != '-' || !ends_word(at(i - 1))) return i;
    std::size_t end = i;
    while (at(end) == '-') ++end;
    return end - i >= 2 && unicode::is_word(at(end)) ? end : i;
}

// Two letters, or a letter, hyphen and letter, on both its sides.
bool Paragraph::hyphen_inside_word(std::size_t i) const {
    if (at(i) != '-' || i < 2 || !is_letter(at(i - 1))) return false;
    if (!is_letter(at(i - 2)) && !(at(i - 2) == '-' && i >= 3 && is_letter(at(i - 3)))) return false;
    return is_letter(at(i + 1)) && (is_letter(at(i + 2)) || (at(i + 2) == '-' && is_letter(at(i + 3))));
}

std::size_t Paragraph::end_of_chunk(std::size_t begin) const {
    if (begin >= size()) return size();
    std::size_t end = begin + 1;
    if (is_ascii_space(chars_[begin])) {
        while (end < size() && is_ascii_space(chars_[end])) ++end;
        return end;
    }
    if (style_.chunks_at_hyphens)
        if (const std::size_t dash = dash_between_words(begin); dash > begin) return dash;
    for (; end < size() && !is_ascii_space(chars_[end]); ++end) {
        if (!style_.chunks_at_hyphens) continue;
        if (hyphen_inside_word(end)) return end + 1;
        if (dash_between_words(end) > end) return end;
    }
    return end;
}

// Where the chunk, which is longer than `room`, is cut.
std::size_t Paragraph::cut(std::size_t room) const {
    const std::size_t limit = chunk_ + room;
    if (!style_.cut_at_hyphens) return limit;
    std::size_t hyphen = limit;
    while (hyphen > chunk_ && chars_[hyphen - 1] != '-') --hyphen;
    for (std::size_t i = chunk_; i + 1 < hyphen; ++i)
        if (chars_[i] != '-') return hyphen;
    return limit;
}

std::optional<Paragraph::Row> Paragraph::next_row() {
    while (chunk_ < size()) {
        if (any_row_ && blank(chunk_, chunk_end_)) take_chunk();
        const std::size_t begin = chunk_;
        std::size_t last = begin, pieces = 0;  // the row's last piece begins at `last`
        while (chunk_ < size() && chunk_end_ - begin <= style_.width) {
            last = chunk_;
            take_chunk();
            ++pieces;
        }
        if (chunk_ < size() && chunk_end_ - chunk_ > style_.width && (style_.cut_words || pieces == 0)) {
            last = chunk_;
            if (style_.cut_words)
                chunk_ = cut(style_.width - (chunk_ - begin));
            else
                take_chunk();
            ++pieces;
        }
        std::size_t end = chunk_;
        if (pieces && blank(last, end)) {
            end = last;
            --pieces;
        }
        if (pieces == 0) continue;
        any_row_ = true;
        return Row{offsets_[begin], offsets_[end]};
    }
    return std::nullopt;
}

}  // namespace

Value word_wrap(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_wordwrap", {"width", "break_long_words", "wrapstring", "break_on_hyphens"}, a, 0);
    const std::int64_t width = p[0] ? index_value(*p[0]) : 79;
    const Text by = p[2] && !p[2]->is_none() ? text_argument(*p[2], "wrapstring") : Text("\n");
    if (v.is_undefined()) raise_undefined(v);
    if (!v.is_string())
        raise("AttributeError", "'" + type_name(v) + "' object has no attribute 'splitlines'");
    const Value hyphens = p.get(3, Value::boolean(true));
    Style style{std::size_t(width), !p[1] || in.truthy(*p[1]), hyphens.is_bool() && hyphens.as_bool(),
                in.truthy(hyphens)};
    TextBuilder out;
    bool first = true;
    for (const Value& line : split_lines(v.text(), false)) {
        if (width <= 0) raise("ValueError", "invalid width " + std::to_string(width) + " (must be > 0)");
        in.charge(line.text().size() + 64);
        Paragraph paragraph(line.text(), style);
        std::optional<Paragraph::Row> row = paragraph.next_row();
        do {  // a paragraph without rows is an empty one
            if (!first) out.append(by);
            first = false;
            if (!row) break;
            in.charge(64);
            out.append(line.text(), row->begin, row->end);
            row = paragraph.next_row();
        } while (row);
    }
    return in.own(out.finish());
}

}  // namespace llmgen::jinja
