// The syntax tree of a template. Made once, then read only, by any number of threads.
//
// Names are resolved before the first render (scope.cpp): a Name knows in which of the enclosing frames
// and in which slot there its value lies, as the reference's compiler decides it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace llmgen::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

struct CallArguments {
    std::vector<ExprPtr> positional;
    std::vector<std::pair<std::string, ExprPtr>> keyword;
    ExprPtr spread;          // *args
    ExprPtr keyword_spread;  // **kwargs
};

/// Where a variable lives: `up` frames above the current one, in `slot` there.
struct Place {
    int up = 0;
    int slot = -1;
};

enum class ExprKind : std::uint8_t {
    constant,
    name,
    namespace_ref,  // target ns.attr of a set
    tuple,
    list,
    dict,  // children: key, value, key, value …
    attribute,
    item,
    slice,  // children: object, start, stop, step (null where left out)
    call,
    filter,  // child 0 null inside a filter block
    test,
    binary,
    compare,  // children: first, second …; ops between them
    logical_not,
    negative,
    positive,
    logical_and,
    logical_or,
    concat,
    conditional  // children: test, then, else (may be null)
};

enum class Op : std::uint8_t {
    add,
    sub,
    mul,
    div,
    floordiv,
    mod,
    pow,
    eq,
    ne,
    gt,
    gteq,
    lt,
    lteq,
    in,
    notin
};

struct Expr {
    ExprKind kind;
    Op op = Op::add;
    bool folded = false;        // slice: in an expression of constants that is printed
    bool checked_late = false;  // filter, test: an unknown name is a fault only when reached
    std::uint32_t offset = 0;
    int depth = 1;
    std::string name;  // name, attribute, filter, test, namespace_ref (then value holds the attribute's name)
    Value value;       // constant
    Place place;       // name, namespace_ref
    std::vector<ExprPtr> children;
    std::vector<Op> ops;
    std::unique_ptr<CallArguments> arguments;  // call, filter, test
};

enum class Load : std::uint8_t { parameter, undefined, resolve, alias };

/// The variables of one scope: what to do with each slot when the scope is entered.
struct FrameInfo {
    struct Slot {
        std::string name;
        Load load;
        Place from;  // alias
    };
    std::vector<Slot> slots;
};

/// Macro, call block: parameters and their defaults.
struct Signature {
    std::vector<ExprPtr> targets;   // names
    std::vector<ExprPtr> defaults;  // of the last ones
    bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
    int caller_slot = -1, kwargs_slot = -1, varargs_slot = -1;
    bool explicit_caller = false;
};

enum class StmtKind : std::uint8_t {
    text,
    output,
    for_loop,
    if_else,  // exprs: tests; bodies: one each, then else
    set,
    set_block,
    macro,
    call_block,
    generation,
    filter_block,
    with,
    autoescape,
    block,
    loader,  // include, import, from, extends: there is no loader
    break_loop,
    continue_loop
};

struct Stmt {
    StmtKind kind;
    bool recursive = false;  // for
    bool toplevel = false;   // set, macro: the name is exported to the template's context
    bool uses_loop = false;  // for
    std::uint32_t offset = 0;
    std::string name;            // macro, block
    Value text;                  // text
    std::vector<ExprPtr> exprs;  // output; for: iterated, filter test (or null); set: value; call block: the
                                 // call; with: values
    ExprPtr target;              // for, set, set_block
    std::vector<ExprPtr> targets;  // with
    std::vector<Body> bodies;      // for: body, else
    Place place;                   // macro: its own variable
    Signature signature;
    FrameInfo frame;       // of the body
    FrameInfo test_frame;  // for … if
    FrameInfo else_frame;  // for … else
    ExprPtr test_target;   // for … if: the target once more, resolved in the test's frame
    int loop_slot = -1;
};

struct Template {
    std::string name;    // of its file, for messages
    std::string source;  // normalised
    Body body;
    FrameInfo frame;
    std::vector<const Stmt*> blocks;
    std::string literals;  // all text and string constants, separated by NUL
};

/// Throws Failure.
std::unique_ptr<Template> parse(std::string source);
/// Resolves names and checks filters, tests and loop controls. Throws Failure.
void resolve(Template& t);

bool is_filter(const std::string& name);
bool is_test(const std::string& name);

}  // namespace llmgen::jinja
