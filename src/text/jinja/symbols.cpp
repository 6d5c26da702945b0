// What a frame's own code loads and stores.
#include "text/jinja/symbols.h"

namespace llmgen::jinja {

void see(Symbols& s, const Expr* e, Use use) {
    if (!e) return;
    if (e->kind == ExprKind::name) {
        if (use == Use::load)
            s.load(e->name);
        else if (use == Use::store)
            s.store(e->name);
        else
            s.parameter(e->name);
    } else if (e->kind == ExprKind::namespace_ref) {
        s.load(e->name);
    }
    for (const ExprPtr& child : e->children) see(s, child.get(), use);
    if (!e->arguments) return;
    for (const ExprPtr& a : e->arguments->positional) see(s, a.get());
    for (const auto& [key, a] : e->arguments->keyword) see(s, a.get());
    see(s, e->arguments->spread.get());
    see(s, e->arguments->keyword_spread.get());
}

namespace {

// A copy for each branch: what bounds the work of a template made of nothing but names and ifs.
void charge_copies(const Symbols& s) {
    constexpr std::size_t kLimit = 4'000'000;
    if ((*s.copied += s.refs.size()) > kLimit)
        throw Failure{"ResourceError", "too many variables and branches", std::string::npos};
}

void see_if(Symbols& s, const Stmt& stmt, std::size_t branch) {
    see(s, stmt.exprs[branch].get());
    charge_copies(s);
    std::vector<Symbols> branches(3, s);
    see(branches[0], stmt.bodies[branch]);
    if (branch == 0) {
        for (std::size_t i = 1; i < stmt.exprs.size(); ++i) {  // each elif on its own
            see(branches[1], stmt.exprs[i].get());
            charge_copies(branches[1]);
            std::vector<Symbols> inner(1, branches[1]);
            see(inner[0], stmt.bodies[i]);
            branches[1].merge(inner);
        }
        if (stmt.bodies.size() > stmt.exprs.size()) see(branches[2], stmt.bodies.back());
    }
    s.merge(branches);
}

}  // namespace

void see(Symbols& s, const Body& body) {
    for (const StmtPtr& p : body) {
        const Stmt& stmt = *p;
        switch (stmt.kind) {
            case StmtKind::output:
                for (const ExprPtr& e : stmt.exprs) see(s, e.get());
                break;
            case StmtKind::for_loop:
                see(s, stmt.exprs[0].get());
                break;
            case StmtKind::if_else:
                see_if(s, stmt, 0);
                break;
            case StmtKind::set:
                see(s, stmt.exprs[0].get());
                see(s, stmt.target.get(), Use::store);
                break;
            case StmtKind::set_block:
                see(s, stmt.target.get(), Use::store);
                break;
            case StmtKind::macro:
                s.store(stmt.name);
                break;
            case StmtKind::call_block:
            case StmtKind::filter_block:
                see(s, stmt.exprs[0].get());
                break;
            case StmtKind::with:
                for (const ExprPtr& e : stmt.exprs) see(s, e.get());
                break;
            case StmtKind::loader:
                see(s, stmt.exprs[0].get());
                for (const ExprPtr& e : stmt.targets) see(s, e.get(), Use::store);
                break;
            default:
                break;
        }
    }
}

}  // namespace llmgen::jinja
