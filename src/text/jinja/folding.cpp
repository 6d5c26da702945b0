// What the reference's optimiser does before a template runs: it computes constants, and drops what a
// constant decides.
#include <algorithm>
#include <optional>

#include "text/jinja/symbols.h"

namespace llmgen::jinja {
namespace {

// The truth of an expression made of constants only.
std::optional<bool> constant_truth(const Expr& e) {
    if (e.kind == ExprKind::constant) {
        if (e.value.is_none()) return false;
        if (e.value.is_bool()) return e.value.as_bool();
        if (e.value.is_string()) return !e.value.text().empty();
        return !equal(e.value, Value::integer(0));
    }
    if (e.kind == ExprKind::logical_not) {
        const auto inner = constant_truth(*e.children[0]);
        return inner ? std::optional(!*inner) : std::nullopt;
    }
    if (e.kind != ExprKind::logical_and && e.kind != ExprKind::logical_or) return std::nullopt;
    const auto left = constant_truth(*e.children[0]);
    if (!left || *left == (e.kind == ExprKind::logical_or)) return left;
    return constant_truth(*e.children[1]);
}

bool are_constant(const CallArguments& a) {
    return !a.spread && !a.keyword_spread &&
           std::all_of(a.positional.begin(), a.positional.end(),
                       [](const ExprPtr& e) { return is_constant(*e); }) &&
           std::all_of(a.keyword.begin(), a.keyword.end(),
                       [](const auto& named) { return is_constant(*named.second); });
}

// Filters that ask for the context are not called before a render.
bool asks_for_context(std::string_view filter) {
    constexpr std::string_view kAll[] = {"map", "select", "reject", "selectattr", "rejectattr", "random"};
    return std::find(std::begin(kAll), std::end(kAll), filter) != std::end(kAll);
}

}  // namespace

bool is_short_cut(const Expr& e) {
    if (e.kind != ExprKind::logical_and && e.kind != ExprKind::logical_or) return false;
    return constant_truth(*e.children[0]) == (e.kind == ExprKind::logical_or);
}

bool is_constant(const Expr& e) {
    switch (e.kind) {
        case ExprKind::name:
        case ExprKind::namespace_ref:
        case ExprKind::call:
            return false;
        case ExprKind::filter:
        case ExprKind::test:
            return e.children[0] && !asks_for_context(e.name) && is_constant(*e.children[0]) &&
                   (!e.arguments || are_constant(*e.arguments));
        default:
            return std::all_of(e.children.begin(), e.children.end(),
                               [](const ExprPtr& c) { return !c || is_constant(*c); });
    }
}

bool may_be_slice(const Expr& e) {
    switch (e.kind) {
        case ExprKind::slice:
            return true;
        case ExprKind::conditional:
        case ExprKind::logical_and:
        case ExprKind::logical_or:
        case ExprKind::tuple:
        case ExprKind::list:
        case ExprKind::dict:
            return std::any_of(e.children.begin(), e.children.end(),
                               [](const ExprPtr& c) { return c && may_be_slice(*c); });
        default:
            return false;
    }
}

void mark_folded(Expr& e) {
    e.folded = true;
    for (ExprPtr& c : e.children)
        if (c) mark_folded(*c);
}

}  // namespace llmgen::jinja
