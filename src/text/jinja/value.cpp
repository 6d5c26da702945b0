#include "text/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace llmgen::jinja {

void raise_undefined(const Value& v) {
    const Undefined& u = v.as_undefined();
    raise(u.security ? "SecurityError" : "UndefinedError", u.message);
}

std::string Object::repr(Interpreter&) const { return "<" + std::string(type_name()) + " object>"; }

Value Object::call(Interpreter&, Arguments&&) {
    raise("TypeError", "'" + std::string(type_name()) + "' object is not callable");
}

Value Value::boolean(bool b) {
    Value v;
    v.type_ = Type::boolean;
    v.bool_ = b;
    return v;
}

Value Value::integer(std::int64_t i) {
    Value v;
    v.type_ = Type::integer;
    v.int_ = i;
    return v;
}

Value Value::integer(const BigInt& i) {
    if (const auto small = i.to_int64()) return integer(*small);
    constexpr std::size_t kMaxBits = 1 << 16;
    if (i.bits() > kMaxBits) raise("OverflowError", "an integer of more than 65536 bits");
    auto box = std::make_shared<BigBox>();
    box->value = i;
    Value v;
    v.type_ = Type::big_integer;
    v.object_ = std::move(box);
    return v;
}

Value Value::floating(double d) {
    Value v;
    v.type_ = Type::floating;
    v.double_ = d;
    return v;
}

Value Value::string(Text text, bool markup) {
    Value v;
    v.type_ = Type::string;
    v.markup_ = markup;
    v.text_ = std::move(text);
    return v;
}

namespace {
std::shared_ptr<Sequence> make_sequence(List items) {
    auto s = std::make_shared<Sequence>();
    for (const Value& item : items) {
        s->depth_ = std::max(s->depth_, item.depth() + 1);
        s->weight_ += item.weight();
        if (s->weight_ > kMaxWeight) raise("ResourceError", "a value with too many parts");
    }
    if (s->depth_ > kMaxDepth) raise("RecursionError", "a value nested too deeply");
    s->items = std::move(items);
    return s;
}
}  // namespace

Value Value::list(List items) {
    Value v;
    v.type_ = Type::list;
    v.object_ = make_sequence(std::move(items));
    return v;
}

Value Value::tuple(List items, bool named) {
    Value v;
    auto s = make_sequence(std::move(items));
    s->named = named;
    v.type_ = Type::tuple;
    v.object_ = std::move(s);
    return v;
}

Value Value::dict(std::shared_ptr<const Dict> dict) {
    Value v;
    v.type_ = Type::dict;
    v.object_ = std::const_pointer_cast<Dict>(std::move(dict));
    return v;
}

Value Value::object(ObjectPtr object) {
    Value v;
    v.type_ = Type::object;
    v.object_ = std::move(object);
    return v;
}

Value Value::undefined(std::string message, bool security) {
    auto u = std::make_shared<Undefined>();
    u->message = std::move(message);
    u->security = security;
    Value v;
    v.type_ = Type::undefined;
    v.object_ = std::move(u);
    return v;
}

const BigInt& Value::as_big() const { return static_cast<const BigBox*>(object_.get())->value; }
BigInt Value::to_big() const { return type_ == Type::big_integer ? as_big() : BigInt(as_int()); }
const List& Value::items() const {
    CHECK(type_ == Type::list || type_ == Type::tuple);
    return static_cast<const Sequence*>(object_.get())->items;
}
bool Value::is_named_tuple() const {
    return type_ == Type::tuple && static_cast<const Sequence*>(object_.get())->named;
}
const Dict& Value::as_dict() const {
    CHECK(type_ == Type::dict);
    return *static_cast<const Dict*>(object_.get());
}
std::shared_ptr<const Dict> Value::dict_ptr() const { return std::static_pointer_cast<const Dict>(object_); }
const Undefined& Value::as_undefined() const { return *static_cast<const Undefined*>(object_.get()); }

Value Value::with_user(bool user) const {
    Value v = *this;
    v.user_ = user;
    return v;
}

