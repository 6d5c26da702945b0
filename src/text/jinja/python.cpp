// What Python does with values: truth, printing, iteration, look-up, slices; and the sandbox's rules on
// attributes.
#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "text/jinja/eval.h"
#include "text/jinja/objects.h"
#include "text/jinja/unicode.h"

namespace llmgen::jinja {

bool Interpreter::truthy(const Value& v) {
    switch (v.type()) {
        case Type::undefined:
        case Type::none:
            return false;
        case Type::boolean:
            return v.as_bool();
        case Type::integer:
            return v.as_int() != 0;
        case Type::big_integer:
            return true;
        case Type::floating:
            return v.as_float() != 0;
        case Type::string:
            return !v.text().empty();
        case Type::list:
        case Type::tuple:
            return !v.items().empty();
        case Type::dict:
            return v.as_dict().size() > 0;
        case Type::object:
            return v.as_object()->truthy(*this);
    }
    return true;
}

// --- printing ---

// [{"type": "text", …}, …]: what only a message's content looks like.
bool Interpreter::is_content_parts(const Value& v) {
    if (!v.is_list() || v.items().empty()) return false;
    for (const Value& part : v.items()) {
        if (!part.is_dict()) return false;
        const Value* type = part.as_dict().find("type");
        if (!type || !type->is_string() || !type->text().any_user()) return false;
    }
    return true;
}

Text Interpreter::str(const Value& v) {
    if (v.is_string()) return v.text();
    if (v.is_undefined()) return Text();
    if (is_content_parts(v)) printed_parts = true;
    return repr(v);
}

Value Interpreter::soft_str(const Value& v) { return v.is_string() ? v : own(str(v)); }

Value Interpreter::escape(const Value& v) {
    if (v.is_markup()) return v;
    return own(escape_html(str(v)), true);
}

Text Interpreter::repr(const Value& v) {
    TextBuilder out;
    repr_into(v, out);
    charge(out.size());
    return out.finish();
}

// Python's choice: single quotes, unless there are single quotes and no double ones.
void repr_string(const Text& text, TextBuilder& out) {
    const std::string_view bytes = text.view();
    const char quote =
        bytes.find('\'') != std::string_view::npos && bytes.find('"') == std::string_view::npos ? '"' : '\'';
    const std::string_view q(&quote, 1);
    out.append(q);
    for (TextReader r(text); !r.done();) {
        const std::size_t begin = r.at();
        const char32_t c = r.next();
        char code[12] = "";
        if (c == '\n')
            out.append("\\n", r.user());
        else if (c == '\r')
            out.append("\\r", r.user());
        else if (c == '\t')
            out.append("\\t", r.user());
        else if (c == '\\' || c == char32_t(quote)) {
            out.append("\\", r.user());
            out.append(text, begin, r.at());
        } else if (!unicode::is_printable(c)) {
            std::snprintf(code, sizeof code,
                          c < 0x100     ? "\\x%02x"
                          : c < 0x10000 ? "\\u%04x"
                                        : "\\U%08x",
                          unsigned(c));
            out.append(code, r.user());
        } else {
            out.append(text, begin, r.at());
        }
    }
    out.append(q);
}

void Interpreter::repr_into(const Value& v, TextBuilder& out) {
    step();
    const auto sequence = [&](const List& items, std::string_view open, std::string_view close) {
        out.append(open);
        for (std::size_t i = 0; i < items.size(); ++i) {
            if (i) out.append(", ");
            repr_into(items[i], out);
        }
        if (close == ")" && items.size() == 1) out.append(",");
        out.append(close);
    };
    const auto dict = [&](const Dict& d) {
        out.append("{");
        for (std::size_t i = 0; i < d.size(); ++i) {
            if (i) out.append(", ");
            repr_into(d.entries()[i].first, out);
            out.append(": ");
            repr_into(d.entries()[i].second, out);
        }
        out.append("}");
    };
    switch (v.type()) {
        case Type::undefined:
            out.append("Undefined");
            return;
        case Type::string:
            if (v.is_markup()) out.append("Markup(");
            repr_string(v.text(), out);
            if (v.is_markup()) out.append(")");
            return;
        case Type::list:
            sequence(v.items(), "[", "]");
            return;
        case Type::tuple:
            sequence(v.items(), "(", ")");
            return;
        case Type::dict:
            dict(v.as_dict());
            return;
        case Type::object:
            break;
        default:
            out.append(scalar_text(v), v.from_user());
            return;
    }
    if (const auto* view = v.as<DictView>()) {
        List items;
        for (std::size_t i = 0; i < view->dict->size(); ++i) items.push_back(view->at(i));
        out.append(view->type_name());
        sequence(items, "([", "])");
    } else if (auto* ns = v.as<Namespace>()) {
        out.append("<Namespace ");
        dict(ns->attributes);
        out.append(">");
    } else {
        out.append(v.as_object()->repr(*this));
    }
}

// --- iteration ---

bool Interpreter::is_iterable(const Value& v) {
    if (v.is_object()) return bool(v.as_object()->iterate(*this));
    return v.is_undefined() || v.is_string() || v.is_list() || v.is_tuple() || v.is_dict();
}

Iterator Interpreter::iterate(const Value& v) {
    switch (v.type()) {
        case Type::undefined:
            if (v.as_undefined().security) raise_undefined(v);
            return [] { return std::optional<Value>(); };
        case Type::string:
            return [v, at = std::size_t(0)]() mutable -> std::optional<Value> {
                if (at >= v.text().size()) return std::nullopt;
                TextReader r(v.text(), at);
                r.next();
                const std::size_t begin = at;
                at = r.at();
                return Value::string(v.text().slice(begin, at));
            };
        case Type::list:
            if (is_content_parts(v)) went_through_parts = true;
            [[fallthrough]];
        case Type::tuple:
            return [v, i = std::size_t(0)]() mutable -> std::optional<Value> {
                if (i >= v.items().size()) return std::nullopt;
                return v.items()[i++];
            };
        case Type::dict:
            return [d = v.dict_ptr(), i = std::size_t(0)]() mutable -> std::optional<Value> {
                if (i >= d->size()) return std::nullopt;
                return d->entries()[i++].first;
            };
        case Type::object:
            if (Iterator next = v.as_object()->iterate(*this)) return next;
            break;
        default:
            break;
    }
    raise("TypeError", "'" + type_name(v) + "' object is not iterable");
}

List Interpreter::to_list(const Value& v) {
    if (v.is_list() || v.is_tuple()) {
        if (is_content_parts(v)) went_through_parts = true;
        charge(v.items().size() * sizeof(Value));
        return v.items();
    }
    List out;
    const Iterator next = iterate(v);
    while (auto item = next()) {
        step();
        charge(sizeof(Value));
        out.push_back(std::move(*item));
    }
    return out;
}

std::optional<std::int64_t> Interpreter::length(const Value& v) {
    switch (v.type()) {
        case Type::undefined:
            if (v.as_undefined().security) raise_undefined(v);
            return 0;
        case Type::string:
            return std::int64_t(v.text().length());
        case Type::list:
        case Type::tuple:
            return std::int64_t(v.items().size());
        case Type::dict:
            return std::int64_t(v.as_dict().size());
        case Type::object:
            return v.as_object()->length(*this);
        default:
            return std::nullopt;
    }
}

bool Interpreter::contains(const Value& container, const Value& item) {
    if (container.is_string()) {
        if (!item.is_string())
            raise("TypeError", "'in <string>' requires string as left operand, not " + type_name(item));
        charge(container.text().size() / 16);
        return container.text().view().find(item.text().view()) != std::string_view::npos;
    }
    if (container.is_dict()) return container.as_dict().find(item) != nullptr;
    if (!is_iterable(container))
        raise("TypeError", "argument of type '" + type_name(container) + "' is not iterable");
    if (const auto* r = container.as<Range>(); r && item.is_integral()) {
        if (item.type() == Type::big_integer) return false;
        const std::int64_t i = item.as_int();
        return (r->step > 0 ? i >= r->start && i < r->stop : i <= r->start && i > r->stop) &&
               (i - r->start) % r->step == 0;
    }
    const bool parts = went_through_parts;
    const Iterator next = iterate(container);
    went_through_parts = parts;  // `x in content` is no going through it
    while (const auto v = next()) {
        step();
        charge(std::size_t(std::min(v->weight(), item.weight())));
        if ((v->identity() && v->identity() == item.identity()) || equal(*v, item)) return true;
    }
    return false;
}

// --- look-up ---

namespace {

// What every object of Python's has; the reference says "unsafe" for these and "no attribute" for others.
bool is_known_internal(std::string_view name) {
    static constexpr std::array kNames = {
        "__class__",    "__delattr__", "__dir__",           "__doc__",          "__eq__",
        "__format__",   "__ge__",      "__getattribute__",  "__getstate__",     "__gt__",
        "__hash__",     "__init__",    "__init_subclass__", "__le__",           "__lt__",
        "__ne__",       "__new__",     "__reduce__",        "__reduce_ex__",    "__repr__",
        "__setattr__",  "__sizeof__",  "__str__",           "__subclasshook__", "__globals__",
        "__code__",     "__closure__", "__defaults__",      "__dict__",         "__module__",
        "__name__",     "__call__",    "__len__",           "__iter__",         "__getitem__",
        "__contains__", "__add__",     "__mul__",           "__mod__",          "__getnewargs__",
        "__func__",     "__self__"};
    return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::string object_repr(const Value& v) { return v.is_none() ? "None" : type_name(v) + " object"; }

Value unsafe(const Value& object, std::string_view name) {
    return Value::undefined(
        "access to attribute '" + std::string(name) + "' of '" + type_name(object) + "' object is unsafe.",
        true);
}

Value no_attribute(const Value& object, std::string_view name) {
    return Value::undefined("'" + object_repr(object) + "' has no attribute '" + std::string(name) + "'");
}

// getattr and the sandbox's verdict; nullopt: AttributeError.
std::optional<Value> safe_attribute(Interpreter& in, const Value& object, std::string_view name) {
    if (name.substr(0, 2) == "__") {
        if (is_known_internal(name)) return unsafe(object, name);
        return std::nullopt;
    }
    if (object.is_object()) {
        if (auto v = object.as_object()->attribute(in, name)) return v;
        return std::nullopt;
    }
    return find_method(in, object, name);
}

// object[key]; nullopt: LookupError or TypeError.
std::optional<Value> plain_item(Interpreter& in, const Value& object, const Value& key) {
    switch (object.type()) {
        case Type::undefined:
            raise_undefined(object);
        case Type::dict:
            if (!is_hashable(key)) return std::nullopt;
            if (const Value* v = object.as_dict().find(key)) return *v;
            return std::nullopt;
        case Type::string:
        case Type::list:
        case Type::tuple: {
            if (!key.is_integral() || key.type() == Type::big_integer) return std::nullopt;
            const std::size_t size = object.is_string() ? object.text().length() : object.items().size();
            const auto i = clamp_index(key.as_int(), size);
            if (!i) return std::nullopt;
            if (Interpreter::is_content_parts(object)) in.went_through_parts = true;
            if (!object.is_string()) return object.items()[*i];
            if (!object.text().is_ascii()) in.charge(*i);
            const std::size_t begin = object.text().offset(*i);
            TextReader r(object.text(), begin);
            r.next();
            return Value::string(object.text().slice(begin, r.at()), object.is_markup());
        }
        case Type::object:
            return object.as_object()->item(in, key);
        default:
            return std::nullopt;
    }
}

}  // namespace

Value Interpreter::attribute(const Value& object, std::string_view name) {
    if (object.is_undefined()) raise_undefined(object);
    if (auto v = safe_attribute(*this, object, name)) return *v;
    if (object.is_dict())
        if (const Value* v = object.as_dict().find(name)) return *v;
    return no_attribute(object, name);
}

Value Interpreter::item(const Value& object, const Value& key) {
    if (auto v = plain_item(*this, object, key)) return *v;
    if (key.is_string()) {
        if (auto v = safe_attribute(*this, object, key.text().view())) return *v;
        return no_attribute(object, key.text().view());
    }
    return Value::undefined(object_repr(object) + " has no element " + std::string(repr(key).view()));
}

Value Interpreter::slice(const Value& object,
                         const Value& start,
                         const Value& stop,
                         const Value& step_value) {
    if (object.is_undefined()) raise_undefined(object);
    if (object.is_dict()) raise("TypeError", "unhashable type: 'slice'");
    auto* range = object.as<Range>();
    if (!object.is_string() && !object.is_list() && !object.is_tuple() && !range)
        raise("TypeError", "'" + type_name(object) + "' object is not subscriptable");
    const auto number = [&](const Value& v, std::int64_t otherwise) -> std::int64_t {
        if (v.is_none()) return otherwise;
        if (v.is_undefined() || !v.is_integral())
            raise("TypeError", "slice indices must be integers or None or have an __index__ method");
        if (v.type() == Type::big_integer) return v.as_big().negative() ? INT64_MIN / 4 : INT64_MAX / 4;
        return std::clamp<std::int64_t>(v.as_int(), INT64_MIN / 4, INT64_MAX / 4);
    };
    const std::int64_t n = *length(object);
    std::int64_t step = number(step_value, 1);
    if (step == 0) raise("ValueError", "slice step cannot be zero");
    step = std::clamp(step, -n - 1, n + 1);
    const auto clamp = [&](std::int64_t i) {
        if (i < 0) i += n;
        return std::clamp<std::int64_t>(i, step > 0 ? 0 : -1, step > 0 ? n : n - 1);
    };
    const std::int64_t first = start.is_none() ? (step > 0 ? 0 : n - 1) : clamp(number(start, 0));
    const std::int64_t last = stop.is_none() ? (step > 0 ? n : -1) : clamp(number(stop, 0));
    if (range) {
        auto r = std::make_shared<Range>();
        r->start = range->start + first * range->step;
        r->stop = range->start + last * range->step;
        r->step = range->step * step;
        return Value::object(std::move(r));
    }
    if (object.is_string()) {
        const Text& text = object.text();
        if (!text.is_ascii()) charge(text.size() / 8);
        if (step == 1)
            return own(first < last
                           ? text.slice(text.offset(std::size_t(first)), text.offset(std::size_t(last)))
                           : Text(),
                       object.is_markup());
        std::vector<std::size_t> offsets;  // of each character
        for (TextReader r(text); !r.done(); r.next()) offsets.push_back(r.at());
        offsets.push_back(text.size());
        charge(offsets.size() * sizeof(std::size_t));
        TextBuilder out;
        for (std::int64_t i = first; step > 0 ? i < last : i > last; i += step)
            out.append(text, offsets[std::size_t(i)], offsets[std::size_t(i) + 1]);
        return own(out.finish(), object.is_markup());
    }
    List out;
    for (std::int64_t i = first; step > 0 ? i < last : i > last; i += step)
        out.push_back(object.items()[std::size_t(i)]);
    charge(out.size() * sizeof(Value));
    return object.is_list() ? Value::list(std::move(out)) : Value::tuple(std::move(out));
}

}  // namespace llmgen::jinja
