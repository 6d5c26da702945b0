// The filters on texts. Those on numbers are in filters_number.cpp, those on sequences in filters_seq.cpp.
#include <algorithm>
#include <map>

#include "text/jinja/eval.h"
#include "text/jinja/lexer.h"
#include "text/jinja/objects.h"
#include "text/jinja/unicode.h"

namespace llmgen::jinja {
namespace {

// --- texts ---

template <const char* method>
Value by_method(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p(std::string("do_") + method, {}, a, 0);
    return string_method(in, in.soft_str(v), method, Arguments{});
}
constexpr char kUpper[] = "upper", kLower[] = "lower", kCapitalize[] = "capitalize";

Value trim(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_trim", {"chars"}, a, 0);
    Arguments rest;
    rest.positional.push_back(p.get(0, Value()));
    return string_method(in, in.soft_str(v), "strip", std::move(rest));
}

Value center(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_center", {"width"}, a, 0);
    Arguments rest;
    rest.positional.push_back(p.get(0, Value::integer(80)));
    return string_method(in, in.soft_str(v), "center", std::move(rest));
}

// Words begin after white space, - ( { [ < and at the start.
Value title(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_title", {}, a, 0);
    const Value s = in.soft_str(v);
    const Text& text = s.text();
    TextBuilder out;
    std::size_t begin = 0;
    const auto flush = [&](std::size_t end) {
        if (begin == end) return;
        TextReader r(text, begin);
        r.next();
        out.append(change_case(text.slice(begin, r.at()), int(unicode::Case::upper)));
        out.append(lower(text.slice(r.at(), end)));
        begin = end;
    };
    bool in_separator = false;
    for (TextReader r(text); !r.done();) {
        const std::size_t at = r.at();
        const char32_t c = r.next();
        const bool separator =
            unicode::is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
        if (at > 0 && separator != in_separator) flush(at);
        in_separator = separator;
    }
    flush(text.size());
    return in.own(out.finish(), s.is_markup());
}

Value replace_filter(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_replace", {"old", "new", "count"}, a, 2);
    const std::int64_t count = p[2] && !p[2]->is_none() ? index_value(*p[2]) : -1;
    if (!in.autoescape) return in.own(replace(in.str(v), in.str(*p[0]), in.str(*p[1]), count));
    const Value s =
        p[0]->is_markup() || (p[1]->is_markup() && !v.is_markup()) ? in.escape(v) : in.soft_str(v);
    const Text to = s.is_markup() ? in.escape(*p[1]).text() : in.str(*p[1]);
    return in.own(replace(s.text(), in.str(*p[0]), to, count), s.is_markup());
}

Value indent(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_indent", {"width", "first", "blank"}, a, 0);
    if (v.is_undefined()) raise_undefined(v);
    if (!v.is_string())
        raise("TypeError", "unsupported operand type(s) for +=: '" + type_name(v) + "' and 'str'");
    Text indention(std::string(4, ' '));
    if (p[0] && p[0]->is_string()) {
        indention = p[0]->text();
    } else if (p[0]) {
        const std::int64_t n = index_value(*p[0]);
        if (n > 4096) raise("ResourceError", "an indent that is too wide");
        indention = Text(std::string(std::size_t(std::max<std::int64_t>(n, 0)), ' '));
    }
    const bool first = p[1] && in.truthy(*p[1]), blank = p[2] && in.truthy(*p[2]);
    TextBuilder whole;
    whole.append(v.text());
    whole.append("\n");
    const List lines = split_lines(whole.finish(), false);
    TextBuilder out;
    if (first) out.append(indention);
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const Text& line = lines[i].text();
        if (i) out.append("\n");
        if (i && (blank || !line.empty())) out.append(indention);
        out.append(line);
        in.charge(indention.size());
    }
    return in.own(out.finish(), v.is_markup());
}

Value truncate(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_truncate", {"length", "killwords", "end", "leeway"}, a, 0);
    const std::int64_t length = p[0] ? index_value(*p[0]) : 255;
    const Text end = p[2] ? text_argument(*p[2], "end") : Text("...");
    const std::int64_t leeway = p[3] && !p[3]->is_none() ? index_value(*p[3]) : 5;
    const std::int64_t end_length = std::int64_t(end.length());
    if (length < end_length)
        raise("AssertionError",
              "expected length >= " + std::to_string(end_length) + ", got " + std::to_string(length));
    if (leeway < 0) raise("AssertionError", "expected leeway >= 0, got " + std::to_string(leeway));
    if (v.is_undefined()) return v;
    const auto size = in.length(v);
    if (!size) raise("TypeError", "object of type '" + type_name(v) + "' has no len()");
    if (std::int64_t(*size) - leeway <= length) return v;  // whatever it is; no overflow: neither is negative
    const Text text = text_argument(v, "value");
    Text head = text.slice(0, text.offset(std::size_t(length - end_length)));
    if (!p[1] || !in.truthy(*p[1])) {
        const std::size_t space = head.view().rfind(' ');
        if (space != std::string_view::npos) head = head.slice(0, space);
    }
    TextBuilder out;
    out.append(head);
    out.append(end);
    return in.own(out.finish(), v.is_markup());
}

Value word_count(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_wordcount", {}, a, 0);
    const Text text = in.str(v);
    std::int64_t n = 0;
    bool in_word = false;
    for (TextReader r(text); !r.done();) {
        const bool word = unicode::is_word(r.next());
        n += word && !in_word;
        in_word = word;
    }
    return Value::integer(n);
}

Value string_filter(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("soft_str", {}, a, 0);
    return in.soft_str(v);
}

Value safe(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_mark_safe", {}, a, 0);
    return in.own(in.str(v), true);
}

Value escape_filter(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("escape", {}, a, 0);
    return in.escape(v);
}

Value force_escape(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_forceescape", {}, a, 0);
    return in.own(escape_html(in.str(v)), true);
}

// Comments and tags out, white space to single spaces, entities back to characters.
Value strip_tags(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_striptags", {}, a, 0);
    Text text = in.str(v);
    for (const auto& [open, close] : {std::pair{"<!--", "-->"}, std::pair{"<", ">"}}) {
        TextBuilder out;
        std::size_t at = 0;
        for (;;) {
            const std::size_t begin = text.view().find(open, at);
            const std::size_t end = begin == std::string_view::npos ? begin : text.view().find(close, begin);
            if (end == std::string_view::npos) break;
            out.append(text, at, begin);
            at = end + std::string_view(close).size();
        }
        out.append(text, at, text.size());
        text = out.finish();
    }
    std::vector<Text> words;
    for (const Value& word : split(text, nullptr, -1, false)) words.push_back(word.text());
    text = join(in, Text(" "), words);
    for (const auto& [entity, character] :
         {std::pair{"&lt;", "<"}, std::pair{"&gt;", ">"}, std::pair{"&#34;", "\""}, std::pair{"&quot;", "\""},
          std::pair{"&#39;", "'"}, std::pair{"&amp;", "&"}})
        text = replace(text, Text(entity), Text(character), -1);
    return in.own(text);
}

Text quote_url(Interpreter& in, const Value& v, bool query) {
    const Text text = in.str(v);
    TextBuilder out;
    for (TextReader r(text); !r.done();) {
        const std::size_t at = r.at();
        const char32_t c = r.next();
        const bool plain = (c < 0x80 && std::isalnum(int(c))) || c == '_' || c == '.' || c == '-' ||
                           c == '~' || (c == '/' && !query);
        if (plain) {
            out.append(text, at, r.at());
        } else if (query && c == ' ') {
            out.append("+", r.user());
        } else {
            for (const char byte : text.view().substr(at, r.at() - at)) {
                char code[4];
                std::snprintf(code, sizeof code, "%%%02X", static_cast<unsigned char>(byte));
                out.append(code, r.user());
            }
        }
    }
    return out.finish();
}

Value url_encode(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_urlencode", {}, a, 0);
    if (v.is_string() || !in.is_iterable(v)) return in.own(quote_url(in, v, false));
    std::vector<Text> parts;
    List pairs;
    if (v.is_dict())
        for (const auto& [key, value] : v.as_dict().entries()) pairs.push_back(Value::tuple({key, value}));
    else
        pairs = in.to_list(v);
    for (const Value& item : pairs) {
        const List pair = in.to_list(item);
        if (pair.size() != 2) raise("ValueError", "not enough values to unpack (expected 2)");
        TextBuilder part;
        part.append(quote_url(in, pair[0], true));
        part.append("=");
        part.append(quote_url(in, pair[1], true));
        parts.push_back(part.finish());
    }
    return in.own(join(in, Text("&"), parts));
}

Value format_filter(Interpreter& in, const Value& v, Arguments&& a) {
    if (!a.positional.empty() && !a.keyword.empty())
        raise("FilterArgumentError", "can't handle positional and keyword arguments at the same time");
    if (a.keyword.empty()) return percent_format(in, in.soft_str(v), Value::tuple(std::move(a.positional)));
    auto d = std::make_shared<Dict>();
    for (auto& [key, value] : a.keyword) d->set(Value::string(key), std::move(value));
    return percent_format(in, in.soft_str(v), Value::dict(std::move(d)));
}

Value to_json(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("_cached_compile_jinja_template.<locals>.tojson",
                       {"ensure_ascii", "indent", "separators", "sort_keys"}, a, 0);
    JsonStyle style;
    style.ensure_ascii = p[0] && in.truthy(*p[0]);
    style.sort_keys = p[3] && in.truthy(*p[3]);
    if (p[1] && !p[1]->is_none()) {
        if (p[1]->is_string()) {
            style.indent = std::string(p[1]->text().view());
        } else {
            const std::int64_t n = index_value(*p[1]);
            if (n > 4096) raise("ResourceError", "an indent that is too wide");
            style.indent = std::string(std::size_t(std::max<std::int64_t>(n, 0)), ' ');
        }
    }
    style.item_separator = Text(style.indent ? "," : ", ");
    style.key_separator = Text(": ");
    if (p[2] && !p[2]->is_none()) {
        const List pair = in.to_list(*p[2]);
        if (pair.size() != 2)
            raise("ValueError",
                  "not enough values to unpack (expected 2, got " + std::to_string(pair.size()) + ")");
        style.item_separator = text_argument(pair[0], "item separator");
        style.key_separator = text_argument(pair[1], "key separator");
    }
    return in.own(dump_json(in, v, style));
}

Value xml_attributes(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_xmlattr", {"autospace"}, a, 0);
    if (!v.is_dict()) raise("AttributeError", "'" + type_name(v) + "' object has no attribute 'items'");
    TextBuilder out;
    bool first = true;
    for (const auto& [key, value] : v.as_dict().entries()) {
        if (value.is_none() || value.is_undefined()) continue;
        const Text name = in.str(key);
        if (name.view().find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos)
            raise("ValueError", "Invalid character in attribute name: '" + std::string(name.view()) + "'");
        if (!first || !p[0] || in.truthy(*p[0])) out.append(" ");
        first = false;
        out.append(in.escape(key).text());
        out.append("=\"");
        out.append(in.escape(value).text());
        out.append("\"");
    }
    return in.own(out.finish(), in.autoescape);
}

Value pretty(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_pprint", {}, a, 0);
    return in.own(in.repr(v));
}

Value default_filter(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_default", {"default_value", "boolean"}, a, 0);
    if (v.is_undefined() || (p[1] && in.truthy(*p[1]) && !in.truthy(v))) return p.get(0, Value::string(""));
    return v;
}

Value attribute_filter(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_attr", {"name"}, a, 1);
    const Text name = in.str(*p[0]);
    const Value found = in.attribute(v, name.view());
    if (v.is_dict() && !find_method(in, v, name.view()) && !found.is_undefined())
        return Value::undefined("'dict object' has no attribute '" + std::string(name.view()) + "'");
    return found;
}

const std::map<std::string_view, FilterFunction>& filters() {
    static const std::map<std::string_view, FilterFunction> table = {
        {"attr", attribute_filter},
        {"capitalize", by_method<kCapitalize>},
        {"center", center},
        {"d", default_filter},
        {"default", default_filter},
        {"e", escape_filter},
        {"escape", escape_filter},
        {"forceescape", force_escape},
        {"format", format_filter},
        {"indent", indent},
        {"lower", by_method<kLower>},
        {"pprint", pretty},
        {"replace", replace_filter},
        {"safe", safe},
        {"string", string_filter},
        {"striptags", strip_tags},
        {"title", title},
        {"tojson", to_json},
        {"trim", trim},
        {"truncate", truncate},
        {"upper", by_method<kUpper>},
        {"urlencode", url_encode},
        {"wordcount", word_count},
        {"wordwrap", word_wrap},
        {"xmlattr", xml_attributes},
    };
    return table;
}

}  // namespace

FilterFunction find_filter(std::string_view name) {
    if (const auto it = filters().find(name); it != filters().end()) return it->second;
    const FilterFunction number = find_number_filter(name);
    return number ? number : find_sequence_filter(name);
}

bool is_filter(const std::string& name) { return find_filter(name) != nullptr; }

Value Interpreter::call_filter(const std::string& name, const Value& value, Arguments&& a) {
    const FilterFunction f = find_filter(name);
    if (!f) raise("TemplateRuntimeError", "No filter named '" + name + "'.");
    step();
    if (value.is_undefined() && value.as_undefined().security && name != "default" && name != "d" &&
        name != "string")
        return f(*this, Value::undefined(value.as_undefined().message, true), std::move(a));
    return f(*this, value, std::move(a));
}

}  // namespace llmgen::jinja