int Value::depth() const { return object_ ? object_->depth() : 0; }
std::int64_t Value::weight() const { return object_ ? object_->weight() : 1; }

// --- dict ---

constexpr std::size_t kIndexFrom = 9;  // below, looking along is faster

std::size_t Dict::index_of(const Value& key, std::size_t h) const {
    if (index_.empty()) {
        for (std::size_t i = 0; i < entries_.size(); ++i)
            if (equal(entries_[i].first, key)) return i;
        return entries_.size();
    }
    const auto [first, last] = index_.equal_range(h);
    for (auto it = first; it != last; ++it)
        if (equal(entries_[it->second].first, key)) return it->second;
    return entries_.size();
}

const Value* Dict::find(const Value& key) const {
    const std::size_t i = index_of(key, hash(key));
    return i < entries_.size() ? &entries_[i].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
    if (index_.empty()) {
        for (const auto& [k, v] : entries_)
            if (k.is_string() && k.text().view() == key) return &v;
        return nullptr;
    }
    return find(Value::string(std::string(key)));
}

void Dict::set(Value key, Value value) {
    const std::size_t h = hash(key);
    depth_ = std::max({depth_, key.depth() + 1, value.depth() + 1});
    weight_ += key.weight() + value.weight();
    if (depth_ > kMaxDepth) raise("RecursionError", "a value nested too deeply");
    if (weight_ > kMaxWeight) raise("ResourceError", "a value with too many parts");
    const std::size_t i = index_of(key, h);
    if (i < entries_.size()) {
        entries_[i].second = std::move(value);
        return;
    }
    entries_.emplace_back(std::move(key), std::move(value));
    if (entries_.size() == kIndexFrom)
        for (std::size_t j = 0; j < entries_.size(); ++j) index_.emplace(hash(entries_[j].first), j);
    else if (entries_.size() > kIndexFrom)
        index_.emplace(h, entries_.size() - 1);
}

// --- what Python does ---

std::string type_name(const Value& v) {
    switch (v.type()) {
        case Type::undefined:
            return "Undefined";
        case Type::none:
            return "NoneType";
        case Type::boolean:
            return "bool";
        case Type::integer:
        case Type::big_integer:
            return "int";
        case Type::floating:
            return "float";
        case Type::string:
            return v.is_markup() ? "Markup" : "str";
        case Type::list:
            return "list";
        case Type::tuple:
            return v.is_named_tuple() ? "_GroupTuple" : "tuple";
        case Type::dict:
            return "dict";
        case Type::object:
            return std::string(v.as_object()->type_name());
    }
    return "object";
}

bool is_hashable(const Value& v) {
    if (v.is_list() || v.is_dict()) return false;
    if (v.is_tuple()) return std::all_of(v.items().begin(), v.items().end(), is_hashable);
    return true;
}

std::size_t hash(const Value& v) {
    switch (v.type()) {
        case Type::undefined:
            return 1;
        case Type::none:
            return 2;
        case Type::boolean:
        case Type::integer:
            return std::hash<double>()(double(v.as_int()));
        case Type::big_integer:
            return std::hash<double>()(v.as_big().to_double());
        case Type::floating:
            return std::hash<double>()(v.as_float() == 0 ? 0.0 : v.as_float());
        case Type::string:
            return std::hash<std::string_view>()(v.text().view());
        case Type::tuple: {
            std::size_t h = 3;
            for (const Value& item : v.items()) h = h * 1000003 + hash(item);
            return h;
        }
        case Type::list:
        case Type::dict:
            raise("TypeError", "unhashable type: '" + type_name(v) + "'");
        case Type::object:
            return std::hash<const void*>()(v.identity());
    }
    return 0;
}

