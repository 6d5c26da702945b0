// The values of the template language: Python's None, bool, int, float, str, list, tuple, dict, and the
// objects that only templates meet (undefined, namespace, macro, loop, generator …).
//
// Lists, tuples and dicts never change once made (the sandbox forbids what would change them), so they are
// shared freely. Containers know their depth, which is capped: printing, comparing and destroying them
// recurse.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/bigint.h"
#include "text/jinja/text.h"

namespace llmgen::jinja {

class Value;
class Interpreter;
struct Object;
struct Node;

enum class Type : std::uint8_t {
    undefined,
    none,
    boolean,
    integer,
    big_integer,
    floating,
    string,
    list,
    tuple,
    dict,
    object
};

using List = std::vector<Value>;
using ObjectPtr = std::shared_ptr<Object>;

/// Keyword arguments in the order of the call.
struct Arguments;

struct Undefined;
class Dict;
struct Sequence;

class Value {
public:
    Value() : type_(Type::none) {}
    static Value none() { return Value(); }
    static Value boolean(bool b);
    static Value integer(std::int64_t i);
    static Value integer(const BigInt& i);  // a small one where it fits
    static Value floating(double d);
    static Value string(Text text, bool markup = false);
    static Value string(std::string bytes, bool user = false) { return string(Text(std::move(bytes), user)); }
    static Value list(List items);
    /// `named`: a groupby tuple, whose parts are .grouper and .list
    static Value tuple(List items, bool named = false);
    static Value dict(std::shared_ptr<const Dict> dict);
    static Value object(ObjectPtr object);
    static Value undefined(std::string message, bool security = false);

    Type type() const { return type_; }
    bool is_undefined() const { return type_ == Type::undefined; }
    bool is_none() const { return type_ == Type::none; }
    bool is_bool() const { return type_ == Type::boolean; }
    bool is_int() const { return type_ == Type::integer || type_ == Type::big_integer; }
    /// int in Python's sense: bool is one.
    bool is_integral() const { return is_int() || is_bool(); }
    bool is_float() const { return type_ == Type::floating; }
    bool is_number() const { return is_integral() || is_float(); }
    bool is_string() const { return type_ == Type::string; }
    bool is_list() const { return type_ == Type::list; }
    bool is_tuple() const { return type_ == Type::tuple; }
    bool is_dict() const { return type_ == Type::dict; }
    bool is_object() const { return type_ == Type::object; }
    bool is_markup() const { return type_ == Type::string && markup_; }

    bool as_bool() const { return bool_; }
    std::int64_t as_int() const { return type_ == Type::boolean ? std::int64_t(bool_) : int_; }
    double as_float() const { return double_; }
    const BigInt& as_big() const;
    BigInt to_big() const;
    const Text& text() const { return text_; }
    const List& items() const;  // of a list or tuple
    bool is_named_tuple() const;
    const Dict& as_dict() const;
    std::shared_ptr<const Dict> dict_ptr() const;
    Object* as_object() const { return object_.get(); }
    template <typename T>
    T* as() const {
        return type_ == Type::object ? dynamic_cast<T*>(object_.get()) : nullptr;
    }
    const Undefined& as_undefined() const;
    const void* identity() const { return object_.get(); }

    /// Whether a number or constant came from a user's JSON (strings carry ranges of their own).
    bool from_user() const { return user_; }
    Value with_user(bool user) const;
    int depth() const;
    /// Values in it, counted as often as they occur: what comparing or printing it costs.
    std::int64_t weight() const;

private:
    Type type_;
    bool user_ = false;
    bool markup_ = false;
    union {
        bool bool_;
        std::int64_t int_ = 0;
        double double_;
    };
    Text text_;
    ObjectPtr object_;
};

struct Arguments {
    std::vector<Value> positional;
    std::vector<std::pair<Text, Value>> keyword;
};

/// Pulls values one by one; nullopt at the end.
using Iterator = std::function<std::optional<Value>()>;

struct Object {
    virtual ~Object() = default;
    virtual std::string_view type_name() const = 0;
    virtual int depth() const { return 0; }
    virtual std::int64_t weight() const { return 1; }
    virtual std::string repr(Interpreter&) const;
    /// nullopt: no such attribute. An attribute whose use the sandbox forbids is an undefined with the
    /// security flag.
    virtual std::optional<Value> attribute(Interpreter&, std::string_view) { return std::nullopt; }
    virtual std::optional<Value> item(Interpreter&, const Value&) { return std::nullopt; }
    virtual bool subscriptable() const { return false; }
    virtual bool callable() const { return false; }
    virtual Value call(Interpreter&, Arguments&&);
    virtual std::optional<std::int64_t> length(Interpreter&) { return std::nullopt; }
    /// Empty: not iterable.
    virtual Iterator iterate(Interpreter&) { return {}; }
    virtual bool truthy(Interpreter& in) {
        const auto n = length(in);
        return !n || *n != 0;
    }
    /// For the end of a render: drops what may form a cycle.
    virtual void clear() {}
};

struct Sequence final : Object {
    List items;
    int depth_ = 1;
    std::int64_t weight_ = 1;
    bool named = false;
    std::string_view type_name() const override { return "list"; }
    int depth() const override { return depth_; }
    std::int64_t weight() const override { return weight_; }
};

struct BigBox final : Object {
    BigInt value;
    std::string_view type_name() const override { return "int"; }
};

struct Undefined final : Object {
    std::string message;
    bool security = false;
    std::string_view type_name() const override { return "Undefined"; }
};

/// Insertion-ordered, with Python's notion of equal keys (1, 1.0 and True are one).
class Dict final : public Object {
public:
    std::string_view type_name() const override { return "dict"; }
    int depth() const override { return depth_; }
    std::int64_t weight() const override { return weight_; }
    std::size_t size() const { return entries_.size(); }
    const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
    const Value* find(const Value& key) const;  // raises TypeError for an unhashable key
    const Value* find(std::string_view key) const;
    void set(Value key, Value value);
    void set(std::string_view key, Value value) { set(Value::string(std::string(key)), std::move(value)); }

private:
    std::size_t index_of(const Value& key, std::size_t hash) const;
    std::vector<std::pair<Value, Value>> entries_;
    std::unordered_multimap<std::size_t, std::size_t> index_;  // hash → place, once there are many
    int depth_ = 1;
    std::int64_t weight_ = 1;
};

inline constexpr int kMaxDepth = 300;
inline constexpr std::int64_t kMaxWeight = 20'000'000;

// --- what Python does with values (no interpreter needed) ---
std::string type_name(const Value& v);
/// Python's hash classes; raises TypeError for lists and dicts.
std::size_t hash(const Value& v);
bool equal(const Value& a, const Value& b);
/// -1, 0, 1, or 2 where not ordered (NaN); raises TypeError naming `op` where Python does.
int compare(const Value& a, const Value& b, std::string_view op);
bool is_hashable(const Value& v);
/// `seq[index]` for an index that may be negative; nullopt where out of range.
std::optional<std::size_t> clamp_index(std::int64_t index, std::size_t size);
[[noreturn]] void raise_undefined(const Value& v);
std::string format_float(double d);  // Python's repr
/// str and repr of numbers and constants.
std::string scalar_text(const Value& v);

}  // namespace llmgen::jinja
