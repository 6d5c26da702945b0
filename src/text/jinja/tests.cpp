// The tests: `x is name(argument)`.
#include <map>

#include "text/jinja/eval.h"
#include "text/jinja/objects.h"

namespace llmgen::jinja {
namespace {

using Test = bool (*)(Interpreter&, const Value&, Arguments&&);

template <Op op>
bool relation(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("test", {"other"}, a, 1);
    in.charge(std::size_t(std::min(v.weight(), p[0]->weight())));
    switch (op) {
        case Op::eq:
            return equal(v, *p[0]);
        case Op::ne:
            return !equal(v, *p[0]);
        case Op::lt:
            return compare(v, *p[0], "<") == -1;
        case Op::gt:
            return compare(v, *p[0], ">") == 1;
        case Op::lteq: {
            const int c = compare(v, *p[0], "<=");
            return c == -1 || c == 0;
        }
        default: {
            const int c = compare(v, *p[0], ">=");
            return c == 1 || c == 0;
        }
    }
}

bool remainder_is(Interpreter& in, const Value& v, const Value& divisor, std::int64_t wanted) {
    return equal(in.binary(Op::mod, v, divisor), Value::integer(wanted));
}

bool is_sequence(Interpreter& in, const Value& v) {
    if (v.is_undefined()) return !v.as_undefined().security;
    if (v.is_string() || v.is_list() || v.is_tuple() || v.is_dict()) return true;
    return v.is_object() && v.as_object()->subscriptable() && in.length(v).has_value();
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is_bool(); }
bool is_true(const Value& v) { return v.is_bool() && v.as_bool(); }
bool is_false(const Value& v) { return v.is_bool() && !v.as_bool(); }
bool is_integer(const Value& v) { return v.is_int(); }
bool is_float(const Value& v) { return v.is_float(); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is_dict(); }
bool is_escaped(const Value& v) { return v.is_markup(); }

template <bool (*f)(const Value&)>
bool plain(Interpreter&, const Value& v, Arguments&& a) {
    const Parameters p("test", {}, a, 0);
    return f(v);
}

std::string text_of(Interpreter& in, const Value& v) { return std::string(in.str(v).view()); }

bool case_test(Interpreter& in, const Value& v, const char* method) {
    const Value answer = string_method(in, Value::string(in.str(v)), method, Arguments{});
    return answer.as_bool();
}

const std::map<std::string_view, Test>& tests() {
    static const std::map<std::string_view, Test> table = {
        {"defined", plain<is_defined>},
        {"undefined", plain<is_undefined>},
        {"none", plain<is_none>},
        {"boolean", plain<is_boolean>},
        {"true", plain<is_true>},
        {"false", plain<is_false>},
        {"integer", plain<is_integer>},
        {"float", plain<is_float>},
        {"number", plain<is_number>},
        {"string", plain<is_string>},
        {"mapping", plain<is_mapping>},
        {"callable", plain<is_callable>},
        {"escaped", plain<is_escaped>},
        {"iterable", [](Interpreter& in, const Value& v, Arguments&&) { return in.is_iterable(v); }},
        {"sequence", [](Interpreter& in, const Value& v, Arguments&&) { return is_sequence(in, v); }},
        {"odd", [](Interpreter& in, const Value& v,
                   Arguments&&) { return remainder_is(in, v, Value::integer(2), 1); }},
        {"even", [](Interpreter& in, const Value& v,
                    Arguments&&) { return remainder_is(in, v, Value::integer(2), 0); }},
        {"divisibleby",
         [](Interpreter& in, const Value& v, Arguments&& a) {
             const Parameters p("test_divisibleby", {"num"}, a, 1);
             return remainder_is(in, v, *p[0], 0);
         }},
        {"lower", [](Interpreter& in, const Value& v, Arguments&&) { return case_test(in, v, "islower"); }},
        {"upper", [](Interpreter& in, const Value& v, Arguments&&) { return case_test(in, v, "isupper"); }},
        {"filter", [](Interpreter& in, const Value& v,
                      Arguments&&) { return v.is_string() && is_filter(text_of(in, v)); }},
        {"test", [](Interpreter& in, const Value& v,
                    Arguments&&) { return v.is_string() && is_test(text_of(in, v)); }},
        {"sameas",
         [](Interpreter&, const Value& v, Arguments&& a) {
             const Parameters p("test_sameas", {"other"}, a, 1);
             if (v.type() != p[0]->type()) return false;
             if (v.is_list() || v.is_tuple() || v.is_dict() || v.is_object())
                 return v.identity() == p[0]->identity();
             return equal(v, *p[0]);
         }},
        {"in",
         [](Interpreter& in, const Value& v, Arguments&& a) {
             const Parameters p("test_in", {"seq"}, a, 1);
             return in.contains(*p[0], v);
         }},
        {"==", relation<Op::eq>},
        {"eq", relation<Op::eq>},
        {"equalto", relation<Op::eq>},
        {"!=", relation<Op::ne>},
        {"ne", relation<Op::ne>},
        {">", relation<Op::gt>},
        {"gt", relation<Op::gt>},
        {"greaterthan", relation<Op::gt>},
        {">=", relation<Op::gteq>},
        {"ge", relation<Op::gteq>},
        {"<", relation<Op::lt>},
        {"lt", relation<Op::lt>},
        {"lessthan", relation<Op::lt>},
        {"<=", relation<Op::lteq>},
        {"le", relation<Op::lteq>},
    };
    return table;
}

}  // namespace

TestFunction find_test(std::string_view name) {
    const auto it = tests().find(name);
    return it == tests().end() ? nullptr : it->second;
}

bool is_test(const std::string& name) { return find_test(name) != nullptr; }

bool Interpreter::call_test(const std::string& name, const Value& value, Arguments&& a) {
    const TestFunction f = find_test(name);
    if (!f) raise("TemplateRuntimeError", "No test named '" + name + "'.");
    step();
    return f(*this, value, std::move(a));
}

}  // namespace llmgen::jinja
