// Which variable a name means: the reference's compile-time analysis, since templates show it.
//
//   frames   root ─ for body ─ macro body ─ …   a frame has one slot for each name that it stores, or loads
//   and no outer frame knows loads    what a slot holds when its frame is entered: a parameter, nothing
//   (undefined), the template's context (resolve), or the
//            value of an outer frame's slot (alias)
//
// Shown, for example, by {% for i in [1] %}{{ x }}{% endfor %}{% set x = 1 %}: the loop sees the root's x,
// which is not set yet, even where the context has an x. An `if` is no frame, but its branches are analysed
// apart. A macro closes over the slots of its place.
#include <algorithm>
#include <set>

#include "text/jinja/symbols.h"

namespace llmgen::jinja {
namespace {

// --- whether some code mentions a name before it stores it ---

class Mentions {
public:
    explicit Mentions(std::set<std::string> names) : names_(std::move(names)) {}
    bool found(const std::string& name) const { return found_.count(name) > 0; }

    void visit(const Expr* e, bool store = false) {
        if (!e) return;
        if (e->kind == ExprKind::name) {
            if (!store && names_.count(e->name))
                found_.insert(e->name);
            else
                names_.erase(e->name);
        }
        for (const ExprPtr& child : e->children) visit(child.get(), store);
        if (!e->arguments) return;
        for (const ExprPtr& a : e->arguments->positional) visit(a.get());
        for (const auto& [key, a] : e->arguments->keyword) visit(a.get());
        visit(e->arguments->spread.get());
        visit(e->arguments->keyword_spread.get());
    }
    void visit(const Body& body) {
        for (const StmtPtr& p : body) visit(*p);
    }

private:
    void visit(const Stmt& s) {
        if (s.kind == StmtKind::block) return;
        if (s.kind == StmtKind::for_loop) {
            visit(s.target.get(), true);
            visit(s.exprs[0].get());
            for (const Body& b : s.bodies) visit(b);
            visit(s.exprs[1].get());
            return;
        }
        if (s.kind == StmtKind::if_else) {
            for (std::size_t i = 0; i < s.bodies.size(); ++i) {
                if (i < s.exprs.size()) visit(s.exprs[i].get());
                visit(s.bodies[i]);
            }
            return;
        }
        if (s.kind == StmtKind::call_block) visit(s.exprs[0].get());
        if (s.kind != StmtKind::macro) visit(s.target.get(), true);
        for (const ExprPtr& e : s.targets) visit(e.get(), true);
        for (const ExprPtr& e : s.signature.targets) visit(e.get(), true);
        for (const ExprPtr& e : s.signature.defaults) visit(e.get());
        if (s.kind == StmtKind::filter_block) {
            visit(s.bodies[0]);
            visit(s.exprs[0].get());
            return;
        }
        if (s.kind != StmtKind::call_block)
            for (const ExprPtr& e : s.exprs) visit(e.get());
        for (const Body& b : s.bodies) visit(b);
    }
    std::set<std::string> names_, found_;
};

bool stores_loop(const Expr* e) {
    if (!e) return false;
    if (e->kind == ExprKind::name) return e->name == "loop";
    return std::any_of(e->children.begin(), e->children.end(),
                       [](const ExprPtr& c) { return stores_loop(c.get()); });
}

// Any `loop` stored inside a for, however deep: its offset, or npos.
std::size_t find_loop_store(const Stmt& s) {
    if (s.kind != StmtKind::macro && stores_loop(s.target.get())) return s.target->offset;
    for (const ExprPtr& e : s.targets)
        if (stores_loop(e.get()) && s.kind != StmtKind::with) return e->offset;
    for (const Body& b : s.bodies)
        for (const StmtPtr& inner : b)
            if (const std::size_t at = find_loop_store(*inner); at != std::string::npos) return at;
    return std::string::npos;
}

// --- the second pass: places for names, faults of the compiler ---

struct Frame {
    Symbols* symbols;
    bool toplevel = false;
    bool soft = false;  // in an if: unknown filters and tests are faults only when reached
    bool in_loop = false;
    bool root = false;
};

class Resolver {
public:
    explicit Resolver(Template& t) : t_(t) {}

