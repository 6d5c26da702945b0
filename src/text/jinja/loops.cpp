// Loops, macros and blocks: the statements that run a body more than once, or later.

#include "text/jinja/eval.h"
#include "text/jinja/objects.h"
#include "text/jinja/restore.h"

namespace llmgen::jinja {

class Interpreter::Depth {
public:
    explicit Depth(Interpreter& in) : in_(in) {
        if (++in_.calls_ > in_.limits_.calls || in_.stack_ends()) {
            --in_.calls_;
            raise("RecursionError", "maximum recursion depth exceeded");
        }
    }
    ~Depth() { --in_.calls_; }
    Depth(const Depth&) = delete;

private:
    Interpreter& in_;
};

// --- loops ---

// The reference's filter yields what the targets hold: tuples for `for a, b in x if y`, whatever the items
// were.
Value Interpreter::rebuilt(const Expr& target, const Value& item) {
    if (target.kind != ExprKind::tuple) return item;
    List parts = to_list(item);
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = rebuilt(*target.children[i], parts[i]);
    return Value::tuple(std::move(parts));
}

Iterator Interpreter::filtered(const Stmt& s, Iterator next) {
    const ScopePtr outer = scope_;
    return [this, &s, next = std::move(next), outer]() -> std::optional<Value> {
        while (auto v = next()) {
            step();
            const Restore restore(scope_);
            scope_ = enter(s.test_frame, outer);
            assign(*s.test_target, *v);
            if (truthy(evaluate(*s.exprs[1]))) return rebuilt(*s.test_target, *v);
        }
        return std::nullopt;
    };
}

Interpreter::Flow Interpreter::execute_for(const Stmt& s, TextBuilder& out) {
    const Value iterable = evaluate(*s.exprs[0]);
    offset_ = s.offset;
    return loop(s, iterable, 0, out);
}

// The loop over `iterable`, in the scope where the loop stands.
Interpreter::Flow Interpreter::loop(const Stmt& s, const Value& iterable, int depth, TextBuilder& out) {
    Iterator next = iterate(iterable);
    if (s.exprs[1]) next = filtered(s, std::move(next));
    Value loop_object = missing();
    if (s.uses_loop) {
        auto object = keep(std::make_shared<Loop>());
        object->stmt = &s;
        object->scope = scope_;
        object->iterable = s.exprs[1] ? Value() : iterable;
        object->source = std::move(next);
        object->depth0 = depth;
        next = [object = object.get()] { return object->next(); };
        loop_object = Value::object(std::move(object));
    }
    const ScopePtr outer = scope_;
    const Restore restore(scope_);
    if (loop_body(s, next, outer, loop_object, out) == Flow::break_loop || s.bodies[1].empty())
        return Flow::next;
    scope_ = enter(s.else_frame, outer);
    return execute(s.bodies[1], out);
}

// break_loop: some turn came to its end, so there is no else. (A turn that ended by continue or break does
// not count: the reference's flag is lowered at the end of the body.)
Interpreter::Flow Interpreter::loop_body(
    const Stmt& s, const Iterator& next, const ScopePtr& outer, const Value& loop_object, TextBuilder& out) {
    bool completed = false;
    for (;;) {
        scope_ = outer;
        auto v = next();
        if (!v) break;
        step();
        scope_ = enter(s.frame, outer);
        if (s.loop_slot >= 0) scope_->slots[std::size_t(s.loop_slot)] = loop_object;
        assign(*s.target, *v);
        const Flow flow = execute(s.bodies[0], out);
        if (flow == Flow::next) completed = true;
        if (flow == Flow::break_loop) break;
    }
    return completed ? Flow::break_loop : Flow::next;
}

Value Interpreter::run_loop(const Stmt& s, const ScopePtr& scope, const Value& iterable, int depth) {
    const Depth guard(*this);
    const Restore restore(scope_);
    scope_ = scope;
    TextBuilder out;
    loop(s, iterable, depth, out);
    return own(out.finish(), autoescape);
}

// --- macros and blocks ---

Value Interpreter::run_macro(const Stmt& s,
                             const ScopePtr& definition,
                             const std::string& name,
                             Arguments&& a) {
    const Depth guard(*this);
    const Signature& sig = s.signature;
    const std::size_t n = sig.targets.size();
    const ScopePtr scope = enter(s.frame, definition);
    const auto take = [&](std::string_view key) -> std::optional<Value> {
        for (auto it = a.keyword.begin(); it != a.keyword.end(); ++it) {
            if (it->first.view() != key) continue;
            Value v = std::move(it->second);
            a.keyword.erase(it);
            return v;
        }
        return std::nullopt;
    };
    const std::string quoted = name.empty() ? "None" : "'" + name + "'";
    bool found_caller = a.positional.size() >= n && sig.explicit_caller;
    for (std::size_t i = 0; i < n; ++i) {
        Value& slot = scope->slots[std::size_t(sig.targets[i]->place.slot)];
        if (i < a.positional.size()) {
            slot = a.positional[i];
            continue;
        }
        if (sig.targets[i]->name == "caller") found_caller = true;
        if (auto v = take(sig.targets[i]->name)) slot = std::move(*v);
    }
    if (sig.uses_caller && !found_caller) {
        const auto caller = take("caller");
        scope->slots[std::size_t(sig.caller_slot)] =
            caller && !caller->is_none() ? *caller : Value::undefined("No caller defined");
    }
    if (sig.uses_kwargs) {
        auto rest = std::make_shared<Dict>();
        for (auto& [key, v] : a.keyword) rest->set(Value::string(key), std::move(v));
        scope->slots[std::size_t(sig.kwargs_slot)] = Value::dict(std::move(rest));
    } else if (!a.keyword.empty()) {
        for (const auto& [key, v] : a.keyword)
            if (key.view() == "caller")
                raise("TypeError", "macro " + quoted +
                                       " was invoked with two values for the special caller argument. "
                                       "This is most likely a bug.");
        raise("TypeError", "macro " + quoted + " takes no keyword argument '" +
                               std::string(a.keyword[0].first.view()) + "'");
    }
    const std::size_t over = std::min(n, a.positional.size());
    if (sig.uses_varargs)
        scope->slots[std::size_t(sig.varargs_slot)] =
            Value::tuple(List(a.positional.begin() + std::ptrdiff_t(over), a.positional.end()));
    else if (a.positional.size() > n)
        raise("TypeError", "macro " + quoted + " takes not more than " + std::to_string(n) + " argument(s)");

    const Restore restore(scope_);
    scope_ = scope;
    for (std::size_t i = 0; i < n; ++i) {  // defaults may use earlier parameters
        Value& slot = scope->slots[std::size_t(sig.targets[i]->place.slot)];
        if (!is_missing(slot)) continue;
        const std::size_t first = n - sig.defaults.size();
        slot = i >= first ? evaluate(*sig.defaults[i - first])
                          : Value::undefined("parameter '" + sig.targets[i]->name + "' was not provided");
    }
    TextBuilder out;
    execute(s.bodies[0], out);
    return own(out.finish(), autoescape);
}

Value Interpreter::run_block(const Stmt& s) {
    const Depth guard(*this);
    const Restore restore(scope_);
    scope_ = enter(s.frame, nullptr);
    TextBuilder out;
    execute(s.bodies[0], out);
    return own(out.finish(), autoescape);
}

const Stmt* Interpreter::find_block(std::string_view name) const {
    for (const Stmt* b : template_.blocks)
        if (b->name == name) return b;
    return nullptr;
}

}  // namespace llmgen::jinja
