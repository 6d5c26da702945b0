// The methods of str that the sandbox lets a template call.
#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/eval.h"
#include "text/jinja/unicode.h"

namespace llmgen::jinja {
bool is_string_method(std::string_view name) {
    static constexpr std::string_view kAll[] = {
        "capitalize", "casefold",    "center",     "count",      "encode",       "endswith",
        "expandtabs", "find",        "format",     "format_map", "index",        "isalnum",
        "isalpha",    "isascii",     "isdecimal",  "isdigit",    "isidentifier", "islower",
        "isnumeric",  "isprintable", "isspace",    "istitle",    "isupper",      "join",
        "ljust",      "lower",       "lstrip",     "partition",  "removeprefix", "removesuffix",
        "replace",    "rfind",       "rindex",     "rjust",      "rpartition",   "rsplit",
        "rstrip",     "split",       "splitlines", "startswith", "strip",        "swapcase",
        "title",      "upper",       "zfill",      "translate",  "maketrans"};
    return std::find(std::begin(kAll), std::end(kAll), name) != std::end(kAll);
}

namespace {

const Text& want_text(const Value& v, const std::string& message) {
    if (!v.is_string()) raise("TypeError", message);
    return v.text();
}

// [start, end) in code points, as find, count, startswith take them, to bytes.
struct Window {
    std::size_t begin, end;
    bool valid;
};
Window window(const Text& text, const Value* start, const Value* end) {
    const std::int64_t n = std::int64_t(text.length());
    const auto place = [&](const Value* v, std::int64_t otherwise) {
        if (!v || v->is_none()) return otherwise;
        std::int64_t i = index_value(*v);
        if (i < 0) i = std::max<std::int64_t>(0, i + n);
        return i;
    };
    const std::int64_t first = place(start, 0), last = std::min(place(end, n), n);
    if (first > n || first > last) return {0, 0, false};
    return {text.offset(std::size_t(first)), text.offset(std::size_t(last)), true};
}

Value find_in(const Text& text, const std::string& method, const Arguments& a) {
    const Parameters p(method, {"", "", ""}, a, 1);
    const Text& what = want_text(*p[0], "must be str, not " + type_name(*p[0]));
    const Window w = window(text, p[1], p[2]);
    const bool reverse = method[0] == 'r';
    std::size_t hit = std::string_view::npos;
    if (w.valid) {
        const std::string_view inside = text.view().substr(w.begin, w.end - w.begin);
        hit = reverse ? inside.rfind(what.view()) : inside.find(what.view());
    }
    if (hit == std::string_view::npos) {
        if (method == "index" || method == "rindex") raise("ValueError", "substring not found");
        return Value::integer(-1);
    }
    return Value::integer(std::int64_t(utf8::length(text.view().substr(0, w.begin + hit))));
}

Value count_in(const Text& text, const Arguments& a) {
    const Parameters p("count", {"", "", ""}, a, 1);
    const Text& what = want_text(*p[0], "must be str, not " + type_name(*p[0]));
    const Window w = window(text, p[1], p[2]);
    if (!w.valid) return Value::integer(0);
    const std::string_view inside = text.view().substr(w.begin, w.end - w.begin);
    if (what.empty()) return Value::integer(std::int64_t(utf8::length(inside)) + 1);
    std::int64_t n = 0;
    for (std::size_t at = inside.find(what.view()); at != std::string_view::npos;
         at = inside.find(what.view(), at + what.size()))
        ++n;
    return Value::integer(n);
}

Value starts_or_ends(const Text& text, const std::string& method, const Arguments& a) {
    const Parameters p(method, {"", "", ""}, a, 1);
    const Window w = window(text, p[1], p[2]);
    const bool start = method == "startswith";
    const auto test = [&](const Value& v) {
        const Text& what =
            want_text(v, method + " first arg must be str or a tuple of str, not " + type_name(v));
        if (!w.valid || what.size() > w.end - w.begin) return false;
        return text.view().substr(start ? w.begin : w.end - what.size(), what.size()) == what.view();
    };
    if (p[0]->is_tuple()) {
        for (const Value& v : p[0]->items()) {
            if (!v.is_string())
                raise("TypeError", "tuple for " + method + " must only contain str, not " + type_name(v));
            if (test(v)) return Value::boolean(true);
        }
        return Value::boolean(false);
    }
    return Value::boolean(test(*p[0]));
}

Value partition(const Text& text, bool right, const Arguments& a, bool markup) {
    const Parameters p(right ? "rpartition" : "partition", {""}, a, 1);
    const Text& by = want_text(*p[0], "must be str, not " + type_name(*p[0]));
    if (by.empty()) raise("ValueError", "empty separator");
    const auto piece = [&](std::size_t begin, std::size_t end) {
        return Value::string(text.slice(begin, end), markup);
    };
    const std::size_t hit = right ? text.view().rfind(by.view()) : text.view().find(by.view());
    if (hit == std::string_view::npos) {
        const Value empty = Value::string(Text(), markup), whole = piece(0, text.size());
        return right ? Value::tuple({empty, empty, whole}) : Value::tuple({whole, empty, empty});
    }
    return Value::tuple({piece(0, hit), piece(hit, hit + by.size()), piece(hit + by.size(), text.size())});
}

Text justify(Interpreter& in, const Text& text, const std::string& method, const Arguments& a) {
    const Parameters p(method, {"", ""}, a, 1);
    const std::int64_t width = index_value(*p[0]), n = std::int64_t(text.length());
    Text fill(" ");
    if (p[1])
        fill = want_text(*p[1], "The fill character must be a unicode character, not " + type_name(*p[1]));
    if (fill.length() != 1) raise("TypeError", "The fill character must be exactly one character long");
    if (width <= n) return text;
    if (width > std::int64_t(kMaxText)) raise("ResourceError", "a text that is too wide");
    const std::int64_t missing = width - n;
    // str.center puts the odd one left where the width is odd
    std::int64_t before = method == "ljust"   ? 0
                          : method == "rjust" ? missing
                                              : missing / 2 + (missing & width & 1);
    TextBuilder out;
    for (std::int64_t i = 0; i < before; ++i) out.append(fill);
    out.append(text);
    for (std::int64_t i = before; i < missing; ++i) out.append(fill);
    in.charge(out.size());
    return out.finish();
}

Text zero_fill(const Text& text, const Arguments& a) {
    const Parameters p("zfill", {""}, a, 1);
    const std::int64_t width = index_value(*p[0]), n = std::int64_t(text.length());
    if (width > std::int64_t(kMaxText)) raise("ResourceError", "a text that is too wide");
    TextBuilder out;
    const bool sign = !text.empty() && (text.view()[0] == '+' || text.view()[0] == '-');
    if (sign) out.append(text, 0, 1);
    if (width > n) out.append(std::string(std::size_t(width - n), '0'));
    out.append(text, sign ? 1 : 0, text.size());
    return out.finish();
}

Text expand_tabs(const Text& text, const Arguments& a) {
    const Parameters p("expandtabs", {"tabsize"}, a, 0);
    const std::int64_t size = p[0] ? index_value(*p[0]) : 8;
    if (size > 4096) raise("ResourceError", "tabs that are too wide");
    TextBuilder out;
    std::int64_t column = 0;
    for (TextReader r(text); !r.done();) {
        const std::size_t at = r.at();
        const char32_t c = r.next();
        if (c == '\t') {
            const std::int64_t n = size > 0 ? size - column % size : 0;
            out.append(std::string(std::size_t(n), ' '), r.user());
            column += n;
        } else {
            out.append(text, at, r.at());
            column = c == '\n' || c == '\r' ? 0 : column + 1;
        }
    }
    return out.finish();
}

// isdigit and its kin: every character passes, and there is one.
bool all_of(const Text& text, bool (*test)(char32_t)) {
    if (text.empty()) return false;
    for (TextReader r(text); !r.done();)
        if (!test(r.next())) return false;
    return true;
}

std::optional<bool> classify(const Text& text, const std::string& method) {
    if (method == "isalnum") return all_of(text, unicode::is_alnum);
    if (method == "isalpha") return all_of(text, unicode::is_alpha);
    if (method == "isdecimal") return all_of(text, unicode::is_decimal);
    if (method == "isdigit") return all_of(text, unicode::is_digit);
    if (method == "isnumeric") return all_of(text, unicode::is_numeric);
    if (method == "isspace") return all_of(text, unicode::is_space);
    if (method == "isprintable") return text.empty() || all_of(text, unicode::is_printable);
    if (method == "isascii") return text.is_ascii();
    if (method == "isidentifier") {
        TextReader r(text);
        if (r.done() || !unicode::is_id_start(r.next())) return false;
        while (!r.done())
            if (!unicode::is_id_continue(r.next())) return false;
        return true;
    }
    if (method != "islower" && method != "isupper" && method != "istitle") return std::nullopt;
    bool any = false, previous_cased = false;
    for (TextReader r(text); !r.done();) {
        const char32_t c = r.next();
        const bool low = unicode::is_lower(c), up = unicode::is_upper(c) || unicode::is_title(c);
        if (method == "islower" && up) return false;
        if (method == "isupper" && (low || unicode::is_title(c))) return false;
        if (method == "istitle" && ((up && previous_cased) || (low && !previous_cased))) return false;
        any |= low || up;
        previous_cased = low || up;
    }
    return any;
}

Value join_method(Interpreter& in, const Value& self, const Arguments& a) {
    const Parameters p(self.is_markup() ? "join" : "str.join", {""}, a, 1);
    if (!in.is_iterable(*p[0])) raise("TypeError", "can only join an iterable");
    std::vector<Text> parts;
    const List items = in.to_list(*p[0]);
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (self.is_markup()) {
            parts.push_back(in.escape(items[i]).text());
            continue;
        }
        if (!items[i].is_string())
            raise("TypeError", "sequence item " + std::to_string(i) + ": expected str instance, " +
                                   type_name(items[i]) + " found");
        parts.push_back(items[i].text());
    }
    return Value::string(join(in, self.text(), parts), self.is_markup());
}

Value mark_all(List items, bool markup) {
    if (markup)
        for (Value& v : items) v = Value::string(v.text(), true);
    return Value::list(std::move(items));
}

}  // namespace

