// Tokens to tree: the grammar of Jinja 3.1 with transformers' extensions (loop controls, generation blocks).
//
//   condexpr: or [if or [else condexpr]]      or: and (or and)*       and: not (and not)*       not: not not
//   | compare compare: sum ((== != < <= > >= in "not in") sum)*     sum: concat ((+ -) concat)*     concat:
//   term (~ term)* term: power ((* / // %) power)*     power: unary (** unary)*      unary: (- +) unary |
//   primary postfix* filter*
//
// Traps: ~ binds tighter than +; ** associates to the left; -3|abs is (-3)|abs while a unary's operand takes
// no filter; `is` takes one argument without brackets; a name followed by = in a call is a keyword.
#pragma once

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace llmgen::jinja {

class Parser {
public:
    explicit Parser(Template& t);
    void run();

private:
    friend class Nesting;
    // tokens
    const Token& current() const { return tokens_[at_]; }
    const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
    void advance();
    Token take();
    bool at_name(std::string_view word) const;
    bool skip_name(std::string_view word);
    bool skip(Tok type);
    Token expect(Tok type);
    void expect_name(std::string_view word);
    [[noreturn]] void fail(std::string message, std::size_t offset) const;
    [[noreturn]] void fail(std::string message) const { fail(std::move(message), current().offset); }
    [[noreturn]] void fail_tag(const std::string* name, std::size_t offset) const;

    // statements
    using Words = std::vector<std::string_view>;
    Body subparse(const Words* ends);
    void statement(Body& body);
    Body statements(const Words& ends, bool drop);
    StmtPtr parse_for();
    StmtPtr parse_if();
    StmtPtr parse_set();
    StmtPtr parse_with();
    StmtPtr parse_macro();
    StmtPtr parse_call_block();
    StmtPtr parse_filter_block();
    StmtPtr parse_block();
    StmtPtr parse_print();
    StmtPtr parse_simple_block(StmtKind kind, std::string_view end);
    StmtPtr parse_loader(const std::string& word);
    void parse_signature(Signature& signature);
    StmtPtr make(StmtKind kind) const;

    // expressions
    ExprPtr expression(bool with_conditional = true) {
        return with_conditional ? conditional() : logical_or();
    }
    ExprPtr conditional();
    ExprPtr logical_or();
    ExprPtr logical_and();
    ExprPtr logical_not();
    ExprPtr compare();
    ExprPtr sum();
    ExprPtr concat();
    ExprPtr term();
    ExprPtr power();
    ExprPtr unary(bool with_filter = true);
    ExprPtr primary(bool with_namespace = false);
    ExprPtr tuple(bool simplified,
                  bool with_conditional,
                  std::string_view end_word,
                  bool parentheses,
                  bool with_namespace);
    ExprPtr list();
    ExprPtr dict();
    ExprPtr postfix(ExprPtr node);
    ExprPtr filter_expression(ExprPtr node);
    ExprPtr subscript(ExprPtr node);
    ExprPtr subscribed(ExprPtr& object, bool& is_slice);
    ExprPtr call(ExprPtr node);
    ExprPtr filter(ExprPtr node, bool inline_start);
    ExprPtr test(ExprPtr node);
    std::unique_ptr<CallArguments> call_arguments();
    ExprPtr assign_target(bool name_only, std::string_view end_word = "", bool with_namespace = false);
    ExprPtr node(ExprKind kind, std::size_t offset) const;
    ExprPtr binary(Op op, ExprPtr left, ExprPtr right, std::size_t offset) const;
    void adopt(Expr& parent, ExprPtr child) const;
    Value constant(const std::string& text);

    Template& template_;
    std::vector<Token> tokens_;
    std::size_t at_ = 0;
    std::vector<std::string> tags_;
    std::vector<Words> ends_;
    int depth_ = 0;
};

}  // namespace llmgen::jinja
