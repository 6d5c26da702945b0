// Python's str operations on texts with provenance, character by character or piece by piece.
#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/eval.h"
#include "text/jinja/unicode.h"

namespace llmgen::jinja {

using unicode::Case;

Text strip(const Text& text, const Text* characters, bool left, bool right) {
    std::u32string set;
    if (characters)
        for (TextReader r(*characters); !r.done();) set += r.next();
    std::sort(set.begin(), set.end());
    const auto strips = [&](char32_t c) {
        return characters ? std::binary_search(set.begin(), set.end(), c) : unicode::is_space(c);
    };
    std::size_t begin = 0, end = text.size();
    const std::string_view bytes = text.view();
    while (left && begin < end) {
        const utf8::Decoded d = utf8::decode(bytes.substr(begin));
        if (!strips(d.code_point)) break;
        begin += std::size_t(d.length);
    }
    while (right && begin < end) {
        std::size_t at = end - 1;
        while (at > begin && (static_cast<unsigned char>(bytes[at]) & 0xC0) == 0x80) --at;
        if (!strips(utf8::decode(bytes.substr(at)).code_point)) break;
        end = at;
    }
    return text.slice(begin, end);
}

Text replace(const Text& text, const Text& from, const Text& to, std::int64_t count) {
    TextBuilder out;
    if (count < 0) count = INT64_MAX;
    std::size_t at = 0;
    if (from.empty()) {  // between all characters, and at both ends
        TextReader r(text);
        for (; count > 0; --count) {
            out.append(to);
            if (r.done()) break;
            at = r.at();
            r.next();
            out.append(text, at, r.at());
            at = r.at();
        }
    } else {
        for (; count > 0; --count) {
            const std::size_t hit = text.view().find(from.view(), at);
            if (hit == std::string_view::npos) break;
            out.append(text, at, hit);
            out.append(to);
            at = hit + from.size();
        }
        if (at == 0) return text;
    }
    out.append(text, at, text.size());
    return out.finish();
}

namespace {

// Splits at runs of white space.
List split_space(const Text& text, std::int64_t limit, bool from_right) {
    struct Word {
        std::size_t begin, end;
    };
    std::vector<Word> words;
    bool in_word = false;
    for (TextReader r(text); !r.done();) {
        const std::size_t begin = r.at();
        const bool space = unicode::is_space(r.next());
        if (!space && !in_word) words.push_back({begin, 0});
        if (!space) words.back().end = r.at();
        in_word = !space;
    }
    if (limit >= 0 && std::int64_t(words.size()) > limit) {
        // The rest stays whole, less the white space at its outer end.
        if (from_right) {
            const std::size_t kept = words.size() - std::size_t(limit);
            words[kept - 1].begin = words[0].begin;
            words.erase(words.begin(), words.begin() + std::ptrdiff_t(kept - 1));
            const Text head = strip(text.slice(0, words[0].end), nullptr, false, true);
            words[0].begin = 0;
            List out;
            out.push_back(Value::string(head));
            for (std::size_t i = 1; i < words.size(); ++i)
                out.push_back(Value::string(text.slice(words[i].begin, words[i].end)));
            return out;
        }
        words[std::size_t(limit)].end = text.size();
        words.resize(std::size_t(limit) + 1);
    }
    List out;
    for (const Word& w : words) out.push_back(Value::string(text.slice(w.begin, w.end)));
    return out;
}

}  // namespace

List split(const Text& text, const Text* separator, std::int64_t limit, bool from_right) {
    if (!separator) return split_space(text, limit, from_right);
    if (separator->empty()) raise("ValueError", "empty separator");
    if (limit < 0) limit = INT64_MAX;
    const std::string_view bytes = text.view(), by = separator->view();
    List out;
    if (from_right) {
        std::size_t end = bytes.size();
        for (; limit > 0 && end >= by.size(); --limit) {
            const std::size_t hit = bytes.rfind(by, end - by.size());
            if (hit == std::string_view::npos) break;
            out.push_back(Value::string(text.slice(hit + by.size(), end)));
            end = hit;
        }
        out.push_back(Value::string(text.slice(0, end)));
        std::reverse(out.begin(), out.end());
        return out;
    }
    std::size_t at = 0;
    for (; limit > 0; --limit) {
        const std::size_t hit = bytes.find(by, at);
        if (hit == std::string_view::npos) break;
        out.push_back(Value::string(text.slice(at, hit)));
        at = hit + by.size();
    }
    out.push_back(Value::string(text.slice(at, bytes.size())));
    return out;
}

List split_lines(const Text& text, bool keep_ends) {
    List out;
    std::size_t begin = 0;
    for (TextReader r(text); !r.done();) {
        const std::size_t at = r.at();
        const char32_t c = r.next();
        if (c != '\r' && !unicode::is_line_break(c)) continue;
        if (c == '\r' && !r.done() && text.view()[r.at()] == '\n') r.next();
        out.push_back(Value::string(text.slice(begin, keep_ends ? r.at() : at)));
        begin = r.at();
    }
    if (begin < text.size()) out.push_back(Value::string(text.slice(begin, text.size())));
    return out;
}

namespace {

// Σ at the end of a word is ς: a cased letter before it (marks between them don't count) and none after.
bool is_final_sigma(std::string_view bytes, std::size_t at) {
    bool cased_before = false;
    for (std::size_t i = at; i > 0;) {
        do --i;
        while (i > 0 && (static_cast<unsigned char>(bytes[i]) & 0xC0) == 0x80);
        const char32_t c = utf8::decode(bytes.substr(i)).code_point;
        if (unicode::is_case_ignorable(c)) continue;
        cased_before = unicode::is_cased(c);
        break;
    }
    if (!cased_before) return false;
    for (std::size_t i = at + 2; i < bytes.size();) {
        const utf8::Decoded d = utf8::decode(bytes.substr(i));
        i += std::size_t(d.length);
        if (!unicode::is_case_ignorable(d.code_point)) return !unicode::is_cased(d.code_point);
    }
    return true;
}

void append_case(TextBuilder& out, const Text& text, std::size_t at, char32_t c, bool user, Case to) {
    if (to == Case::lower && c == 0x3A3) {
        out.append(is_final_sigma(text.view(), at) ? char32_t(0x3C2) : char32_t(0x3C3), user);
        return;
    }
    for (const char32_t x : unicode::map_case(c, to)) out.append(x, user);
}

}  // namespace

Text change_case(const Text& text, int to) {
    TextBuilder out;
    for (TextReader r(text); !r.done();) {
        const std::size_t at = r.at();
        const char32_t c = r.next();
        append_case(out, text, at, c, r.user(), Case(to));
    }
    return out.finish();
}

Text lower(const Text& text) { return change_case(text, int(Case::lower)); }

Text title_words(const Text& text) {
    TextBuilder out;
    bool in_word = false;
    for (TextReader r(text); !r.done();) {
        const std::size_t at = r.at();
        const char32_t c = r.next();
        append_case(out, text, at, c, r.user(), in_word ? Case::lower : Case::title);
        in_word =
            unicode::is_lower(c) || unicode::is_upper(c) || unicode::is_title(c) || unicode::is_cased(c);
    }
    return out.finish();
}

Text capitalize(const Text& text) {
    TextBuilder out;
    for (TextReader r(text); !r.done();) {
        const std::size_t at = r.at();
        const char32_t c = r.next();
        append_case(out, text, at, c, r.user(), at == 0 ? Case::title : Case::lower);
    }
    return out.finish();
}

Text swap_case(const Text& text) {
    TextBuilder out;
    for (TextReader r(text); !r.done();) {
        const std::size_t at = r.at();
        const char32_t c = r.next();
        if (unicode::is_upper(c))
            append_case(out, text, at, c, r.user(), Case::lower);
        else if (unicode::is_lower(c))
            append_case(out, text, at, c, r.user(), Case::upper);
        else
            out.append(text, at, r.at());
    }
    return out.finish();
}

Text join(Interpreter& in, const Text& separator, const std::vector<Text>& parts) {
    TextBuilder out;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (i) out.append(separator);
        out.append(parts[i]);
    }
    in.charge(out.size());
    return out.finish();
}

Text reverse(const Text& text) {
    std::vector<std::size_t> starts;
    for (TextReader r(text); !r.done(); r.next()) starts.push_back(r.at());
    TextBuilder out;
    std::size_t end = text.size();
    for (std::size_t i = starts.size(); i-- > 0; end = starts[i]) out.append(text, starts[i], end);
    return out.finish();
}

Text escape_html(const Text& text) {
    TextBuilder out;
    for (TextReader r(text); !r.done();) {
        const std::size_t at = r.at();
        const char32_t c = r.next();
        if (c == '&')
            out.append("&amp;", r.user());
        else if (c == '<')
            out.append("&lt;", r.user());
        else if (c == '>')
            out.append("&gt;", r.user());
        else if (c == '"')
            out.append("&#34;", r.user());
        else if (c == '\'')
            out.append("&#39;", r.user());
        else
            out.append(text, at, r.at());
    }
    return out.finish();
}

}  // namespace llmgen::jinja