    void run() {
        collect_blocks(t_.body);
        Symbols root;
        root.info = &t_.frame;
        see(root, t_.body);
        Frame frame{&root, true, false, false, true};
        visit(t_.body, frame);
        root.finish();
        for (Stmt* b : blocks_) {
            Symbols s;
            s.info = &b->frame;
            see(s, b->bodies[0]);
            if (Mentions m({"self", "super"}); true) {
                m.visit(b->bodies[0]);
                if (m.found("super")) s.define("super", Load::undefined);
            }
            Frame inner{&s};
            visit(b->bodies[0], inner);
            s.finish();
        }
        if (bad_control_ != std::string::npos)
            throw Failure{"SyntaxError", std::string("'") + bad_word_ + "' outside loop", bad_control_};
    }

private:
    void collect_blocks(Body& body) {
        for (StmtPtr& s : body) {
            if (s->kind == StmtKind::block) {
                if (!block_names_.insert(s->name).second)
                    throw Failure{"TemplateAssertionError", "block '" + s->name + "' defined twice",
                                  s->offset};
                blocks_.push_back(s.get());
                t_.blocks.push_back(s.get());
            }
            for (Body& b : s->bodies) collect_blocks(b);
        }
    }

    void place(Expr& e, const Frame& f) { e.place = f.symbols->find(e.name); }

    void visit(Expr* e, const Frame& f) {
        if (!e) return;
        if (e->kind == ExprKind::name || e->kind == ExprKind::namespace_ref) place(*e, f);
        if (!e->folded && !e->children.empty() && is_constant(*e) && !may_be_slice(*e)) mark_folded(*e);
        Frame inner = f;
        if (e->kind == ExprKind::conditional) inner.soft = true;
        for (std::size_t i = 0; i < e->children.size(); ++i) {
            Frame child = inner;
            if (i == 1 && is_short_cut(*e)) child.soft = true;  // the reference's optimiser drops it
            visit(e->children[i].get(), child);
        }
        if (e->arguments) {
            for (ExprPtr& a : e->arguments->positional) visit(a.get(), inner);
            for (auto& [key, a] : e->arguments->keyword) visit(a.get(), inner);
            visit(e->arguments->spread.get(), inner);
            visit(e->arguments->keyword_spread.get(), inner);
        }
        const bool filter = e->kind == ExprKind::filter;
        if ((filter || e->kind == ExprKind::test) && !(filter ? is_filter(e->name) : is_test(e->name))) {
            if (!f.soft)
                throw Failure{"TemplateAssertionError",
                              std::string("No ") + (filter ? "filter" : "test") + " named '" + e->name + "'.",
                              e->offset};
            e->checked_late = true;
        }
    }

    void visit(Body& body, Frame& f) {
        for (StmtPtr& s : body) visit(*s, f);
    }

    Symbols inner(const Frame& f, FrameInfo& info) const {
        Symbols s;
        s.parent = f.symbols;
        s.level = f.symbols->level + 1;
        s.copied = f.symbols->copied;
        s.info = &info;
        return s;
    }

    void visit(Stmt& s, Frame& f) {
        switch (s.kind) {
            case StmtKind::text:
                break;
            case StmtKind::output:
                for (ExprPtr& e : s.exprs) {
                    visit(e.get(), f);
                    if (is_constant(*e)) mark_folded(*e);
                }
                break;
            case StmtKind::for_loop:
                visit_for(s, f);
                break;
            case StmtKind::if_else: {
                Frame soft = f;
                soft.soft = true;
                soft.root = false;
                for (std::size_t i = 0; i < s.bodies.size(); ++i) {
                    if (i < s.exprs.size()) visit(s.exprs[i].get(), soft);
                    visit(s.bodies[i], soft);
                }
                break;
            }
            case StmtKind::set:
                s.toplevel = f.toplevel;
                visit(s.target.get(), f);
                visit(s.exprs[0].get(), f);
                break;
            case StmtKind::set_block: {
                s.toplevel = f.toplevel;
                Symbols symbols = inner(f, s.frame);
                see(symbols, s.bodies[0]);
                Frame in{&symbols, false, false, f.in_loop};
                visit(s.bodies[0], in);
                visit(s.target.get(), f);
                visit(s.exprs[0].get(), in);
                symbols.finish();
                break;
            }
            case StmtKind::macro:
                s.toplevel = f.toplevel;
                visit_macro(s, f);
                s.place = f.symbols->find(s.name);
                break;
            case StmtKind::call_block:
                visit_macro(s, f);
                visit(s.exprs[0].get(), f);
                break;
            case StmtKind::generation:
                visit_macro(s, f);
                break;
            case StmtKind::filter_block: {
                Symbols symbols = inner(f, s.frame);
                see(symbols, s.bodies[0]);
                see(symbols, s.exprs[0].get());
                Frame in{&symbols, false, false, f.in_loop};
                visit(s.bodies[0], in);
                visit(s.exprs[0].get(), in);
                symbols.finish();
                break;
            }
            case StmtKind::with: {
                Symbols symbols = inner(f, s.frame);
                for (ExprPtr& e : s.targets) see(symbols, e.get(), Use::parameter);
                see(symbols, s.bodies[0]);
                Frame in{&symbols, false, false, f.in_loop};
                for (ExprPtr& e : s.targets) visit(e.get(), in);
                for (ExprPtr& e : s.exprs) visit(e.get(), f);
                visit(s.bodies[0], in);
                symbols.finish();
                break;
            }
            case StmtKind::autoescape: {
                Symbols symbols = inner(f, s.frame);
                see(symbols, s.exprs[0].get());
                see(symbols, s.bodies[0]);
                Frame in{&symbols, false, false, f.in_loop};
                visit(s.exprs[0].get(), in);
                visit(s.bodies[0], in);
                symbols.finish();
                break;
            }
            case StmtKind::block:
                break;  // on its own, after the rest
            case StmtKind::loader:
                if (s.name == "extends" && !f.toplevel)
                    throw Failure{"TemplateAssertionError", "cannot use extend from a non top-level scope",
                                  s.offset};
                visit(s.exprs[0].get(), f);
                for (ExprPtr& e : s.targets) visit(e.get(), f);
                break;
            case StmtKind::break_loop:
            case StmtKind::continue_loop:
                if (!f.in_loop && bad_control_ == std::string::npos) {
                    bad_control_ = s.offset;
                    bad_word_ = s.kind == StmtKind::break_loop ? "break" : "continue";
                }
                break;
        }
    }