namespace {

// Exact, unlike a comparison of doubles: 2**53 + 1 is not 2.0**53.
int compare_numbers(const Value& a, const Value& b) {
    if (a.is_integral() && b.is_integral()) {
        if (a.type() != Type::big_integer && b.type() != Type::big_integer)
            return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int() ? 1 : 0;
        return BigInt::compare(a.to_big(), b.to_big());
    }
    if (a.is_float() && b.is_float()) {
        const double x = a.as_float(), y = b.as_float();
        return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
    }
    if (b.is_integral()) {
        const int c = compare_numbers(b, a);
        return c == 2 ? 2 : -c;
    }
    const double y = b.as_float();
    if (std::isnan(y)) return 2;
    if (std::isinf(y)) return y > 0 ? -1 : 1;
    const int c = BigInt::compare(a.to_big(), BigInt::from_double(y));
    if (c != 0) return c;
    const double fraction = y - std::trunc(y);
    return fraction > 0 ? -1 : fraction < 0 ? 1 : 0;
}

}  // namespace

bool equal(const Value& a, const Value& b) {
    if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
    if (a.type() != b.type()) return false;
    switch (a.type()) {
        case Type::undefined:
        case Type::none:
            return true;
        case Type::string:
            return a.text() == b.text();
        case Type::list:
        case Type::tuple:
            return a.identity() == b.identity() ||
                   std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), equal);
        case Type::dict: {
            const Dict &x = a.as_dict(), &y = b.as_dict();
            if (&x == &y) return true;
            if (x.size() != y.size()) return false;
            return std::all_of(x.entries().begin(), x.entries().end(), [&](const auto& entry) {
                const Value* other = y.find(entry.first);
                return other && equal(entry.second, *other);
            });
        }
        default:
            return a.identity() == b.identity();
    }
}

int compare(const Value& a, const Value& b, std::string_view op) {
    if (a.is_undefined()) raise_undefined(a);
    if (b.is_undefined()) raise_undefined(b);
    if (a.is_number() && b.is_number()) return compare_numbers(a, b);
    if (a.is_string() && b.is_string()) {
        const int c = a.text().view().compare(b.text().view());  // UTF-8 keeps the order of code points
        return c < 0 ? -1 : c > 0;
    }
    if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
        const List &x = a.items(), &y = b.items();
        for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
            if (!equal(x[i], y[i])) return compare(x[i], y[i], op);
        return x.size() < y.size() ? -1 : x.size() > y.size();
    }
    raise("TypeError", "'" + std::string(op) + "' not supported between instances of '" + type_name(a) +
                           "' and '" + type_name(b) + "'");
}

std::optional<std::size_t> clamp_index(std::int64_t index, std::size_t size) {
    if (index < 0) index += std::int64_t(size);
    if (index < 0 || index >= std::int64_t(size)) return std::nullopt;
    return std::size_t(index);
}

// Shortest digits that read back as `d`, in Python's layout: an exponent below 1e-4 and from 1e16.
std::string format_float(double d) {
    if (std::isnan(d)) return "nan";
    if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
    char buffer[40];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
    std::string_view s(buffer, std::size_t(end - buffer));
    std::string out;
    if (s[0] == '-') {
        out = "-";
        s.remove_prefix(1);
    }
    const std::size_t e = s.find('e');
    const int exponent = std::stoi(std::string(s.substr(e + 1)));
    std::string digits(1, s[0]);
    if (e > 2) digits += s.substr(2, e - 2);
    if (exponent < -4 || exponent >= 16) {
        out += digits[0];
        if (digits.size() > 1) out += "." + digits.substr(1);
        char x[16];
        std::snprintf(x, sizeof x, "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
        return out + x;
    }
    if (exponent < 0) return out + "0." + std::string(std::size_t(-exponent - 1), '0') + digits;
    const std::size_t whole = std::size_t(exponent) + 1;
    if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
    return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string scalar_text(const Value& v) {
    switch (v.type()) {
        case Type::none:
            return "None";
        case Type::boolean:
            return v.as_bool() ? "True" : "False";
        case Type::integer:
            return std::to_string(v.as_int());
        case Type::big_integer:
            if (v.as_big().bits() > 14286)  // 4300 digits
                raise("ValueError", "Exceeds the limit (4300 digits) for integer string conversion");
            return v.as_big().to_string();
        case Type::floating:
            return format_float(v.as_float());
        default:
            return {};
    }
}

}  // namespace llmgen::jinja
