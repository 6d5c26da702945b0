// The objects that only templates meet.
#pragma once

#include "text/jinja/eval.h"

namespace llmgen::jinja {

struct Range final : Object {
    std::int64_t start = 0, stop = 0, step = 1;
    std::int64_t count() const {
        if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
        return start > stop ? (start - stop - 1) / -step + 1 : 0;
    }
    std::string_view type_name() const override { return "range"; }
    std::string repr(Interpreter&) const override;
    std::optional<Value> attribute(Interpreter&, std::string_view name) override;
    std::optional<Value> item(Interpreter&, const Value& key) override;
    bool subscriptable() const override { return true; }
    std::optional<std::int64_t> length(Interpreter&) override { return count(); }
    Iterator iterate(Interpreter&) override;
};

struct Generator final : Object {
    std::shared_ptr<Iterator> next;  // shared: whoever asks, it goes on from where it is
    std::string name = "generator";  // of the reference's function
    int depth_ = 1;                  // generators over generators: asking and destroying them recurses
    std::string_view type_name() const override { return "generator"; }
    /// As Python prints it, but for the address, which tells nothing.
    std::string repr(Interpreter&) const override {
        return "<generator object " + name + " at " + kAddress + ">";
    }
    int depth() const override { return depth_; }
    Iterator iterate(Interpreter&) override {
        return [state = next] { return (*state)(); };
    }
};

/// dict_keys, dict_values, dict_items.
struct DictView final : Object {
    enum class Kind { keys, values, items } kind = Kind::keys;
    std::shared_ptr<const Dict> dict;
    std::string_view type_name() const override {
        return kind == Kind::keys ? "dict_keys" : kind == Kind::values ? "dict_values" : "dict_items";
    }
    int depth() const override { return dict->depth(); }
    std::string repr(Interpreter&) const override {
        return {};
    }  // printed by the interpreter, with provenance
    std::optional<std::int64_t> length(Interpreter&) override { return std::int64_t(dict->size()); }
    Value at(std::size_t i) const;
    Iterator iterate(Interpreter&) override;
};

struct Namespace final : Object {
    Dict attributes;
    std::string_view type_name() const override { return "TemplateNamespace"; }
    std::optional<Value> attribute(Interpreter&, std::string_view name) override;
    void set(const Value& name, Value value);
    void clear() override { attributes = Dict(); }
};

struct Function final : Object {
    std::string name;
    std::function<std::string(Interpreter&)> shown;  // as Python prints it
    std::function<Value(Interpreter&, Arguments&&)> f;
    int depth_ = 1;  // of what it is bound to
    std::string_view type_name() const override { return "function"; }
    std::string repr(Interpreter& in) const override { return shown ? shown(in) : Object::repr(in); }
    int depth() const override { return depth_; }
    bool callable() const override { return true; }
    Value call(Interpreter& in, Arguments&& a) override { return f(in, std::move(a)); }
};

struct Macro final : Object {
    const Stmt* stmt = nullptr;
    ScopePtr scope;
    std::string name;  // empty: a call block's
    std::string_view type_name() const override { return "Macro"; }
    std::string repr(Interpreter&) const override;
    std::optional<Value> attribute(Interpreter&, std::string_view name) override;
    bool callable() const override { return true; }
    Value call(Interpreter& in, Arguments&& a) override {
        return in.run_macro(*stmt, scope, name, std::move(a));
    }
    void clear() override { scope.reset(); }
};

struct Loop final : Object {
    const Stmt* stmt = nullptr;
    ScopePtr scope;  // in which the loop stands
    Value iterable;
    Iterator source;
    std::optional<Value> after, current, before;
    bool peeked = false;  // `after` holds what comes next (or its absence)
    std::int64_t index0 = -1;
    int depth0 = 0;
    std::optional<std::int64_t> known_length;
    std::optional<List> last_changed;
    std::string_view type_name() const override { return "LoopContext"; }
    std::string repr(Interpreter&) const override;
    std::optional<Value> next();
    const std::optional<Value>& peek();
    std::optional<Value> attribute(Interpreter&, std::string_view name) override;
    std::optional<std::int64_t> length(Interpreter&) override;
    bool callable() const override { return true; }
    Value call(Interpreter& in, Arguments&& a) override;
    void clear() override;
};

struct Cycler final : Object {
    List items;
    std::size_t at = 0;
    std::string_view type_name() const override { return "Cycler"; }
    std::optional<Value> attribute(Interpreter&, std::string_view name) override;
    void clear() override { items.clear(); }
};

struct Joiner final : Object {
    Value separator;
    bool used = false;
    std::string_view type_name() const override { return "Joiner"; }
    void clear() override { separator = Value(); }
    bool callable() const override { return true; }
    Value call(Interpreter&, Arguments&&) override;
    std::optional<Value> attribute(Interpreter&, std::string_view name) override;
};

/// `dict`: callable, with fromkeys.
struct DictType final : Object {
    std::string_view type_name() const override { return "TemplateDict"; }
    std::string repr(Interpreter&) const override;
    bool callable() const override { return true; }
    Value call(Interpreter& in, Arguments&& a) override;
    std::optional<Value> attribute(Interpreter& in, std::string_view name) override;
};

/// `self`: its attributes are the template's blocks.
struct TemplateReference final : Object {
    std::string_view type_name() const override { return "TemplateReference"; }
    std::optional<Value> attribute(Interpreter& in, std::string_view name) override;
};

Value make_dict(Interpreter& in, const Arguments& a);

}  // namespace llmgen::jinja
