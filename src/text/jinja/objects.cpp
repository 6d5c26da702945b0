#include "text/jinja/objects.h"

#include <algorithm>

namespace llmgen::jinja {

Value bind_function(std::string name, std::function<Value(Interpreter&, Arguments&&)> f, int depth) {
    if (depth >= kMaxDepth) raise("RecursionError", "a value nested too deeply");
    auto o = std::make_shared<Function>();
    o->depth_ = depth + 1;
    o->name = std::move(name);
    o->f = std::move(f);
    return Value::object(std::move(o));
}

Value shown_as(Value function, std::function<std::string(Interpreter&)> text) {
    static_cast<Function&>(*function.as_object()).shown = std::move(text);
    return function;
}

Value make_generator(Iterator next, std::string name, int depth) {
    if (depth >= kMaxDepth) raise("RecursionError", "a value nested too deeply");
    auto g = std::make_shared<Generator>();
    g->next = std::make_shared<Iterator>(std::move(next));
    g->depth_ = depth + 1;
    g->name = std::move(name);
    return Value::object(std::move(g));
}

bool is_callable(const Value& v) {
    if (v.is_undefined()) return true;  // the reference's Undefined has __call__
    return v.is_object() && v.as_object() && v.as_object()->callable();
}

std::int64_t index_value(const Value& v, std::string_view what) {
    if (v.is_undefined()) raise("TypeError", "'Undefined' object cannot be interpreted as an integer");
    if (!v.is_integral())
        raise("TypeError",
              std::string(what) + "'" + type_name(v) + "' object cannot be interpreted as an integer");
    if (v.type() == Type::big_integer) raise("OverflowError", "Python int too large to convert to C ssize_t");
    return v.as_int();
}

Text text_argument(const Value& v, const char* what) {
    if (!v.is_string()) raise("TypeError", std::string(what) + " must be str, not " + type_name(v));
    return v.text();
}

Parameters::Parameters(std::string_view function,
                       std::initializer_list<std::string_view> names,
                       const Arguments& a,
                       std::size_t required)
    : values_(names.size(), nullptr) {
    const std::string f = std::string(function) + "()";
    // What Python says of a function of its own, which counts the filtered value, and of one written in C.
    const bool python = function.substr(0, 3) == "do_" || function.substr(0, 5) == "test_" ||
                        function.find('<') != function.npos;
    const std::size_t self = python ? 1 : 0;
    if (python && a.positional.size() > names.size()) {
        const std::size_t most = names.size() + self, least = required + self;
        raise("TypeError", f + " takes " + (least < most ? "from " + std::to_string(least) + " to " : "") +
                               std::to_string(most) + " positional argument" +
                               (most == 1 && least == most ? "" : "s") + " but " +
                               std::to_string(a.positional.size() + self) + " were given");
    }
    if (a.positional.size() > names.size())
        raise("TypeError", f + " takes at most " + std::to_string(names.size()) + " arguments (" +
                               std::to_string(a.positional.size()) + " given)");
    for (std::size_t i = 0; i < a.positional.size(); ++i) values_[i] = &a.positional[i];
    for (const auto& [key, v] : a.keyword) {
        const auto it = std::find(names.begin(), names.end(), key.view());
        if (it == names.end() || it->empty())
            raise("TypeError", f + " got an unexpected keyword argument '" + std::string(key.view()) + "'");
        const Value*& slot = values_[std::size_t(it - names.begin())];
        if (slot)
            raise("TypeError", f + " got multiple values for argument '" + std::string(key.view()) + "'");
        slot = &v;
    }
    for (std::size_t i = 0; i < required; ++i)
        if (!values_[i])
            raise("TypeError", f +
                                   (python ? " missing 1 required positional argument: '"
                                           : " missing required argument: '") +
                                   std::string(names.begin()[i]) + "'");
}

// --- range ---

std::string Range::repr(Interpreter&) const {
    std::string s = "range(" + std::to_string(start) + ", " + std::to_string(stop);
    if (step != 1) s += ", " + std::to_string(step);
    return s + ")";
}

std::optional<Value> Range::attribute(Interpreter&, std::string_view name) {
    if (name == "start") return Value::integer(start);
    if (name == "stop") return Value::integer(stop);
    if (name == "step") return Value::integer(step);
    return std::nullopt;
}

std::optional<Value> Range::item(Interpreter&, const Value& key) {
    if (!key.is_integral() || key.type() == Type::big_integer) return std::nullopt;
    const auto i = clamp_index(key.as_int(), std::size_t(count()));
    if (!i) return std::nullopt;
    return Value::integer(start + std::int64_t(*i) * step);
}

Iterator Range::iterate(Interpreter&) {
    return [at = start, left = count(), by = step]() mutable -> std::optional<Value> {
        if (left-- <= 0) {
            left = 0;
            return std::nullopt;
        }
        const std::int64_t i = at;
        at += by;
        return Value::integer(i);
    };
}

// --- dict views ---

Value DictView::at(std::size_t i) const {
    const auto& [key, value] = dict->entries()[i];
    if (kind == Kind::keys) return key;
    if (kind == Kind::values) return value;
    return Value::tuple({key, value});
}

Iterator DictView::iterate(Interpreter&) {
    DictView copy;
    copy.kind = kind;
    copy.dict = dict;
    return [view = copy, i = std::size_t(0)]() mutable -> std::optional<Value> {
        if (i >= view.dict->size()) return std::nullopt;
        return view.at(i++);
    };
}

// --- namespace ---

std::optional<Value> Namespace::attribute(Interpreter&, std::string_view name) {
    if (const Value* v = attributes.find(name)) return *v;
    return std::nullopt;
}

void Namespace::set(const Value& name, Value value) {
    if (name.is_string() && name.text().view().substr(0, 1) == "_") {
        TextBuilder quoted;
        repr_string(name.text(), quoted);
        raise("SecurityError",
              "Chat templates cannot store underscore-prefixed attributes on a namespace, but got " +
                  std::string(quoted.view()) + ". Please rename the attribute.");
    }
    attributes.set(name, std::move(value));
}

Value make_dict(Interpreter& in, const Arguments& a) {
    auto d = std::make_shared<Dict>();
    if (a.positional.size() > 1)
        raise("TypeError", "dict expected at most 1 argument, got " + std::to_string(a.positional.size()));
    if (!a.positional.empty()) {
        const Value& from = a.positional[0];
        if (from.is_dict()) {
            in.charge(from.as_dict().size() * sizeof(Value));
            for (const auto& [k, v] : from.as_dict().entries()) d->set(k, v);
        } else {
            const Iterator next = in.iterate(from);
            for (std::size_t i = 0; auto v = next(); ++i) {
                in.step();
                if (!in.is_iterable(*v))
                    raise("TypeError", "cannot convert dictionary update sequence element #" +
                                           std::to_string(i) + " to a sequence");
                const List pair = in.to_list(*v);
                if (pair.size() != 2)
                    raise("ValueError", "dictionary update sequence element #" + std::to_string(i) +
                                            " has length " + std::to_string(pair.size()) + "; 2 is required");
                d->set(pair[0], pair[1]);
            }
        }
    }
    for (const auto& [k, v] : a.keyword) d->set(Value::string(k), v);
    return Value::dict(std::move(d));
}

// Where the reference makes what its templates see.
constexpr const char* kUtilities = "transformers.utils.chat_template_utils.";
constexpr const char* kCompiler = "_cached_compile_jinja_template.<locals>.";

std::string DictType::repr(Interpreter&) const {
    return std::string("<") + kUtilities + kCompiler + "TemplateDict object at " + kAddress + ">";
}

Value DictType::call(Interpreter& in, Arguments&& a) { return make_dict(in, a); }

std::optional<Value> DictType::attribute(Interpreter&, std::string_view name) {
    if (name != "fromkeys") return std::nullopt;
    return bind_function("fromkeys", [](Interpreter& inner, Arguments&& a) {
        const Parameters p("fromkeys", {"", ""}, a, 1);
        auto d = std::make_shared<Dict>();
        const Iterator next = inner.iterate(*p[0]);
        while (auto key = next()) {
            inner.step();
            d->set(*key, p.get(1, Value()));
        }
        return Value::dict(std::move(d));
    });
}

// --- macro ---

std::string Macro::repr(Interpreter&) const {
    return name.empty() ? "<Macro anonymous>" : "<Macro '" + name + "'>";
}

std::optional<Value> Macro::attribute(Interpreter&, std::string_view attribute) {
    if (attribute == "name") return name.empty() ? Value() : Value::string(name);
    if (attribute == "arguments") {
        List names;
        for (const ExprPtr& e : stmt->signature.targets) names.push_back(Value::string(e->name));
        return Value::tuple(std::move(names));
    }
    if (attribute == "catch_kwargs") return Value::boolean(stmt->signature.uses_kwargs);
    if (attribute == "catch_varargs") return Value::boolean(stmt->signature.uses_varargs);
    if (attribute == "caller") return Value::boolean(stmt->signature.uses_caller);
    if (attribute == "explicit_caller") return Value::boolean(stmt->signature.explicit_caller);
    return std::nullopt;
}

// --- loop ---

std::optional<Value> Loop::next() {
    std::optional<Value> v;
    if (peeked && after) {
        v = std::move(after);
        peeked = false;
        after.reset();
    } else {
        v = source();
    }
    if (!v) return v;
    ++index0;
    before = std::move(current);
    current = v;
    return v;
}

const std::optional<Value>& Loop::peek() {
    if (!peeked || !after) {
        after = source();
        peeked = true;
    }
    return after;
}

std::optional<std::int64_t> Loop::length(Interpreter& in) {
    if (known_length) return known_length;
    if (iterable.type() != Type::none) known_length = in.length(iterable);
    if (known_length) return known_length;
    List rest;
    while (auto v = source()) {
        in.step();
        rest.push_back(std::move(*v));
    }
    known_length = std::int64_t(rest.size()) + index0 + 1 + (peeked && after ? 1 : 0);
    const Value list = Value::list(std::move(rest));
    source = in.iterate(list);
    return known_length;
}

std::string Loop::repr(Interpreter& in) const {
    auto* self = const_cast<Loop*>(this);
    return "<LoopContext " + std::to_string(index0 + 1) + "/" + std::to_string(*self->length(in)) + ">";
}

std::optional<Value> Loop::attribute(Interpreter& in, std::string_view name) {
    if (name == "index") return Value::integer(index0 + 1);
    if (name == "index0") return Value::integer(index0);
    if (name == "first") return Value::boolean(index0 == 0);
    if (name == "last") return Value::boolean(!peek());
    if (name == "length") return Value::integer(*length(in));
    if (name == "revindex") return Value::integer(*length(in) - index0);
    if (name == "revindex0") return Value::integer(*length(in) - index0 - 1);
    if (name == "depth") return Value::integer(depth0 + 1);
    if (name == "depth0") return Value::integer(depth0);
    if (name == "previtem")
        return index0 == 0 || !before ? Value::undefined("there is no previous item") : *before;
    if (name == "nextitem") return peek() ? *peek() : Value::undefined("there is no next item");
    if (name == "cycle")
        return shown_as(
            bind_function("cycle",
                          [this](Interpreter&, Arguments&& a) {
                              if (a.positional.empty()) raise("TypeError", "no items for cycling given");
                              return a.positional[std::size_t(index0) % a.positional.size()];
                          }),
            [this](Interpreter& inner) { return "<bound method LoopContext.cycle of " + repr(inner) + ">"; });
    if (name == "changed")
        return shown_as(bind_function("changed",
                                      [this](Interpreter&, Arguments&& a) {
                                          const bool same =
                                              last_changed &&
                                              std::equal(last_changed->begin(), last_changed->end(),
                                                         a.positional.begin(), a.positional.end(), equal);
                                          last_changed = std::move(a.positional);
                                          return Value::boolean(!same);
                                      }),
                        [this](Interpreter& inner) {
                            return "<bound method LoopContext.changed of " + repr(inner) + ">";
                        });
    return std::nullopt;
}

Value Loop::call(Interpreter& in, Arguments&& a) {
    if (!stmt->recursive)
        raise("TypeError", "The loop must have the 'recursive' marker to be called recursively.");
    const Parameters p("loop", {"iterable"}, a, 1);
    return in.run_loop(*stmt, scope, *p[0], depth0 + 1);
}

void Loop::clear() {
    scope.reset();
    source = {};
    iterable = Value();
    after.reset();
    current.reset();
    before.reset();
    last_changed.reset();
}

// --- cycler, joiner, self ---

std::optional<Value> Cycler::attribute(Interpreter&, std::string_view name) {
    if (name == "current") return items[at];
    if (name == "pos") return Value::integer(std::int64_t(at));
    if (name == "items") return Value::tuple(items);
    if (name == "next" || name == "reset")
        return bind_function(std::string(name), [this, reset = name == "reset"](Interpreter&, Arguments&&) {
            if (reset) {
                at = 0;
                return Value();
            }
            Value v = items[at];
            at = (at + 1) % items.size();
            return v;
        });
    return std::nullopt;
}

Value Joiner::call(Interpreter&, Arguments&&) {
    if (used) return separator;
    used = true;
    return Value::string("");
}

std::optional<Value> Joiner::attribute(Interpreter&, std::string_view name) {
    if (name == "sep") return separator;
    if (name == "used") return Value::boolean(used);
    return std::nullopt;
}

std::optional<Value> TemplateReference::attribute(Interpreter& in, std::string_view name) {
    const Stmt* block = in.find_block(name);
    if (!block) return std::nullopt;
    return bind_function(std::string(name),
                         [block](Interpreter& inner, Arguments&&) { return inner.run_block(*block); });
}

// --- globals ---

namespace {

Value make_range(Interpreter&, Arguments&& a) {
    if (!a.keyword.empty()) raise("TypeError", "range() takes no keyword arguments");
    const std::size_t n = a.positional.size();
    if (n == 0) raise("TypeError", "range expected at least 1 argument, got 0");
    if (n > 3) raise("TypeError", "range expected at most 3 arguments, got " + std::to_string(n));
    constexpr std::int64_t kBound = std::int64_t(1) << 40;
    std::int64_t v[3] = {0, 0, 1};
    for (std::size_t i = 0; i < n; ++i) {
        const Value& x = a.positional[i];
        if (x.is_undefined()) raise_undefined(x);
        if (x.type() == Type::big_integer)
            raise("OverflowError",
                  "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
        v[n == 1 ? 1 : i] = index_value(x);
    }
    if (v[2] == 0) raise("ValueError", "range() arg 3 must not be zero");
    auto r = std::make_shared<Range>();
    for (std::int64_t& x : v) x = std::clamp(x, -kBound, kBound);
    r->start = v[0];
    r->stop = v[1];
    r->step = v[2];
    if (r->count() > 100000)
        raise("OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
    return Value::object(std::move(r));
}

}  // namespace

void add_globals(Interpreter::Variables& variables) {
    variables["range"] = bind_function("range", make_range);
    variables["dict"] = Value::object(std::make_shared<DictType>());
    variables["namespace"] = bind_function("namespace", [](Interpreter& in, Arguments&& a) {
        auto ns = in.keep(std::make_shared<Namespace>());
        const Value d = make_dict(in, a);
        for (const auto& [k, v] : d.as_dict().entries()) ns->set(k, v);
        return Value::object(std::move(ns));
    });
    variables["cycler"] = bind_function("cycler", [](Interpreter& in, Arguments&& a) {
        auto c = in.keep(std::make_shared<Cycler>());
        if (a.positional.empty()) raise("RuntimeError", "at least one item has to be provided");
        c->items = std::move(a.positional);
        return Value::object(std::move(c));
    });
    variables["joiner"] = bind_function("joiner", [](Interpreter& in, Arguments&& a) {
        const Parameters p("joiner", {"sep"}, a, 0);
        auto j = in.keep(std::make_shared<Joiner>());
        j->separator = p.get(0, Value::string(", "));
        return Value::object(std::move(j));
    });
    variables["lipsum"] = bind_function("lipsum", [](Interpreter&, Arguments&&) -> Value {
        raise("TypeError", "lipsum() is not available in chat templates");
    });
    variables["raise_exception"] =
        bind_function("raise_exception", [](Interpreter& in, Arguments&& a) -> Value {
            if (a.positional.empty() && a.keyword.empty())
                raise("TypeError",
                      "_cached_compile_jinja_template.<locals>.raise_exception() missing 1 required "
                      "positional argument: "
                      "'message'");
            const Parameters p("raise_exception", {"message"}, a, 1);
            raise("TemplateError", std::string(in.str(*p[0]).view()));
        });
    variables["strftime_now"] = bind_function("strftime_now", [](Interpreter& in, Arguments&& a) {
        const Parameters p("strftime_now", {"format"}, a, 1);
        if (!p[0]->is_string())
            raise("TypeError", "strftime() argument 1 must be str, not " + type_name(*p[0]));
        return in.own(Text(strftime(in.now(), p[0]->text().view()), p[0]->text().any_user()));
    });
    const auto shown = [&](const char* name, const std::string& text) {
        variables[name] = shown_as(variables[name], [text](Interpreter&) { return text; });
    };
    const std::string at = std::string(" at ") + kAddress + ">";
    const std::string locals = std::string("<function ") + kCompiler;
    shown("range", "<function safe_range" + at);
    shown("lipsum", "<function generate_lorem_ipsum" + at);
    shown("namespace", std::string("<class '") + kUtilities + kCompiler + "TemplateNamespace'>");
    shown("cycler", "<class 'jinja2.utils.Cycler'>");
    shown("joiner", "<class 'jinja2.utils.Joiner'>");
    shown("raise_exception", locals + "raise_exception" + at);
    shown("strftime_now", locals + "strftime_now" + at);
}

}  // namespace llmgen::jinja
