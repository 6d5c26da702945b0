// Statements; loops, macros and blocks are in loops.cpp.
#include "text/jinja/eval.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/error.h"
#include "text/jinja/objects.h"
#include "text/jinja/restore.h"

namespace llmgen::jinja {
namespace {

double thread_seconds() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

std::uintptr_t stack_address() { return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)); }

// The lowest address that the recursion may use: a quarter of what is left stays free, and never more than 4
// MiB are taken.
std::uintptr_t lowest_stack_address() {
    const std::uintptr_t top = stack_address();
    std::size_t left = std::size_t(1) << 20;
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        void* base = nullptr;
        std::size_t size = 0;
        if (pthread_attr_getstack(&attributes, &base, &size) == 0 &&
            top > reinterpret_cast<std::uintptr_t>(base))
            left = top - reinterpret_cast<std::uintptr_t>(base);
        pthread_attr_destroy(&attributes);
    }
    return top - std::min(left / 4 * 3, std::size_t(4) << 20);
}

}  // namespace

Interpreter::Interpreter(const Template& t, Variables variables, std::tm now, Limits limits)
    : template_(t), variables_(std::move(variables)), now_(now), limits_(limits) {
    Variables globals;
    add_globals(globals);
    variables_.merge(globals);  // what the caller gives wins
}

Interpreter::~Interpreter() {
    scope_.reset();
    for (const ScopePtr& s : kept_scopes_) s->slots.clear();
    for (const ObjectPtr& o : kept_) o->clear();
}

Text Interpreter::render() {
    started_ = thread_seconds();
    stack_limit_ = lowest_stack_address();
    try {
        root_ = scope_ = enter(template_.frame, nullptr);
        TextBuilder out;
        execute(template_.body, out);
        return out.finish();
    } catch (Failure& f) {
        if (f.offset == std::string::npos) f.offset = offset_;
        throw;
    }
}

void Interpreter::check_time() {
    if (thread_seconds() - started_ > limits_.seconds) raise("ResourceError", "the template runs too long");
}

bool Interpreter::stack_ends() const { return stack_address() < stack_limit_; }

void Interpreter::step() {
    if (++nodes_ > limits_.nodes) raise("ResourceError", "the template takes too many steps");
    if ((nodes_ & 0x1FFF) == 0) check_time();
    if (stack_ends()) raise("RecursionError", "maximum recursion depth exceeded");
}

void Interpreter::charge(std::size_t bytes) {
    bytes_ += std::int64_t(bytes);
    if (bytes_ > limits_.bytes) raise("ResourceError", "the template makes too much text");
    if (bytes_ - checked_bytes_ > (1 << 20)) {
        checked_bytes_ = bytes_;
        check_time();
    }
}

Value Interpreter::own(Text text, bool markup) {
    charge(text.size() + 16 * text.user().size());
    return Value::string(std::move(text), markup);
}

// --- frames and names ---

ScopePtr Interpreter::enter(const FrameInfo& info, const ScopePtr& parent) {
    auto scope = std::make_shared<Scope>();
    scope->parent = parent;
    scope->slots.assign(info.slots.size(), missing());
    for (std::size_t i = 0; i < info.slots.size(); ++i) {
        const FrameInfo::Slot& slot = info.slots[i];
        if (slot.load == Load::resolve) {
            scope->slots[i] = resolve(slot.name);
        } else if (slot.load == Load::alias) {
            const Scope* from = scope.get();
            for (int up = 0; up < slot.from.up; ++up) from = from->parent.get();
            scope->slots[i] = from->slots[std::size_t(slot.from.slot)];
        }
    }
    return scope;
}

Value Interpreter::resolve(const std::string& name) {
    const auto it = variables_.find(name);
    if (it != variables_.end()) return it->second;
    if (name == "self" && !template_.blocks.empty())
        return Value::object(std::make_shared<TemplateReference>());
    return missing();
}

Value& Interpreter::at(const Place& place) {
    Scope* s = scope_.get();
    for (int up = 0; up < place.up; ++up) s = s->parent.get();
    return s->slots[std::size_t(place.slot)];
}

void Interpreter::assign(const Expr& target, const Value& value) {
    if (target.kind == ExprKind::name) {
        at(target.place) = value;
        return;
    }
    if (target.kind == ExprKind::namespace_ref) {
        at(target.place).as<Namespace>()->set(target.value, value);
        return;
    }
    const std::size_t n = target.children.size();
    if (!is_iterable(value)) raise("TypeError", "cannot unpack non-iterable " + type_name(value) + " object");
    const Iterator next = iterate(value);
    List parts;
    while (auto v = next()) {
        if (parts.size() == n)
            raise("ValueError", "too many values to unpack (expected " + std::to_string(n) + ")");
        parts.push_back(std::move(*v));
    }
    if (parts.size() < n)
        raise("ValueError", "not enough values to unpack (expected " + std::to_string(n) + ", got " +
                                std::to_string(parts.size()) + ")");
    for (std::size_t i = 0; i < n; ++i) assign(*target.children[i], parts[i]);
}

void Interpreter::check_namespaces(const Expr& target) {
    if (target.kind == ExprKind::namespace_ref && !at(target.place).as<Namespace>())
        raise("TemplateRuntimeError", "cannot assign attribute on non-namespace object");
    for (const ExprPtr& child : target.children) check_namespaces(*child);
}

