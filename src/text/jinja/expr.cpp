// Expressions and Python's operators.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "text/jinja/eval.h"
#include "text/jinja/objects.h"

namespace llmgen::jinja {

Value Interpreter::evaluate(const Expr& e) {
    step();
    switch (e.kind) {
        case ExprKind::constant:
            return e.value;
        case ExprKind::name:
        case ExprKind::namespace_ref:
            return evaluate_name(e);
        case ExprKind::tuple:
        case ExprKind::list: {
            List items;
            items.reserve(e.children.size());
            for (const ExprPtr& c : e.children) items.push_back(evaluate(*c));
            return e.kind == ExprKind::list ? Value::list(std::move(items)) : Value::tuple(std::move(items));
        }
        case ExprKind::dict: {
            auto d = std::make_shared<Dict>();
            for (std::size_t i = 0; i < e.children.size(); i += 2) {
                Value key = evaluate(*e.children[i]);
                d->set(std::move(key), evaluate(*e.children[i + 1]));
            }
            return Value::dict(std::move(d));
        }
        case ExprKind::attribute: {
            const Value object = evaluate(*e.children[0]);
            offset_ = e.offset;
            return attribute(object, e.name);
        }
        case ExprKind::item: {
            const Value object = evaluate(*e.children[0]);
            const Value key = evaluate(*e.children[1]);
            offset_ = e.offset;
            return item(object, key);
        }
        case ExprKind::slice: {
            Value parts[4];
            for (std::size_t i = 0; i < 4; ++i)
                if (e.children[i]) parts[i] = evaluate(*e.children[i]);
            offset_ = e.offset;
            // The reference folds constants, by its own look-up, which answers undefined instead.
            if (e.folded && (parts[0].is_number() || parts[0].is_none() || parts[0].is_dict()))
                return Value::undefined(type_name(parts[0]) + " object has no element slice");
            return slice(parts[0], parts[1], parts[2], parts[3]);
        }
        case ExprKind::call:
            return evaluate_call(e);
        case ExprKind::filter:
            return evaluate_filter(e);
        case ExprKind::test:
            return evaluate_test(e);
        case ExprKind::binary: {
            const Value a = evaluate(*e.children[0]);
            const Value b = evaluate(*e.children[1]);
            offset_ = e.offset;
            return binary(e.op, a, b);
        }
        case ExprKind::compare:
            return evaluate_compare(e);
        case ExprKind::logical_not:
            return Value::boolean(!truthy(evaluate(*e.children[0])));
        case ExprKind::negative:
        case ExprKind::positive: {
            const Value v = evaluate(*e.children[0]);
            offset_ = e.offset;
            if (v.is_undefined()) raise_undefined(v);
            if (!v.is_number())
                raise("TypeError", std::string("bad operand type for unary ") +
                                       (e.kind == ExprKind::negative ? "-" : "+") + ": '" + type_name(v) +
                                       "'");
            return e.kind == ExprKind::negative ? negate(v) : v.is_bool() ? Value::integer(v.as_int()) : v;
        }
        case ExprKind::logical_and: {
            Value a = evaluate(*e.children[0]);
            return truthy(a) ? evaluate(*e.children[1]) : a;
        }
        case ExprKind::logical_or: {
            Value a = evaluate(*e.children[0]);
            return truthy(a) ? a : evaluate(*e.children[1]);
        }
        case ExprKind::concat:
            return evaluate_concat(e);
        case ExprKind::conditional:
            if (truthy(evaluate(*e.children[0]))) return evaluate(*e.children[1]);
            if (e.children[2]) return evaluate(*e.children[2]);
            return Value::undefined(
                "the inline if-expression on line " +
                std::to_string(1 + std::count(template_.source.begin(),
                                              template_.source.begin() + std::ptrdiff_t(e.offset), '\n')) +
                " evaluated to false and no else section was defined.");
    }
    return Value();
}

Value Interpreter::evaluate_name(const Expr& e) {
    if (e.place.slot < 0) return Value::undefined("'" + e.name + "' is undefined");
    const Value& v = at(e.place);
    if (is_missing(v)) return Value::undefined("'" + e.name + "' is undefined");
    return v;
}

bool Interpreter::compare_one(Op op, const Value& a, const Value& b) {
    charge(std::size_t(std::min(a.weight(), b.weight())));
    switch (op) {
        case Op::eq:
            return equal(a, b);
        case Op::ne:
            return !equal(a, b);
        case Op::lt:
            return compare(a, b, "<") == -1;
        case Op::gt:
            return compare(a, b, ">") == 1;
        case Op::lteq: {
            const int c = compare(a, b, "<=");
            return c == -1 || c == 0;
        }
        case Op::gteq: {
            const int c = compare(a, b, ">=");
            return c == 1 || c == 0;
        }
        case Op::in:
            return contains(b, a);
        default:
            return !contains(b, a);
    }
}

Value Interpreter::evaluate_compare(const Expr& e) {
    Value left = evaluate(*e.children[0]);
    for (std::size_t i = 0; i < e.ops.size(); ++i) {
        Value right = evaluate(*e.children[i + 1]);
        offset_ = e.offset;
        if (!compare_one(e.ops[i], left, right)) return Value::boolean(false);
        left = std::move(right);
    }
    return Value::boolean(true);
}

Arguments Interpreter::arguments(const CallArguments& a) {
    Arguments out;
    for (const ExprPtr& e : a.positional) out.positional.push_back(evaluate(*e));
    for (const auto& [key, e] : a.keyword) out.keyword.emplace_back(Text(key), evaluate(*e));
    if (a.spread) {
        const Value v = evaluate(*a.spread);
        if (!is_iterable(v)) raise("TypeError", "Value after * must be an iterable, not " + type_name(v));
        for (Value& item : to_list(v)) out.positional.push_back(std::move(item));
    }
    if (a.keyword_spread) {
        const Value v = evaluate(*a.keyword_spread);
        if (!v.is_dict()) raise("TypeError", "argument after ** must be a mapping, not " + type_name(v));
        for (const auto& [key, item] : v.as_dict().entries()) {
            if (!key.is_string()) raise("TypeError", "keywords must be strings");
            for (const auto& [other, ignored] : out.keyword)
                if (other == key.text())
                    raise("TypeError", "got multiple values for keyword argument '" +
                                           std::string(key.text().view()) + "'");
            out.keyword.emplace_back(key.text(), item);
        }
    }
    return out;
}

Value Interpreter::evaluate_call(const Expr& e, const Value* caller) {
    const Value callee = evaluate(*e.children[0]);
    Arguments a = arguments(*e.arguments);
    if (caller) a.keyword.emplace_back(Text("caller"), *caller);
    offset_ = e.offset;
    return call(callee, std::move(a));
}

Value Interpreter::call(const Value& callee, Arguments&& a) {
    step();
    if (callee.is_undefined()) raise_undefined(callee);
    if (Object* o = callee.is_object() ? callee.as_object() : nullptr; o && o->callable())
        return o->call(*this, std::move(a));
    raise("TypeError", "'" + type_name(callee) + "' object is not callable");
}

Value Interpreter::evaluate_filter(const Expr& e, const Value* input) {
    CHECK(e.children[0] || input);
    const Value value = e.children[0] ? evaluate_filter_input(e, input) : *input;
    Arguments a = arguments(*e.arguments);
    offset_ = e.offset;
    if (e.checked_late) raise("TemplateRuntimeError", "No filter named '" + e.name + "' found.");
    return call_filter(e.name, value, std::move(a));
}

// Inside a filter block the innermost filter of the chain takes the block's text.
Value Interpreter::evaluate_filter_input(const Expr& e, const Value* input) {
    if (input && e.children[0]->kind == ExprKind::filter) return evaluate_filter(*e.children[0], input);
    return evaluate(*e.children[0]);
}

Value Interpreter::evaluate_test(const Expr& e) {
    const Value value = evaluate(*e.children[0]);
    Arguments a = arguments(*e.arguments);
    offset_ = e.offset;
    if (e.checked_late) raise("TemplateRuntimeError", "No test named '" + e.name + "' found.");
    return Value::boolean(call_test(e.name, value, std::move(a)));
}

Value Interpreter::evaluate_concat(const Expr& e) {
    std::vector<Value> parts;
    bool markup = false;
    for (const ExprPtr& c : e.children) {
        parts.push_back(evaluate(*c));
        markup |= parts.back().is_markup();
    }
    markup &= autoescape;
    TextBuilder out;
    for (const Value& v : parts) out.append(markup ? escape(v).text() : str(v));
    return own(out.finish(), markup);
}

// --- operators ---

namespace {

std::string_view symbol(Op op) {
    switch (op) {
        case Op::add:
            return "+";
        case Op::sub:
            return "-";
        case Op::mul:
            return "*";
        case Op::div:
            return "/";
        case Op::floordiv:
            return "//";
        case Op::mod:
            return "%";
        default:
            return "** or pow()";
    }
}

double to_double(const Value& v) {
    if (v.is_float()) return v.as_float();
    if (v.type() != Type::big_integer) return double(v.as_int());
    const double d = v.as_big().to_double();
    if (std::isinf(d)) raise("OverflowError", "int too large to convert to float");
    return d;
}

double float_mod(double a, double b) {
    double m = std::fmod(a, b);
    if (m != 0) {
        if ((b < 0) != (m < 0)) m += b;
    } else {
        m = std::copysign(0.0, b);
    }
    return m;
}

Value float_operation(Op op, double a, double b) {
    switch (op) {
        case Op::add:
            return Value::floating(a + b);
        case Op::sub:
            return Value::floating(a - b);
        case Op::mul:
            return Value::floating(a * b);
        case Op::div:
            if (b == 0) raise("ZeroDivisionError", "float division by zero");
            return Value::floating(a / b);
        case Op::mod:
            if (b == 0) raise("ZeroDivisionError", "float modulo");
            return Value::floating(float_mod(a, b));
        case Op::floordiv: {
            if (b == 0) raise("ZeroDivisionError", "float floor division by zero");
            const double m = std::fmod(a, b);
            const double quotient = (a - m) / b - (m != 0 && (b < 0) != (m < 0) ? 1 : 0);
            if (quotient == 0) return Value::floating(std::copysign(0.0, a / b));
            double floor = std::floor(quotient);
            if (quotient - floor > 0.5) floor += 1;
            return Value::floating(floor);
        }
        default: {
            if (a == 0 && b < 0) raise("ZeroDivisionError", "0.0 cannot be raised to a negative power");
            if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
                raise("ValueError", "a complex result: chat templates have no complex numbers");
            const double r = std::pow(a, b);
            if (std::isinf(r) && std::isfinite(a) && std::isfinite(b))
                raise("OverflowError", "(34, 'Numerical result out of range')");
            return Value::floating(r);
        }
    }
}

Value int_power(const Value& base, const Value& exponent) {
    const BigInt b = base.to_big(), e = exponent.to_big();
    if (e.negative()) {
        if (b.zero()) raise("ZeroDivisionError", "0.0 cannot be raised to a negative power");
        return float_operation(Op::pow, to_double(base), to_double(exponent));
    }
    const auto n = e.to_int64();
    constexpr std::int64_t kRoughly = 1 << 17;  // bits of the base times exponent: up to twice the result's
    if (b.bits() > 1 && (!n || *n > kRoughly || *n * std::int64_t(b.bits()) > kRoughly))
        raise("OverflowError", "a power of more than 65536 bits");
    BigInt result(1), square = b;
    if (b.bits() <= 1) {  // 0, 1 or −1
        if (b.zero()) return Value::integer(!n || *n > 0 ? 0 : 1);
        const bool odd = !e.zero() && (e.to_string().back() - '0') % 2 == 1;
        return Value::integer(b.negative() && odd ? -1 : 1);
    }
    for (std::int64_t rest = *n; rest > 0; rest >>= 1) {
        if (rest & 1) result = result * square;
        if (rest > 1) square = square * square;
    }
    return Value::integer(result);
}

Value int_operation(Op op, const Value& a, const Value& b) {
    if (op == Op::pow) return int_power(a, b);
    const bool b_zero = b.type() != Type::big_integer && b.as_int() == 0;
    if (b_zero && op == Op::div) raise("ZeroDivisionError", "division by zero");
    if (b_zero && op == Op::mod) raise("ZeroDivisionError", "integer modulo by zero");
    if (b_zero && op == Op::floordiv) raise("ZeroDivisionError", "integer division or modulo by zero");
    if (a.type() != Type::big_integer && b.type() != Type::big_integer) {
        const std::int64_t x = a.as_int(), y = b.as_int();
        std::int64_t r = 0;
        if (op == Op::div)
            return Value::floating(double(static_cast<long double>(x) / static_cast<long double>(y)));
        if (op == Op::add && !__builtin_add_overflow(x, y, &r)) return Value::integer(r);
        if (op == Op::sub && !__builtin_sub_overflow(x, y, &r)) return Value::integer(r);
        if (op == Op::mul && !__builtin_mul_overflow(x, y, &r)) return Value::integer(r);
        if ((op == Op::floordiv || op == Op::mod) && !(x == INT64_MIN && y == -1)) {
            std::int64_t q = x / y, m = x % y;
            if (m != 0 && (m < 0) != (y < 0)) {
                m += y;
                --q;
            }
            return Value::integer(op == Op::mod ? m : q);
        }
    }
    const BigInt x = a.to_big(), y = b.to_big();
    switch (op) {
        case Op::add:
            return Value::integer(x + y);
        case Op::sub:
            return Value::integer(x - y);
        case Op::mul:
            return Value::integer(x * y);
        case Op::div:
            return Value::floating(to_double(a) / to_double(b));
        default: {
            BigInt q, m;
            BigInt::divide(x, y, q, m);
            return Value::integer(op == Op::mod ? m : q);
        }
    }
}

}  // namespace

Value Interpreter::negate(const Value& v) {
    if (v.is_float()) return Value::floating(-v.as_float()).with_user(v.from_user());
    if (v.type() == Type::big_integer || v.as_int() == INT64_MIN) return Value::integer(-v.to_big());
    return Value::integer(-v.as_int()).with_user(v.from_user());
}

Value Interpreter::numeric(Op op, const Value& a, const Value& b) {
    Value r = a.is_integral() && b.is_integral() ? int_operation(op, a, b)
                                                 : float_operation(op, to_double(a), to_double(b));
    return r.with_user(a.from_user() || b.from_user());
}

Value Interpreter::repeat(const Value& sequence, const Value& count) {
    std::int64_t n =
        count.type() == Type::big_integer ? (count.as_big().negative() ? 0 : INT64_MAX) : count.as_int();
    n = std::max<std::int64_t>(n, 0);
    const std::size_t size = sequence.is_string() ? sequence.text().size() : sequence.items().size();
    if (size > 0 && std::uint64_t(n) > kMaxText / size)
        raise("ResourceError", "a repetition that is too long");
    if (sequence.is_string()) {
        TextBuilder out;
        if (size > 0)
            for (std::int64_t i = 0; i < n; ++i) out.append(sequence.text());
        return own(out.finish(), sequence.is_markup());
    }
    charge(std::size_t(n) * size * sizeof(Value));
    List items;
    items.reserve(std::size_t(n) * size);
    if (size > 0)
        for (std::int64_t i = 0; i < n; ++i)
            items.insert(items.end(), sequence.items().begin(), sequence.items().end());
    return sequence.is_list() ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

Value Interpreter::binary(Op op, const Value& a, const Value& b) {
    if (a.is_number() && b.is_number()) return numeric(op, a, b);
    const auto sequence = [](const Value& v) { return v.is_string() || v.is_list() || v.is_tuple(); };
    if (op == Op::mod && a.is_string()) return percent_format(*this, a, b);
    if (a.is_undefined()) raise_undefined(a);
    if (b.is_undefined()) raise_undefined(b);
    if (op == Op::add && a.is_string() && b.is_string()) {
        TextBuilder out;
        const bool markup = a.is_markup() || b.is_markup();
        out.append(markup ? escape(a).text() : a.text());
        out.append(markup ? escape(b).text() : b.text());
        return own(out.finish(), markup);
    }
    if (op == Op::add && ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple()))) {
        charge((a.items().size() + b.items().size()) * sizeof(Value));
        List items = a.items();
        items.insert(items.end(), b.items().begin(), b.items().end());
        return a.is_list() ? Value::list(std::move(items)) : Value::tuple(std::move(items));
    }
    if (op == Op::mul && (sequence(a) || sequence(b))) {
        const Value &s = sequence(a) ? a : b, &n = sequence(a) ? b : a;
        if (n.is_integral()) return repeat(s, n);
        raise("TypeError", "can't multiply sequence by non-int of type '" + type_name(n) + "'");
    }
    if (op == Op::add && sequence(a)) {
        const std::string name = a.is_string() ? "str" : a.is_list() ? "list" : "tuple";
        raise("TypeError", "can only concatenate " + name + " (not \"" + type_name(b) + "\") to " + name);
    }
    raise("TypeError", "unsupported operand type(s) for " + std::string(symbol(op)) + ": '" + type_name(a) +
                           "' and '" + type_name(b) + "'");
}

}  // namespace llmgen::jinja
