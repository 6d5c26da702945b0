// Runs a template: statements, expressions, Python's operators, the sandbox's rules and the budgets.
//
//   budgets   executed nodes, bytes of text made, size of one value, depth of calls (and of the machine's
//   stack), processor time.
//             Whatever the template, a render ends within about a second, by result or by error.
#pragma once

#include <chrono>
#include <ctime>
#include <map>
#include <string>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace llmgen::jinja {

/// The variables of one scope, alive.
struct Scope {
    std::vector<Value> slots;
    std::shared_ptr<Scope> parent;
};
using ScopePtr = std::shared_ptr<Scope>;

/// Marks a slot that nothing was assigned to.
inline Value missing() { return Value::object(nullptr); }
inline bool is_missing(const Value& v) { return v.is_object() && !v.as_object(); }

struct Limits {
    std::int64_t nodes = 8'000'000;
    std::int64_t bytes = std::int64_t(512) << 20;  // made in all, by all operations
    double seconds = 0.5;                          // of the thread's processor time
    int calls = 220;                               // nested macros
};

class Interpreter {
public:
    using Variables = std::map<std::string, Value, std::less<>>;
    /// `now`: what strftime_now tells.
    Interpreter(const Template& t, Variables variables, std::tm now, Limits limits = {});
    ~Interpreter();
    /// Throws Failure, its offset set where known.
    Text render();

    // --- Python on values ---
    bool truthy(const Value& v);
    Text str(const Value& v);
    Text repr(const Value& v);
    /// Raises TypeError where `v` is not iterable.
    Iterator iterate(const Value& v);
    List to_list(const Value& v);
    std::optional<std::int64_t> length(const Value& v);  // nullopt: has none
    bool is_iterable(const Value& v);
    bool contains(const Value& container, const Value& item);
    Value binary(Op op, const Value& a, const Value& b);
    Value negate(const Value& v);
    Value attribute(const Value& object, std::string_view name);
    Value item(const Value& object, const Value& key);
    Value slice(const Value& object, const Value& start, const Value& stop, const Value& step);
    Value call(const Value& callee, Arguments&& arguments);
    Value call_filter(const std::string& name, const Value& value, Arguments&& arguments);
    bool call_test(const std::string& name, const Value& value, Arguments&& arguments);
    Value escape(const Value& v);
    /// str(v), but markup stays markup.
    Value soft_str(const Value& v);
    /// A result whose size counts against the budget.
    Value own(Text text, bool markup = false);
    void charge(std::size_t bytes);
    void step();
    /// Keeps what may form cycles, to be cleared at the end.
    template <typename T>
    std::shared_ptr<T> keep(std::shared_ptr<T> object) {
        kept_.push_back(object);
        return object;
    }

    bool autoescape = false;
    /// What the template did with lists of content parts ([{"type": "text", …}]): gone through them, or
    /// printed one as Python does.
    bool went_through_parts = false;
    bool printed_parts = false;
    const std::tm& now() const { return now_; }

    static bool is_content_parts(const Value& v);

    // --- for the objects of the template language ---
    Value run_macro(const Stmt& macro, const ScopePtr& scope, const std::string& name, Arguments&& arguments);
    Value run_loop(const Stmt& loop, const ScopePtr& scope, const Value& iterable, int depth);
    Value run_block(const Stmt& block);
    const Stmt* find_block(std::string_view name) const;

private:
    enum class Flow { next, break_loop, continue_loop };
    class Depth;
    bool stack_ends() const;

    Flow execute(const Body& body, TextBuilder& out);
    Flow execute(const Stmt& s, TextBuilder& out);
    Flow execute_for(const Stmt& s, TextBuilder& out);
    Flow execute_if(const Stmt& s, TextBuilder& out);
    Flow loop(const Stmt& s, const Value& iterable, int depth, TextBuilder& out);
    Flow loop_body(const Stmt& s,
                   const Iterator& next,
                   const ScopePtr& outer,
                   const Value& loop_object,
                   TextBuilder& out);
    Value rebuilt(const Expr& target, const Value& item);
    Iterator filtered(const Stmt& s, Iterator next);
    Flow execute_inner(const Stmt& s, TextBuilder& out);
    void execute_set(const Stmt& s);
    void execute_call_block(const Stmt& s, TextBuilder& out);
    void print(const Value& v, TextBuilder& out);
    ScopePtr enter(const FrameInfo& info, const ScopePtr& parent);
    Value resolve(const std::string& name);
    Value& at(const Place& place);
    void assign(const Expr& target, const Value& value);
    void check_namespaces(const Expr& target);
    void export_names(const Expr& target);

