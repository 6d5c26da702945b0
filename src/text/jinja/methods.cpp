// The methods of lists, tuples, dicts and numbers that the sandbox lets a template call, and which methods a
// value has. Those of str are in string_methods.cpp.
#include <algorithm>
#include <cmath>

#include "text/jinja/eval.h"
#include "text/jinja/objects.h"

namespace llmgen::jinja {

void no_arguments(const std::string& method, const Arguments& a) {
    if (!a.keyword.empty()) raise("TypeError", method + "() takes no keyword arguments");
    if (!a.positional.empty())
        raise("TypeError",
              method + "() takes no arguments (" + std::to_string(a.positional.size()) + " given)");
}

namespace {

bool among(std::string_view name, std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

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