Value string_method(Interpreter& in, const Value& self, const std::string& method, Arguments&& a) {
    const Text& text = self.text();
    const bool markup = self.is_markup();
    in.charge(text.size() / 4);
    const auto simple = [&](auto&& f) {
        no_arguments("str." + method, a);
        return in.own(f(), markup);
    };
    if (method == "strip" || method == "lstrip" || method == "rstrip") {
        const Parameters p(method, {""}, a, 0);
        const Text* characters = nullptr;
        if (p[0] && !p[0]->is_none()) characters = &want_text(*p[0], method + " arg must be None or str");
        return in.own(strip(text, characters, method[0] != 'r', method[0] != 'l'), markup);
    }
    if (method == "split" || method == "rsplit") {
        const Parameters p(method, {"sep", "maxsplit"}, a, 0);
        const Text* by = nullptr;
        if (p[0] && !p[0]->is_none()) by = &want_text(*p[0], "must be str or None, not " + type_name(*p[0]));
        List parts = split(text, by, p[1] ? index_value(*p[1]) : -1, method[0] == 'r');
        in.charge(text.size() + parts.size() * sizeof(Value));
        return mark_all(std::move(parts), markup);
    }
    if (method == "splitlines") {
        const Parameters p(method, {"keepends"}, a, 0);
        List parts = split_lines(text, p[0] && in.truthy(*p[0]));
        in.charge(text.size() + parts.size() * sizeof(Value));
        return mark_all(std::move(parts), markup);
    }
    if (method == "replace") {
        const Parameters p(method, {"", "", ""}, a, 2);
        const Text& from = want_text(*p[0], "replace() argument 1 must be str, not " + type_name(*p[0]));
        want_text(*p[1], "replace() argument 2 must be str, not " + type_name(*p[1]));
        const Text to = markup ? in.escape(*p[1]).text() : p[1]->text();
        return in.own(replace(text, from, to, p[2] ? index_value(*p[2]) : -1), markup);
    }
    if (method == "startswith" || method == "endswith") return starts_or_ends(text, method, a);
    if (method == "find" || method == "rfind" || method == "index" || method == "rindex")
        return find_in(text, method, a);
    if (method == "count") return count_in(text, a);
    if (method == "partition" || method == "rpartition") return partition(text, method[0] == 'r', a, markup);
    if (method == "join") return join_method(in, self, a);
    if (method == "format") return in.own(str_format(in, self, a, nullptr), markup);
    if (method == "format_map") {
        const Parameters p(method, {""}, a, 1);
        return in.own(str_format(in, self, Arguments{}, p[0]), markup);
    }
    if (method == "upper") return simple([&] { return change_case(text, int(unicode::Case::upper)); });
    if (method == "lower") return simple([&] { return lower(text); });
    if (method == "casefold") return simple([&] { return change_case(text, int(unicode::Case::fold)); });
    if (method == "title") return simple([&] { return title_words(text); });
    if (method == "capitalize") return simple([&] { return capitalize(text); });
    if (method == "swapcase") return simple([&] { return swap_case(text); });
    if (method == "center" || method == "ljust" || method == "rjust")
        return in.own(justify(in, text, method, a), markup);
    if (method == "zfill") return in.own(zero_fill(text, a), markup);
    if (method == "expandtabs") return in.own(expand_tabs(text, a), markup);
    if (method == "removeprefix" || method == "removesuffix") {
        const Parameters p(method, {""}, a, 1);
        const Text& part = want_text(*p[0], method + "() argument must be str, not " + type_name(*p[0]));
        const bool prefix = method == "removeprefix";
        const bool hit =
            part.size() <= text.size() &&
            text.view().substr(prefix ? 0 : text.size() - part.size(), part.size()) == part.view();
        if (!hit) return self;
        return in.own(
            prefix ? text.slice(part.size(), text.size()) : text.slice(0, text.size() - part.size()), markup);
    }
    if (const auto answer = classify(text, method)) {
        no_arguments("str." + method, a);
        return Value::boolean(*answer);
    }
    raise("TypeError", "str." + method + "() is not available in chat templates");
}

}  // namespace llmgen::jinja