void Interpreter::export_names(const Expr& target) {
    if (target.kind == ExprKind::name) variables_[target.name] = at(target.place);
    for (const ExprPtr& child : target.children) export_names(*child);
}

// --- statements ---

Interpreter::Flow Interpreter::execute(const Body& body, TextBuilder& out) {
    for (const StmtPtr& s : body)
        if (const Flow flow = execute(*s, out); flow != Flow::next) return flow;
    return Flow::next;
}

void Interpreter::print(const Value& v, TextBuilder& out) {
    const std::size_t before = out.size();
    out.append(autoescape ? escape(v).text() : str(v));
    charge(out.size() - before);
}

Interpreter::Flow Interpreter::execute(const Stmt& s, TextBuilder& out) {
    step();
    offset_ = s.offset;
    switch (s.kind) {
        case StmtKind::text:
            out.append(s.text.text());
            charge(s.text.text().size());
            return Flow::next;
        case StmtKind::output:
            for (const ExprPtr& e : s.exprs) print(evaluate(*e), out);
            return Flow::next;
        case StmtKind::for_loop:
            return execute_for(s, out);
        case StmtKind::if_else:
            return execute_if(s, out);
        case StmtKind::set:
            execute_set(s);
            return Flow::next;
        case StmtKind::macro: {
            auto macro = keep(std::make_shared<Macro>());
            kept_scopes_.push_back(scope_);
            macro->stmt = &s;
            macro->scope = scope_;
            macro->name = s.name;
            at(s.place) = Value::object(std::move(macro));
            if (s.toplevel) variables_[s.name] = at(s.place);
            return Flow::next;
        }
        case StmtKind::call_block:
        case StmtKind::generation:
            execute_call_block(s, out);
            return Flow::next;
        case StmtKind::set_block:
        case StmtKind::filter_block:
        case StmtKind::with:
        case StmtKind::autoescape:
            return execute_inner(s, out);
        case StmtKind::block:
            out.append(run_block(s).text());
            return Flow::next;
        case StmtKind::loader:
            raise("TypeError",
                  "no loader for this environment specified ({% " + s.name + " %} in a chat template)");
        case StmtKind::break_loop:
            return Flow::break_loop;
        case StmtKind::continue_loop:
            return Flow::continue_loop;
    }
    return Flow::next;
}

Interpreter::Flow Interpreter::execute_if(const Stmt& s, TextBuilder& out) {
    for (std::size_t i = 0; i < s.exprs.size(); ++i)
        if (truthy(evaluate(*s.exprs[i]))) return execute(s.bodies[i], out);
    if (s.bodies.size() > s.exprs.size()) return execute(s.bodies.back(), out);
    return Flow::next;
}

void Interpreter::execute_set(const Stmt& s) {
    check_namespaces(*s.target);
    const Value value = evaluate(*s.exprs[0]);
    offset_ = s.offset;
    assign(*s.target, value);
    if (s.toplevel) export_names(*s.target);
}

// Set blocks, filter blocks, with, autoescape: a scope of its own, run in place.
Interpreter::Flow Interpreter::execute_inner(const Stmt& s, TextBuilder& out) {
    const bool buffered = s.kind == StmtKind::set_block || s.kind == StmtKind::filter_block;
    TextBuilder buffer;
    Value filtered;
    {
        const Restore restore(scope_);
        const Restore restore_escape(autoescape);
        const ScopePtr outer = scope_;
        const ScopePtr inner = enter(s.frame, scope_);
        if (s.kind == StmtKind::with) {
            for (std::size_t i = 0; i < s.targets.size(); ++i) {
                scope_ = outer;
                const Value value = evaluate(*s.exprs[i]);
                scope_ = inner;
                assign(*s.targets[i], value);
            }
        }
        scope_ = inner;
        if (s.kind == StmtKind::autoescape) autoescape = truthy(evaluate(*s.exprs[0]));
        const Flow flow = execute(s.bodies[0], buffered ? buffer : out);
        if (!buffered || flow != Flow::next)
            return flow;  // a break leaves what the block had gathered behind
        filtered = Value::string(buffer.finish(), autoescape);
        if (s.exprs[0]) filtered = evaluate_filter(*s.exprs[0], &filtered);
    }
    if (s.kind == StmtKind::set_block) {
        check_namespaces(*s.target);
        assign(*s.target, filtered);
        if (s.toplevel) export_names(*s.target);
    } else if (filtered.is_string()) {
        out.append(filtered.text());
    } else {
        raise("TypeError", "sequence item 0: expected str instance, " + type_name(filtered) + " found");
    }
    return Flow::next;
}

void Interpreter::execute_call_block(const Stmt& s, TextBuilder& out) {
    auto macro = keep(std::make_shared<Macro>());
    kept_scopes_.push_back(scope_);
    macro->stmt = &s;
    macro->scope = scope_;
    const Value caller = Value::object(macro);
    const Value result =
        s.kind == StmtKind::generation ? call(caller, Arguments{}) : evaluate_call(*s.exprs[0], &caller);
    if (!result.is_string())
        raise("TypeError", "sequence item 0: expected str instance, " + type_name(result) + " found");
    out.append(result.text());
    charge(result.text().size());
}

}  // namespace llmgen::jinja
