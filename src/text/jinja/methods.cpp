// The methods of Python's built-in types that the sandbox lets a template call.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/utf8.h"
#include "text/jinja/eval.h"
#include "text/jinja/objects.h"
#include "text/jinja/unicode.h"

namespace llmgen::jinja {
namespace {

bool among(std::string_view name, std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

// --- str ---

bool is_string_method(std::string_view name) {
    return among(name,
                 {"capitalize", "casefold",    "center",     "count",      "encode",       "endswith",
                  "expandtabs", "find",        "format",     "format_map", "index",        "isalnum",
                  "isalpha",    "isascii",     "isdecimal",  "isdigit",    "isidentifier", "islower",
                  "isnumeric",  "isprintable", "isspace",    "istitle",    "isupper",      "join",
                  "ljust",      "lower",       "lstrip",     "partition",  "removeprefix", "removesuffix",
                  "replace",    "rfind",       "rindex",     "rjust",      "rpartition",   "rsplit",
                  "rstrip",     "split",       "splitlines", "startswith", "strip",        "swapcase",
                  "title",      "upper",       "zfill",      "translate",  "maketrans"});
}

const Text& want_text(const Value& v, const std::string& message) {
    if (!v.is_string()) raise("TypeError", message);
    return v.text();
}

void no_arguments(const std::string& method, const Arguments& a) {
    if (!a.keyword.empty()) raise("TypeError", method + "() takes no keyword arguments");
    if (!a.positional.empty())
        raise("TypeError",
              method + "() takes no arguments (" + std::to_string(a.positional.size()) + " given)");
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

namespace {

// --- lists, tuples, dicts, numbers ---

Value sequence_method(Interpreter& in, const Value& self, const std::string& method, const Arguments& a) {
    if (method == "copy") {
        no_arguments("list.copy", a);
        return self;
    }
    const Parameters p(method, {"", "", ""}, a, 1);
    std::int64_t n = 0;
    const std::int64_t size = std::int64_t(self.items().size());
    const auto bound = [&](const Value* v, std::int64_t otherwise) {
        if (!v) return otherwise;
        const std::int64_t i = index_value(*v);
        return std::clamp<std::int64_t>(i < 0 ? i + size : i, 0, size);
    };
    for (std::int64_t i = bound(p[1], 0); i < bound(p[2], size); ++i) {
        in.step();
        if (!equal(self.items()[std::size_t(i)], *p[0])) continue;
        if (method == "index") return Value::integer(i);
        ++n;
    }
    if (method == "index") raise("ValueError", std::string(in.repr(*p[0]).view()) + " is not in list");
    return Value::integer(n);
}

Value dict_method(Interpreter& in, const Value& self, const std::string& method, const Arguments& a) {
    if (method == "get") {
        if (a.positional.empty()) raise("TypeError", "get expected at least 1 argument, got 0");
        const Parameters p("get", {"", ""}, a, 1);
        const Value* v = self.as_dict().find(*p[0]);
        return v ? *v : p.get(1, Value());
    }
    if (method == "fromkeys") {
        const Parameters p(method, {"", ""}, a, 1);
        auto d = std::make_shared<Dict>();
        for (const Value& key : in.to_list(*p[0])) d->set(key, p.get(1, Value()));
        return Value::dict(std::move(d));
    }
    no_arguments("dict." + method, a);
    if (method == "copy") return self;
    auto view = std::make_shared<DictView>();
    view->kind = method == "keys"     ? DictView::Kind::keys
                 : method == "values" ? DictView::Kind::values
                                      : DictView::Kind::items;
    view->dict = self.dict_ptr();
    return Value::object(std::move(view));
}

Value float_method(const Value& self, const std::string& method, const Arguments& a) {
    no_arguments("float." + method, a);
    const double d = self.as_float();
    if (method == "is_integer") return Value::boolean(std::isfinite(d) && d == std::floor(d));
    if (method == "conjugate") return self;
    if (method == "as_integer_ratio") {
        if (!std::isfinite(d)) raise("OverflowError", "cannot convert Infinity to integer ratio");
        int exponent = 0;
        std::int64_t mantissa = std::int64_t(std::ldexp(std::frexp(d, &exponent), 53));
        exponent -= 53;
        while (mantissa % 2 == 0 && mantissa != 0 && exponent < 0) {
            mantissa /= 2;
            ++exponent;
        }
        BigInt top(mantissa), bottom(1);
        if (mantissa != 0)
            for (int i = 0; i < std::abs(exponent); ++i)
                (exponent > 0 ? top : bottom) = (exponent > 0 ? top : bottom) * BigInt(2);
        return Value::tuple({Value::integer(top), Value::integer(bottom)});
    }
    char hex[64];
    std::snprintf(hex, sizeof hex, "%a", d);
    return Value::string(std::string(hex));
}

Value int_method(const Value& self, const std::string& method, const Arguments& a) {
    no_arguments("int." + method, a);
    const BigInt i = self.to_big();
    if (method == "bit_length") return Value::integer(std::int64_t(i.bits()));
    if (method == "bit_count") {
        const std::string bits = (i.negative() ? -i : i).to_string(2);
        return Value::integer(std::int64_t(std::count(bits.begin(), bits.end(), '1')));
    }
    if (method == "as_integer_ratio") return Value::tuple({Value::integer(i), Value::integer(1)});
    return Value::integer(i);  // conjugate
}

std::optional<Value> number_attribute(const Value& self, std::string_view name) {
    if (name == "real") return self.is_float() ? self : Value::integer(self.to_big());
    if (name == "imag") return self.is_float() ? Value::floating(0) : Value::integer(0);
    if (self.is_float()) {
        if (!among(name, {"is_integer", "as_integer_ratio", "hex", "conjugate"})) return std::nullopt;
        return bind_function(std::string(name),
                             [self, method = std::string(name)](Interpreter&, Arguments&& a) {
                                 return float_method(self, method, a);
                             });
    }
    if (name == "numerator") return Value::integer(self.to_big());
    if (name == "denominator") return Value::integer(1);
    if (!among(name, {"bit_length", "bit_count", "as_integer_ratio", "conjugate"})) return std::nullopt;
    return bind_function(std::string(name), [self, method = std::string(name)](Interpreter&, Arguments&& a) {
        return int_method(self, method, a);
    });
}

std::optional<Value> bound_method(const Value& self, std::string_view name) {
    const auto forbidden = [&] {
        return Value::undefined(
            "access to attribute '" + std::string(name) + "' of '" + type_name(self) + "' object is unsafe.",
            true);
    };
    switch (self.type()) {
        case Type::string:
            if (self.is_markup() && (name == "striptags" || name == "unescape" || name == "escape"))
                return std::nullopt;
            if (!is_string_method(name)) return std::nullopt;
            return bind_function(std::string(name),
                                 [self, method = std::string(name)](Interpreter& in, Arguments&& a) {
                                     return string_method(in, self, method, std::move(a));
                                 });
        case Type::list:
            if (among(name, {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}))
                return forbidden();
            [[fallthrough]];
        case Type::tuple:
            if (name != "index" && name != "count" && !(name == "copy" && self.is_list()))
                return std::nullopt;
            return bind_function(
                std::string(name),
                [self, method = std::string(name)](Interpreter& in, Arguments&& a) {
                    return sequence_method(in, self, method, a);
                },
                self.depth());
        case Type::dict:
            if (among(name, {"clear", "pop", "popitem", "setdefault", "update"})) return forbidden();
            if (!among(name, {"get", "items", "keys", "values", "copy", "fromkeys"})) return std::nullopt;
            return bind_function(
                std::string(name),
                [self, method = std::string(name)](Interpreter& in, Arguments&& a) {
                    return dict_method(in, self, method, a);
                },
                self.depth());
        case Type::boolean:
        case Type::integer:
        case Type::big_integer:
        case Type::floating:
            return number_attribute(self, name);
        default:
            return std::nullopt;
    }
}

std::string shown_method(Interpreter& in, const Value& self, std::string_view name) {
    const std::string method(name), at = std::string(" at ") + kAddress + ">";
    const std::string type = self.is_markup() ? "Markup" : type_name(self);
    // The sandbox has versions of its own of these.
    if (self.is_string() && (name == "format" || name == "format_map"))
        return "<function " + type + "." + method + at;
    if (self.is_markup())
        return "<bound method Markup." + method + " of " + std::string(in.repr(self).view()) + ">";
    return "<built-in method " + method + " of " + type + " object" + at;
}

}  // namespace

std::optional<Value> find_method(Interpreter&, const Value& self, std::string_view name) {
    if (self.is_named_tuple() && (name == "grouper" || name == "list"))
        return self.items()[name == "grouper" ? 0 : 1];
    std::optional<Value> method = bound_method(self, name);
    if (!method || !method->is_object()) return method;  // a number's part, or forbidden
    return shown_as(
        *method, [self, name = std::string(name)](Interpreter& in) { return shown_method(in, self, name); });
}

}  // namespace llmgen::jinja
