// The filters on numbers.
#include <cmath>
#include <map>

#include "text/jinja/eval.h"
#include "text/jinja/lexer.h"
#include "text/jinja/objects.h"

namespace llmgen::jinja {
namespace {

Value to_int(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_int", {"default", "base"}, a, 0);
    if (v.is_undefined()) raise_undefined(v);
    const Value otherwise = p.get(0, Value::integer(0));
    const std::int64_t base = p[1] ? index_value(*p[1]) : 10;
    if (v.is_integral()) return v.is_bool() ? Value::integer(v.as_int()) : v;
    double d = 0;
    if (v.is_string()) {
        if (base != 0 && (base < 2 || base > 36)) return otherwise;
        if (auto i = parse_int(v.text().view(), int(base))) return *i;
        const auto f = parse_float(v.text().view());
        if (!f) return otherwise;
        d = *f;
    } else if (v.is_float()) {
        d = v.as_float();
    } else {
        return otherwise;
    }
    if (!std::isfinite(d)) {
        if (v.is_float() && std::isinf(d)) raise("OverflowError", "cannot convert float infinity to integer");
        return otherwise;
    }
    in.step();
    return Value::integer(BigInt::from_double(d));
}

Value to_float(Interpreter&, const Value& v, Arguments&& a) {
    const Parameters p("do_float", {"default"}, a, 0);
    if (v.is_undefined()) raise_undefined(v);
    if (v.is_float()) return v;
    if (v.is_integral()) {
        const double d = v.to_big().to_double();
        if (std::isinf(d)) raise("OverflowError", "int too large to convert to float");
        return Value::floating(d);
    }
    if (v.is_string())
        if (const auto d = parse_float(v.text().view())) return Value::floating(*d);
    return p.get(0, Value::floating(0));
}

Value absolute(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("abs", {}, a, 0);
    if (v.is_undefined()) raise("TypeError", "bad operand type for abs(): 'Undefined'");
    if (!v.is_number()) raise("TypeError", "bad operand type for abs(): '" + type_name(v) + "'");
    if (v.is_float()) return Value::floating(std::fabs(v.as_float()));
    return compare(v, Value::integer(0), "<") == -1 ? in.negate(v) : Value::integer(v.to_big());
}

// The nearest multiple of 10^zeros, ties to even. `more`: the value is a fraction above `v`, which decides a
// tie. In whole numbers, since 10 to a power is no exact double beyond 22.
BigInt round_to_zeros(const BigInt& v, int zeros, bool more) {
    BigInt unit(1), quotient, rest, half_quotient, odd;
    for (int i = 0; i < zeros; ++i) unit = unit * BigInt(10);
    BigInt::divide(v, unit, quotient, rest);
    BigInt::divide(quotient, BigInt(2), half_quotient, odd);
    const int half = BigInt::compare(rest + rest, unit);
    if (half > 0 || (half == 0 && (more || !odd.zero()))) quotient = quotient + BigInt(1);
    return quotient * unit;
}

// Python's round: the decimal value that is nearest to the double itself, ties to even.
double round_half_even(double d, int digits) {
    if (!std::isfinite(d) || digits > 323) return d;
    if (digits >= 0) {
        char text[800];
        std::snprintf(text, sizeof text, "%.*f", digits, d);  // glibc rounds the exact value, ties to even
        return std::strtod(text, nullptr);
    }
    if (digits < -308) return std::copysign(0.0, d);
    const double size = std::fabs(d);
    const double rounded =
        round_to_zeros(BigInt::from_double(size), -digits, size != std::trunc(size)).to_double();
    if (std::isinf(rounded)) raise("OverflowError", "rounded value too large to represent");
    return std::copysign(rounded, d);
}

Value round_filter(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_round", {"precision", "method"}, a, 0);
    if (v.is_undefined()) raise("TypeError", "type Undefined doesn't define __round__ method");
    if (!v.is_number()) raise("TypeError", "type " + type_name(v) + " doesn't define __round__ method");
    const std::int64_t precision = p[0] ? std::clamp<std::int64_t>(index_value(*p[0]), -400, 400) : 0;
    const std::string method = p[1] && p[1]->is_string() ? std::string(p[1]->text().view())
                               : p[1]                    ? "?"
                                                         : "common";
    if (method != "common" && method != "ceil" && method != "floor")
        raise("FilterArgumentError", "method must be common, ceil or floor");
    const double d = v.is_float() ? v.as_float() : v.to_big().to_double();
    if (method != "common") {
        const Value scale = in.binary(Op::pow, Value::integer(10), Value::integer(precision));
        const double s = scale.is_float() ? scale.as_float() : scale.to_big().to_double();
        const double scaled = d * s;
        if (!std::isfinite(scaled)) raise("OverflowError", "cannot convert float infinity to integer");
        const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
        return Value::floating((whole == 0 ? 0.0 : whole) / s);  // an integer to Python, which has no -0
    }
    if (v.is_float()) return Value::floating(round_half_even(d, int(precision)));
    if (precision >= 0) return Value::integer(v.to_big());
    return Value::integer(round_to_zeros(v.to_big(), int(-precision), false));
}

Value file_size(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_filesizeformat", {"binary"}, a, 0);
    const bool binary = p[0] && in.truthy(*p[0]);
    if (v.is_string() && !parse_float(v.text().view()))
        raise("ValueError",
              "could not convert string to float: '" + std::string(v.text().view().substr(0, 60)) + "'");
    if (!v.is_undefined() && !v.is_string() && !v.is_number())
        raise("TypeError", "float() argument must be a string or a real number, not '" + type_name(v) + "'");
    const Value f = to_float(in, v, Arguments{});
    const double bytes = f.as_float(), base = binary ? 1024 : 1000;
    if (bytes == 1) return Value::string("1 Byte");
    if (bytes < base) {
        if (std::isinf(bytes)) raise("OverflowError", "cannot convert float infinity to integer");
        return Value::string(BigInt::from_double(bytes).to_string() + " Bytes");
    }
    double unit = base;
    static constexpr std::string_view kPrefixes = "KMGTPEZY";
    for (std::size_t i = 0; i < kPrefixes.size(); ++i) {
        unit *= base;
        if (!(bytes < unit) && i + 1 < kPrefixes.size()) continue;  // no number: the last
        char number[400];
        std::snprintf(number, sizeof number, "%.1f ", base * bytes / unit);
        std::string prefix(1, kPrefixes[i]);
        if (binary)
            prefix += "iB";
        else
            prefix = (i == 0 ? "k" : prefix) + "B";
        return Value::string(number + prefix);
    }
    return Value();
}

}  // namespace

FilterFunction find_number_filter(std::string_view name) {
    static const std::map<std::string_view, FilterFunction> table = {
        {"abs", absolute}, {"filesizeformat", file_size}, {"float", to_float},
        {"int", to_int},   {"round", round_filter},
    };
    const auto it = table.find(name);
    return it == table.end() ? nullptr : it->second;
}

}  // namespace llmgen::jinja