    Value evaluate(const Expr& e);
    Value evaluate_name(const Expr& e);
    Value evaluate_compare(const Expr& e);
    bool compare_one(Op op, const Value& a, const Value& b);
    Value evaluate_call(const Expr& e, const Value* caller = nullptr);
    Value evaluate_filter(const Expr& e, const Value* input = nullptr);
    Value evaluate_filter_input(const Expr& e, const Value* input);
    Value evaluate_test(const Expr& e);
    Value evaluate_concat(const Expr& e);
    Arguments arguments(const CallArguments& a);
    Value numeric(Op op, const Value& a, const Value& b);
    Value repeat(const Value& sequence, const Value& count);
    void repr_into(const Value& v, TextBuilder& out);
    void check_time();

    const Template& template_;
    Variables variables_;  // what the caller and the language give, then the names that the template sets at
                           // its top
    std::tm now_;
    Limits limits_;
    ScopePtr scope_;
    ScopePtr root_;
    std::vector<ObjectPtr> kept_;
    std::vector<ScopePtr> kept_scopes_;
    std::int64_t nodes_ = 0;
    std::int64_t bytes_ = 0;
    std::int64_t checked_bytes_ = 0;
    int calls_ = 0;
    double started_ = 0;
    std::uintptr_t stack_limit_ = 0;
    std::size_t offset_ = std::string::npos;  // of the node being evaluated
};

// --- filters, tests, methods: tables in files of their own ---

/// Takes what Python's call would bind: positional and keyword arguments to named parameters.
class Parameters {
public:
    /// `names`: "a b=? c=?" style: a name followed by ? has a default.
    Parameters(std::string_view function,
               std::initializer_list<std::string_view> names,
               const Arguments& arguments,
               std::size_t required);
    const Value* operator[](std::size_t i) const { return values_[i]; }
    bool given(std::size_t i) const { return values_[i] != nullptr; }
    Value get(std::size_t i, const Value& otherwise) const { return values_[i] ? *values_[i] : otherwise; }

private:
    std::vector<const Value*> values_;
};

using FilterFunction = Value (*)(Interpreter&, const Value&, Arguments&&);
using TestFunction = bool (*)(Interpreter&, const Value&, Arguments&&);
FilterFunction find_filter(std::string_view name);
FilterFunction find_sequence_filter(std::string_view name);
FilterFunction find_number_filter(std::string_view name);
TestFunction find_test(std::string_view name);
/// The filter that has a file of its own.
Value word_wrap(Interpreter& in, const Value& v, Arguments&& a);

/// The bound method `name` of a built-in value, or nullopt: no such attribute. Mutators give an undefined
/// that the sandbox forbids.
std::optional<Value> find_method(Interpreter& in, const Value& self, std::string_view name);
Value string_method(Interpreter& in, const Value& self, const std::string& name, Arguments&& a);
bool is_string_method(std::string_view name);
/// Raises the TypeError of a call that gives any.
void no_arguments(const std::string& method, const Arguments& a);

/// The values that every template sees: range, dict, namespace, cycler, joiner, raise_exception,
/// strftime_now.
void add_globals(Interpreter::Variables& variables);
Value bind_function(std::string name, std::function<Value(Interpreter&, Arguments&&)> f, int depth = 0);
/// `function` of bind_function, which a template that prints it shows as `text`; its address is kAddress.
Value shown_as(Value function, std::function<std::string(Interpreter&)> text);
inline constexpr const char* kAddress = "0x7f0000000000";
/// An iterator as a value: usable once, true, without length.
Value make_generator(Iterator next, std::string name, int depth = 0);
bool is_callable(const Value& v);
std::int64_t index_value(const Value& v, std::string_view what = "");
Text text_argument(const Value& v, const char* what);

// --- formatting ---
Value percent_format(Interpreter& in, const Value& format, const Value& argument);
Text str_format(Interpreter& in, const Value& format, const Arguments& arguments, const Value* mapping);
/// Python's format(value, spec).
Text format_value(Interpreter& in, const Value& value, const Text& spec);
std::string strftime(const std::tm& t, std::string_view format);
struct JsonStyle {
    bool ensure_ascii = false;
    bool sort_keys = false;
    std::optional<std::string> indent;
    Text item_separator, key_separator;
};
Text dump_json(Interpreter& in, const Value& v, const JsonStyle& style);
/// A JSON text of the user's: every string and number in it is marked as such. Raises ValueError with line
/// and column.
Value parse_json(std::string_view text, bool user);
void repr_string(const Text& text, TextBuilder& out);

// --- text operations with provenance ---
Text strip(const Text& text, const Text* characters, bool left, bool right);
Text replace(const Text& text, const Text& from, const Text& to, std::int64_t count);
List split(const Text& text, const Text* separator, std::int64_t limit, bool from_right);
List split_lines(const Text& text, bool keep_ends);
Text change_case(const Text& text, int to);  // unicode::Case
Text lower(const Text& text);
Text title_words(const Text& text);  // str.title
Text capitalize(const Text& text);
Text swap_case(const Text& text);
Text join(Interpreter& in, const Text& separator, const std::vector<Text>& parts);
Text reverse(const Text& text);
Text escape_html(const Text& text);

}  // namespace llmgen::jinja
