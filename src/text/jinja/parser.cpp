#include "text/jinja/parser.h"

#include <algorithm>

#include "text/jinja/unicode.h"

namespace llmgen::jinja {

// Python gives up on nesting of about this depth, too.
constexpr int kMaxNesting = 120;
constexpr int kMaxTreeDepth = 400;

class Nesting {
public:
    explicit Nesting(Parser& p) : p_(p) {
        if (++p_.depth_ > kMaxNesting) {
            --p_.depth_;
            throw Failure{"RecursionError", "nested too deeply", p_.current().offset};
        }
    }
    ~Nesting() { --p_.depth_; }
    Nesting(const Nesting&) = delete;

private:
    Parser& p_;
};

Parser::Parser(Template& t) : template_(t), tokens_(tokenise(t.source)) {}

void Parser::run() {
    if (current().type == Tok::fault) throw current().failure;
    template_.body = subparse(nullptr);
}

void Parser::advance() {
    if (at_ + 1 < tokens_.size()) ++at_;
    if (current().type == Tok::fault) throw current().failure;
}

Token Parser::take() {
    Token t = current();
    advance();
    return t;
}

bool Parser::at_name(std::string_view word) const {
    return current().type == Tok::name && current().text == word;
}

bool Parser::skip_name(std::string_view word) {
    if (!at_name(word)) return false;
    advance();
    return true;
}

bool Parser::skip(Tok type) {
    if (current().type != type) return false;
    advance();
    return true;
}

Token Parser::expect(Tok type) {
    if (current().type != type) {
        if (current().type == Tok::eof)
            fail("unexpected end of template, expected '" + describe(type) + "'.");
        fail("expected token '" + describe(type) + "', got '" + describe(current()) + "'");
    }
    return take();
}

void Parser::expect_name(std::string_view word) {
    if (!at_name(word)) {
        const std::string w(word);
        if (current().type == Tok::eof) fail("unexpected end of template, expected '" + w + "'.");
        fail("expected token '" + w + "', got '" + describe(current()) + "'");
    }
    advance();
}

void Parser::fail(std::string message, std::size_t offset) const {
    throw Failure{"TemplateSyntaxError", std::move(message), offset};
}

void Parser::fail_tag(const std::string* name, std::size_t offset) const {
    std::string message = name ? "Encountered unknown tag '" + *name + "'." : "Unexpected end of template.";
    if (!ends_.empty()) {
        std::string looking;
        for (const std::string_view end : ends_.back()) {
            if (!looking.empty()) looking += " or ";
            looking += "'" + std::string(end) + "'";
        }
        bool nested = false;
        for (const Words& words : ends_)
            nested |= name && std::find(words.begin(), words.end(), *name) != words.end();
        message += nested ? " You probably made a nesting mistake. Jinja is expecting this tag, but "
                            "currently looking for " +
                                looking + "."
                          : " Jinja was looking for the following tags: " + looking + ".";
    }
    if (!tags_.empty()) message += " The innermost block that needs to be closed is '" + tags_.back() + "'.";
    fail(std::move(message), offset);
}

StmtPtr Parser::make(StmtKind kind) const {
    auto s = std::make_unique<Stmt>();
    s->kind = kind;
    s->offset = std::uint32_t(current().offset);
    return s;
}

ExprPtr Parser::node(ExprKind kind, std::size_t offset) const {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->offset = std::uint32_t(offset);
    return e;
}

// Left-leaning chains (a + b + c …) deepen the tree without nesting: evaluating and destroying it recurse,
// too.
void Parser::adopt(Expr& parent, ExprPtr child) const {
    if (child) {
        parent.depth = std::max(parent.depth, child->depth + 1);
        if (parent.depth > kMaxTreeDepth)
            throw Failure{"RecursionError", "expression too long", parent.offset};
    }
    parent.children.push_back(std::move(child));
}

ExprPtr Parser::binary(Op op, ExprPtr left, ExprPtr right, std::size_t offset) const {
    ExprPtr e = node(ExprKind::binary, offset);
    e->op = op;
    adopt(*e, std::move(left));
    adopt(*e, std::move(right));
    return e;
}

Value Parser::constant(const std::string& text) {
    template_.literals += text;
    template_.literals += '\0';
    return Value::string(text);
}

// --- statements ---

Body Parser::subparse(const Words* ends) {
    Body body;
    StmtPtr output;
    const auto flush = [&] {
        if (output) body.push_back(std::move(output));
    };
    if (ends) ends_.push_back(*ends);
    while (current().type != Tok::eof) {
        if (current().type == Tok::data) {
            flush();
            StmtPtr text = make(StmtKind::text);
            text->text = constant(current().text);
            body.push_back(std::move(text));
            advance();
        } else if (current().type == Tok::variable_begin) {
            advance();
            if (!output) output = make(StmtKind::output);
            output->exprs.push_back(tuple(false, true, "", false, false));
            expect(Tok::variable_end);
        } else {
            flush();
            expect(Tok::block_begin);
            if (ends && current().type == Tok::name &&
                std::find(ends->begin(), ends->end(), current().text) != ends->end()) {
                ends_.pop_back();
                return body;
            }
            statement(body);
            expect(Tok::block_end);
        }
    }
    flush();
    if (ends) ends_.pop_back();
    return body;
}

Body Parser::statements(const Words& ends, bool drop) {
    skip(Tok::colon);
    expect(Tok::block_end);
    Body body = subparse(&ends);
    if (current().type == Tok::eof) {
        ends_.push_back(ends);
        fail_tag(nullptr, current().offset);
    }
    if (drop) advance();
    return body;
}

void Parser::statement(Body& body) {
    if (current().type != Tok::name) fail("tag name expected");
    const Nesting nesting(*this);
    const std::string word = current().text;
    const std::size_t offset = current().offset;
    tags_.push_back(word);
    StmtPtr s;
    if (word == "for")
        s = parse_for();
    else if (word == "if")
        s = parse_if();
    else if (word == "set")
        s = parse_set();
    else if (word == "with")
        s = parse_with();
    else if (word == "macro")
        s = parse_macro();
    else if (word == "call")
        s = parse_call_block();
    else if (word == "filter")
        s = parse_filter_block();
    else if (word == "block")
        s = parse_block();
    else if (word == "print")
        s = parse_print();
    else if (word == "autoescape" || word == "generation")
        s = parse_simple_block(word == "generation" ? StmtKind::generation : StmtKind::autoescape,
                               word == "generation" ? "endgeneration" : "endautoescape");
    else if (word == "include" || word == "import" || word == "from" || word == "extends")
        s = parse_loader(word);
    else if (word == "break" || word == "continue") {
        s = make(word == "break" ? StmtKind::break_loop : StmtKind::continue_loop);
        advance();
    } else {
        tags_.pop_back();
        fail_tag(&word, offset);
    }
    tags_.pop_back();
    body.push_back(std::move(s));
}

StmtPtr Parser::parse_for() {
    StmtPtr s = make(StmtKind::for_loop);
    advance();
    const std::size_t target_at = at_;
    s->target = assign_target(false, "in");
    expect_name("in");
    s->exprs.push_back(tuple(false, false, "recursive", false, false));
    s->exprs.push_back(skip_name("if") ? expression() : nullptr);
    s->recursive = skip_name("recursive");
    if (s->exprs[1]) {  // the filter has a frame of its own, in which the target is bound, too
        const std::size_t here = at_;
        at_ = target_at;
        s->test_target = assign_target(false, "in");
        at_ = here;
    }
    s->bodies.push_back(statements({"endfor", "else"}, false));
    if (take().text == "endfor")
        s->bodies.emplace_back();
    else
        s->bodies.push_back(statements({"endfor"}, true));
    return s;
}

StmtPtr Parser::parse_if() {
    StmtPtr s = make(StmtKind::if_else);
    do {
        advance();
        s->exprs.push_back(tuple(false, false, "", false, false));
        s->bodies.push_back(statements({"elif", "else", "endif"}, false));
    } while (at_name("elif"));
    if (take().text == "else") s->bodies.push_back(statements({"endif"}, true));
    return s;
}

StmtPtr Parser::parse_set() {
    StmtPtr s = make(StmtKind::set);
    advance();
    s->target = assign_target(false, "", true);
    if (skip(Tok::assign)) {
        s->exprs.push_back(tuple(false, true, "", false, false));
        return s;
    }
    s->kind = StmtKind::set_block;
    s->exprs.push_back(filter(nullptr, false));
    s->bodies.push_back(statements({"endset"}, true));
    return s;
}

StmtPtr Parser::parse_with() {
    StmtPtr s = make(StmtKind::with);
    advance();
    while (current().type != Tok::block_end) {
        if (!s->targets.empty()) expect(Tok::comma);
        s->targets.push_back(assign_target(false));
        expect(Tok::assign);
        s->exprs.push_back(expression());
    }
    s->bodies.push_back(statements({"endwith"}, true));
    return s;
}

void Parser::parse_signature(Signature& signature) {
    expect(Tok::lparen);
    while (current().type != Tok::rparen) {
        if (!signature.targets.empty()) expect(Tok::comma);
        ExprPtr target = assign_target(true);
        if (skip(Tok::assign))
            signature.defaults.push_back(expression());
        else if (!signature.defaults.empty())
            fail("non-default argument follows default argument");
        signature.targets.push_back(std::move(target));
    }
    expect(Tok::rparen);
}

StmtPtr Parser::parse_macro() {
    StmtPtr s = make(StmtKind::macro);
    advance();
    s->target = assign_target(true);
    s->name = s->target->name;
    parse_signature(s->signature);
    s->bodies.push_back(statements({"endmacro"}, true));
    return s;
}

StmtPtr Parser::parse_call_block() {
    StmtPtr s = make(StmtKind::call_block);
    advance();
    if (current().type == Tok::lparen) parse_signature(s->signature);
    s->exprs.push_back(expression());
    if (s->exprs[0]->kind != ExprKind::call) fail("expected call", s->offset);
    s->bodies.push_back(statements({"endcall"}, true));
    return s;
}

StmtPtr Parser::parse_filter_block() {
    StmtPtr s = make(StmtKind::filter_block);
    advance();
    s->exprs.push_back(filter(nullptr, true));
    s->bodies.push_back(statements({"endfilter"}, true));
    return s;
}

StmtPtr Parser::parse_block() {
    StmtPtr s = make(StmtKind::block);
    advance();
    s->name = expect(Tok::name).text;
    skip_name("scoped");
    const bool required = skip_name("required");
    if (current().type == Tok::sub)
        fail(
            "Block names in Jinja have to be valid Python identifiers and may not contain hyphens, use an "
            "underscore instead.");
    s->bodies.push_back(statements({"endblock"}, true));
    for (const StmtPtr& inner : s->bodies[0]) {
        bool blank = inner->kind == StmtKind::text;
        if (blank)
            for (TextReader r(inner->text.text()); !r.done();) blank &= unicode::is_space(r.next());
        if (required && !blank) fail("Required blocks can only contain comments or whitespace");
    }
    skip_name(s->name);
    return s;
}

StmtPtr Parser::parse_print() {
    StmtPtr s = make(StmtKind::output);
    advance();
    while (current().type != Tok::block_end) {
        if (!s->exprs.empty()) expect(Tok::comma);
        s->exprs.push_back(expression());
    }
    return s;
}

StmtPtr Parser::parse_simple_block(StmtKind kind, std::string_view end) {
    StmtPtr s = make(kind);
    advance();
    if (kind == StmtKind::autoescape) s->exprs.push_back(expression());
    s->bodies.push_back(statements({end}, true));
    return s;
}

StmtPtr Parser::parse_loader(const std::string& word) {
    StmtPtr s = make(StmtKind::loader);
    s->name = word;
    advance();
    s->exprs.push_back(expression());
    const auto context = [&] {
        if ((at_name("with") || at_name("without")) && look().type == Tok::name && look().text == "context") {
            advance();
            advance();
            return true;
        }
        return false;
    };
    if (word == "include") {
        if (at_name("ignore") && look().text == "missing") {
            advance();
            advance();
        }
        context();
    } else if (word == "import") {
        expect_name("as");
        s->targets.push_back(assign_target(true));
        context();
    } else if (word == "from") {
        expect_name("import");
        for (bool first = true;; first = false) {
            if (!first) expect(Tok::comma);
            if (current().type != Tok::name) expect(Tok::name);
            if (context()) break;
            ExprPtr target = assign_target(true);
            if (target->name[0] == '_')
                throw Failure{"TemplateAssertionError",
                              "names starting with an underline can not be imported", target->offset};
            if (skip_name("as")) target = assign_target(true);
            s->targets.push_back(std::move(target));
            if (context() || current().type != Tok::comma) break;
        }
    }
    return s;
}

std::unique_ptr<Template> parse(std::string source) {
    auto t = std::make_unique<Template>();
    t->source = std::move(source);
    Parser(*t).run();
    return t;
}

}  // namespace llmgen::jinja