    void visit_for(Stmt& s, Frame& f) {
        Symbols body = inner(f, s.frame);
        Mentions loop({"loop"});
        loop.visit(s.bodies[0]);
        s.uses_loop = s.recursive || loop.found("loop");
        if (s.uses_loop) s.loop_slot = body.parameter("loop");
        see(body, s.target.get(), Use::parameter);
        see(body, s.bodies[0]);
        Symbols otherwise = inner(f, s.else_frame);
        see(otherwise, s.bodies[1]);
        if (s.exprs[1]) {
            Symbols test = inner(f, s.test_frame);
            see(test, s.test_target.get(), Use::parameter);
            see(test, s.exprs[1].get());
            Frame in{&test};
            // `loop` has no meaning in the filter, whatever the context says
            if (Mentions m({"loop"}); true) {
                m.visit(s.exprs[1].get());
                if (m.found("loop") && test.find("loop").up == 0) test.define("loop", Load::undefined);
            }
            visit(s.test_target.get(), in);
            visit(s.exprs[1].get(), in);
            test.finish();
        }
        if (const std::size_t at = find_loop_store(s); at != std::string::npos)
            throw Failure{"TemplateAssertionError",
                          "Can't assign to special loop variable in for-loop target", at};
        visit(s.exprs[0].get(), f);
        Frame in{&body, false, false, true};
        visit(s.target.get(), in);
        visit(s.bodies[0], in);
        body.finish();
        Frame out{&otherwise, false, false, f.in_loop && !s.recursive};
        visit(s.bodies[1], out);
        otherwise.finish();
    }

    void visit_macro(Stmt& s, Frame& f) {
        Signature& sig = s.signature;
        Symbols symbols = inner(f, s.frame);
        for (ExprPtr& e : sig.targets) see(symbols, e.get(), Use::parameter);
        for (ExprPtr& e : sig.defaults) see(symbols, e.get());
        see(symbols, s.bodies[0]);
        Mentions m({"caller", "kwargs", "varargs"});
        m.visit(s.bodies[0]);
        const auto takes = [&](std::string_view name) {
            for (std::size_t i = 0; i < sig.targets.size(); ++i)
                if (sig.targets[i]->name == name) return int(i);
            return -1;
        };
        const int own_caller = takes("caller");
        sig.explicit_caller = own_caller >= 0;
        if (m.found("caller")) {
            sig.uses_caller = true;
            if (own_caller < 0)
                sig.caller_slot = symbols.parameter("caller");
            else if (std::size_t(own_caller) + sig.defaults.size() < sig.targets.size())
                throw Failure{"TemplateAssertionError",
                              "When defining macros or call blocks the special \"caller\" argument must be "
                              "omitted or be "
                              "given a default.",
                              s.offset};
        }
        if (m.found("kwargs") && takes("kwargs") < 0) {
            sig.uses_kwargs = true;
            sig.kwargs_slot = symbols.parameter("kwargs");
        }
        if (m.found("varargs") && takes("varargs") < 0) {
            sig.uses_varargs = true;
            sig.varargs_slot = symbols.parameter("varargs");
        }
        Frame in{&symbols};
        for (ExprPtr& e : sig.targets) visit(e.get(), in);
        for (ExprPtr& e : sig.defaults) visit(e.get(), in);
        visit(s.bodies[0], in);
        symbols.finish();
    }

    Template& t_;
    std::vector<Stmt*> blocks_;
    std::set<std::string> block_names_;
    std::size_t bad_control_ = std::string::npos;
    const char* bad_word_ = "";
};

}  // namespace

void resolve(Template& t) { Resolver(t).run(); }

}  // namespace llmgen::jinja
