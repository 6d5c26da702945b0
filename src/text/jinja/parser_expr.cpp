// The expression half of the parser.
#include <algorithm>
#include <utility>

#include "text/jinja/parser.h"

namespace llmgen::jinja {

constexpr int kMaxExpressionNesting = 120;

ExprPtr Parser::conditional() {
    if (++depth_ > kMaxExpressionNesting)
        throw Failure{"RecursionError", "nested too deeply", current().offset};
    std::size_t offset = current().offset;
    ExprPtr then = logical_or();
    while (skip_name("if")) {
        ExprPtr e = node(ExprKind::conditional, offset);
        ExprPtr condition = logical_or();
        ExprPtr otherwise = skip_name("else") ? conditional() : nullptr;
        adopt(*e, std::move(condition));
        adopt(*e, std::move(then));
        adopt(*e, std::move(otherwise));
        then = std::move(e);
        offset = current().offset;
    }
    --depth_;
    return then;
}

ExprPtr Parser::logical_or() {
    const std::size_t offset = current().offset;
    ExprPtr left = logical_and();
    while (skip_name("or")) {
        ExprPtr e = node(ExprKind::logical_or, offset);
        adopt(*e, std::move(left));
        adopt(*e, logical_and());
        left = std::move(e);
    }
    return left;
}

ExprPtr Parser::logical_and() {
    const std::size_t offset = current().offset;
    ExprPtr left = logical_not();
    while (skip_name("and")) {
        ExprPtr e = node(ExprKind::logical_and, offset);
        adopt(*e, std::move(left));
        adopt(*e, logical_not());
        left = std::move(e);
    }
    return left;
}

ExprPtr Parser::logical_not() {
    if (!at_name("not")) return compare();
    if (++depth_ > kMaxExpressionNesting)
        throw Failure{"RecursionError", "nested too deeply", current().offset};
    ExprPtr e = node(ExprKind::logical_not, take().offset);
    adopt(*e, logical_not());
    --depth_;
    return e;
}

ExprPtr Parser::compare() {
    const std::size_t offset = current().offset;
    ExprPtr first = sum();
    ExprPtr e;
    for (;;) {
        Op op = Op::eq;
        switch (current().type) {
            case Tok::eq:
                op = Op::eq;
                break;
            case Tok::ne:
                op = Op::ne;
                break;
            case Tok::lt:
                op = Op::lt;
                break;
            case Tok::lteq:
                op = Op::lteq;
                break;
            case Tok::gt:
                op = Op::gt;
                break;
            case Tok::gteq:
                op = Op::gteq;
                break;
            default:
                if (at_name("in")) {
                    op = Op::in;
                } else if (at_name("not") && look().type == Tok::name && look().text == "in") {
                    advance();
                    op = Op::notin;
                } else {
                    return e ? std::move(e) : std::move(first);
                }
        }
        advance();
        if (!e) {
            e = node(ExprKind::compare, offset);
            adopt(*e, std::move(first));
        }
        e->ops.push_back(op);
        adopt(*e, sum());
    }
}

ExprPtr Parser::sum() {
    const std::size_t offset = current().offset;
    ExprPtr left = concat();
    while (current().type == Tok::add || current().type == Tok::sub) {
        const Op op = take().type == Tok::add ? Op::add : Op::sub;
        left = binary(op, std::move(left), concat(), offset);
    }
    return left;
}

ExprPtr Parser::concat() {
    const std::size_t offset = current().offset;
    ExprPtr first = term();
    if (current().type != Tok::tilde) return first;
    ExprPtr e = node(ExprKind::concat, offset);
    adopt(*e, std::move(first));
    while (skip(Tok::tilde)) adopt(*e, term());
    return e;
}

ExprPtr Parser::term() {
    const std::size_t offset = current().offset;
    ExprPtr left = power();
    for (;;) {
        Op op = Op::mul;
        switch (current().type) {
            case Tok::mul:
                op = Op::mul;
                break;
            case Tok::div:
                op = Op::div;
                break;
            case Tok::floordiv:
                op = Op::floordiv;
                break;
            case Tok::mod:
                op = Op::mod;
                break;
            default:
                return left;
        }
        advance();
        left = binary(op, std::move(left), power(), offset);
    }
}

ExprPtr Parser::power() {
    const std::size_t offset = current().offset;
    ExprPtr left = unary();
    while (skip(Tok::pow)) left = binary(Op::pow, std::move(left), unary(), offset);
    return left;
}

ExprPtr Parser::unary(bool with_filter) {
    if (++depth_ > kMaxExpressionNesting)
        throw Failure{"RecursionError", "nested too deeply", current().offset};
    ExprPtr e;
    if (current().type == Tok::sub || current().type == Tok::add) {
        const Token sign = take();
        e = node(sign.type == Tok::sub ? ExprKind::negative : ExprKind::positive, sign.offset);
        adopt(*e, unary(false));
    } else {
        e = primary();
    }
    e = postfix(std::move(e));
    if (with_filter) e = filter_expression(std::move(e));
    --depth_;
    return e;
}

ExprPtr Parser::primary(bool with_namespace) {
    const Token token = current();
    ExprPtr e;
    switch (token.type) {
        case Tok::name:
            advance();
            if (token.text == "true" || token.text == "True" || token.text == "false" ||
                token.text == "False") {
                e = node(ExprKind::constant, token.offset);
                e->value = Value::boolean(token.text == "true" || token.text == "True");
            } else if (token.text == "none" || token.text == "None") {
                e = node(ExprKind::constant, token.offset);
            } else if (with_namespace && skip(Tok::dot)) {
                e = node(ExprKind::namespace_ref, token.offset);
                e->name = token.text;
                e->value = Value::string(expect(Tok::name).text);
            } else {
                e = node(ExprKind::name, token.offset);
                e->name = token.text;
            }
            return e;
        case Tok::string: {
            std::string text;
            while (current().type == Tok::string) text += take().text;
            e = node(ExprKind::constant, token.offset);
            e->value = constant(text);
            return e;
        }
        case Tok::integer:
        case Tok::floating:
            advance();
            e = node(ExprKind::constant, token.offset);
            e->value = token.number;
            return e;
        case Tok::lparen:
            advance();
            e = tuple(false, true, "", true, false);
            expect(Tok::rparen);
            return e;
        case Tok::lbracket:
            return list();
        case Tok::lbrace:
            return dict();
        default:
            fail("unexpected '" + describe(token) + "'", token.offset);
    }
}

ExprPtr Parser::tuple(bool simplified,
                      bool with_conditional,
                      std::string_view end_word,
                      bool parentheses,
                      bool with_namespace) {
    const std::size_t offset = current().offset;
    ExprPtr e = node(ExprKind::tuple, offset);
    bool is_tuple = false;
    for (bool first = true;; first = false) {
        if (!first) expect(Tok::comma);
        const Tok type = current().type;
        if (type == Tok::variable_end || type == Tok::block_end || type == Tok::rparen) break;
        if (!end_word.empty() && at_name(end_word)) break;
        adopt(*e, simplified ? primary(with_namespace) : expression(with_conditional));
        if (current().type != Tok::comma) break;
        is_tuple = true;
    }
    if (is_tuple) return e;
    if (!e->children.empty()) return std::move(e->children[0]);
    if (!parentheses) fail("Expected an expression, got '" + describe(current()) + "'");
    return e;
}

ExprPtr Parser::list() {
    ExprPtr e = node(ExprKind::list, expect(Tok::lbracket).offset);
    while (current().type != Tok::rbracket) {
        if (!e->children.empty()) expect(Tok::comma);
        if (current().type == Tok::rbracket) break;
        adopt(*e, expression());
    }
    expect(Tok::rbracket);
    return e;
}

ExprPtr Parser::dict() {
    ExprPtr e = node(ExprKind::dict, expect(Tok::lbrace).offset);
    while (current().type != Tok::rbrace) {
        if (!e->children.empty()) expect(Tok::comma);
        if (current().type == Tok::rbrace) break;
        adopt(*e, expression());
        expect(Tok::colon);
        adopt(*e, expression());
    }
    expect(Tok::rbrace);
    return e;
}

ExprPtr Parser::postfix(ExprPtr e) {
    for (;;) {
        if (current().type == Tok::dot || current().type == Tok::lbracket)
            e = subscript(std::move(e));
        else if (current().type == Tok::lparen)
            e = call(std::move(e));
        else
            return e;
    }
}

ExprPtr Parser::filter_expression(ExprPtr e) {
    for (;;) {
        if (current().type == Tok::pipe)
            e = filter(std::move(e), false);
        else if (at_name("is"))
            e = test(std::move(e));
        else if (current().type == Tok::lparen)
            e = call(std::move(e));
        else
            return e;
    }
}

ExprPtr Parser::subscript(ExprPtr object) {
    const Token token = take();
    if (token.type == Tok::dot) {
        const Token attribute = current();
        advance();
        if (attribute.type == Tok::name) {
            ExprPtr e = node(ExprKind::attribute, token.offset);
            e->name = attribute.text;
            adopt(*e, std::move(object));
            return e;
        }
        if (attribute.type != Tok::integer) fail("expected name or number", attribute.offset);
        ExprPtr e = node(ExprKind::item, token.offset);
        ExprPtr index = node(ExprKind::constant, attribute.offset);
        index->value = attribute.number;
        adopt(*e, std::move(object));
        adopt(*e, std::move(index));
        return e;
    }
    ExprPtr e = node(ExprKind::item, token.offset);
    ExprPtr many = node(ExprKind::tuple, token.offset);
    bool slice = false;
    while (current().type != Tok::rbracket) {
        if (!many->children.empty()) expect(Tok::comma);
        adopt(*many, subscribed(object, slice));
    }
    expect(Tok::rbracket);
    if (slice && many->children.size() == 1) return std::move(many->children[0]);
    if (slice) throw Failure{"TypeError", "indices must be integers or slices, not tuple", token.offset};
    adopt(*e, std::move(object));
    adopt(*e, many->children.size() == 1 ? std::move(many->children[0]) : std::move(many));
    return e;
}

// One index, or a slice, which then takes the object.
ExprPtr Parser::subscribed(ExprPtr& object, bool& is_slice) {
    const std::size_t offset = current().offset;
    ExprPtr start, stop, step;
    if (current().type != Tok::colon) {
        start = expression();
        if (current().type != Tok::colon) return start;
    }
    advance();
    const auto absent = [&] {
        return current().type == Tok::colon || current().type == Tok::rbracket ||
               current().type == Tok::comma;
    };
    if (!absent()) stop = expression();
    if (skip(Tok::colon) && !absent()) step = expression();
    is_slice = true;
    ExprPtr e = node(ExprKind::slice, offset);
    adopt(*e, std::exchange(object, nullptr));  // of several slices, an error in the end, the first has it
    adopt(*e, std::move(start));
    adopt(*e, std::move(stop));
    adopt(*e, std::move(step));
    return e;
}

std::unique_ptr<CallArguments> Parser::call_arguments() {
    const std::size_t offset = expect(Tok::lparen).offset;
    auto out = std::make_unique<CallArguments>();
    const auto ensure = [&](bool ok) {
        if (!ok) fail("invalid syntax for function call expression", offset);
    };
    for (bool comma = false; current().type != Tok::rparen; comma = true) {
        if (comma) {
            expect(Tok::comma);
            if (current().type == Tok::rparen) break;
        }
        if (skip(Tok::mul)) {
            ensure(!out->spread && !out->keyword_spread);
            out->spread = expression();
        } else if (skip(Tok::pow)) {
            ensure(!out->keyword_spread);
            out->keyword_spread = expression();
        } else if (current().type == Tok::name && look().type == Tok::assign) {
            ensure(!out->keyword_spread);
            const std::string key = take().text;
            advance();
            out->keyword.emplace_back(key, expression());
        } else {
            ensure(!out->spread && !out->keyword_spread && out->keyword.empty());
            out->positional.push_back(expression());
        }
    }
    expect(Tok::rparen);
    return out;
}

ExprPtr Parser::call(ExprPtr callee) {
    ExprPtr e = node(ExprKind::call, current().offset);
    adopt(*e, std::move(callee));
    e->arguments = call_arguments();
    return e;
}

ExprPtr Parser::filter(ExprPtr e, bool inline_start) {
    while (current().type == Tok::pipe || inline_start) {
        if (!inline_start) advance();
        inline_start = false;
        const Token token = expect(Tok::name);
        ExprPtr f = node(ExprKind::filter, token.offset);
        f->name = token.text;
        while (skip(Tok::dot)) f->name += "." + expect(Tok::name).text;
        adopt(*f, std::move(e));
        f->arguments = current().type == Tok::lparen ? call_arguments() : std::make_unique<CallArguments>();
        e = std::move(f);
    }
    return e;
}

ExprPtr Parser::test(ExprPtr value) {
    const Token token = take();
    const bool negated = skip_name("not");
    ExprPtr e = node(ExprKind::test, token.offset);
    e->name = expect(Tok::name).text;
    while (skip(Tok::dot)) e->name += "." + expect(Tok::name).text;
    adopt(*e, std::move(value));
    const Tok type = current().type;
    if (type == Tok::lparen) {
        e->arguments = call_arguments();
    } else {
        e->arguments = std::make_unique<CallArguments>();
        const bool starts = type == Tok::name || type == Tok::string || type == Tok::integer ||
                            type == Tok::floating || type == Tok::lbracket || type == Tok::lbrace;
        if (starts && !at_name("else") && !at_name("or") && !at_name("and")) {
            if (at_name("is")) fail("You cannot chain multiple tests with is");
            e->arguments->positional.push_back(postfix(primary()));
        }
    }
    if (!negated) return e;
    ExprPtr n = node(ExprKind::logical_not, token.offset);
    adopt(*n, std::move(e));
    return n;
}

ExprPtr Parser::assign_target(bool name_only, std::string_view end_word, bool with_namespace) {
    if (name_only) {
        const Token token = expect(Tok::name);
        ExprPtr e = node(ExprKind::name, token.offset);
        e->name = token.text;
        const bool reserved = token.text == "true" || token.text == "false" || token.text == "none" ||
                              token.text == "True" || token.text == "False" || token.text == "None";
        if (reserved) fail("can't assign to 'name'", token.offset);
        return e;
    }
    ExprPtr e = tuple(true, true, end_word, false, with_namespace);
    const auto assignable = [](const auto& self, const Expr& x) -> bool {
        if (x.kind == ExprKind::tuple)
            return std::all_of(x.children.begin(), x.children.end(),
                               [&](const ExprPtr& child) { return self(self, *child); });
        return x.kind == ExprKind::name || x.kind == ExprKind::namespace_ref;
    };
    if (!assignable(assignable, *e)) {
        std::string kind = "const";
        if (e->kind == ExprKind::tuple) kind = "tuple";
        if (e->kind == ExprKind::list) kind = "list";
        if (e->kind == ExprKind::dict) kind = "dict";
        fail("can't assign to '" + kind + "'", e->offset);
    }
    return e;
}

}  // namespace llmgen::jinja
