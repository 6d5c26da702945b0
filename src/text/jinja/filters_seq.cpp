// The filters on sequences and mappings. map, select and their kin give generators: lazy, true, usable once,
// without length.
#include <algorithm>
#include <map>

#include "text/jinja/eval.h"
#include "text/jinja/objects.h"

namespace llmgen::jinja {
namespace {

Value ignore_case(const Value& v) { return v.is_string() ? Value::string(lower(v.text())) : v; }

// "a.b.0" → the steps of an attribute path.
std::vector<Value> attribute_path(const Value& attribute) {
    std::vector<Value> parts;
    if (attribute.is_none()) return parts;
    if (!attribute.is_string()) return {attribute};
    const Text dot(".");
    for (const Value& part : split(attribute.text(), &dot, -1, false)) {
        const std::string_view s = part.text().view();
        const bool digits =
            !s.empty() && s.size() < 18 && s.find_first_not_of("0123456789") == std::string_view::npos;
        parts.push_back(digits ? Value::integer(std::stoll(std::string(s))) : part);
    }
    return parts;
}

struct Getter {
    std::vector<Value> path;
    bool fold = false;
    Value otherwise;  // none: no default

    Getter(const Value* attribute, bool fold_case, Value default_value = Value())
        : path(attribute ? attribute_path(*attribute) : std::vector<Value>()),
          fold(fold_case),
          otherwise(std::move(default_value)) {}
    Value operator()(Interpreter& in, Value v) const {
        for (const Value& part : path) {
            v = in.item(v, part);
            if (v.is_undefined() && !otherwise.is_none()) v = otherwise;
        }
        return fold ? ignore_case(v) : v;
    }
};

// A generator function of Python's: nothing happens, no fault either, before it is first asked.
Value lazy(Interpreter& in, const Value& v, const char* name, std::function<Iterator()> start) {
    return make_generator(
        [&in, start = std::move(start), next = Iterator(),
         started = false]() mutable -> std::optional<Value> {
            if (!started) {
                started = true;
                next = start();
            }
            in.step();
            return next ? next() : std::nullopt;
        },
        name, v.depth());
}

// map and select look at their input first: nothing comes of a false one.
Value lazy_if_true(Interpreter& in,
                   const Value& v,
                   const char* name,
                   std::function<Iterator(Iterator)> make) {
    return lazy(in, v, name,
                [&in, v, make = std::move(make)] { return in.truthy(v) ? make(in.iterate(v)) : Iterator(); });
}

bool flag(Interpreter& in, const Parameters& p, std::size_t i) { return p[i] && in.truthy(*p[i]); }

// Sorted by keys, stable; `reverse` keeps equal ones in their order, as Python does.
List sort_by(Interpreter& in,
             const List& items,
             const std::function<Value(const Value&)>& key,
             bool reverse) {
    std::vector<std::pair<Value, const Value*>> keyed;
    keyed.reserve(items.size());
    for (const Value& v : items) keyed.emplace_back(key(v), &v);
    std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
        in.step();
        in.charge(std::size_t(std::min(a.first.weight(), b.first.weight())));
        return reverse ? compare(b.first, a.first, "<") == -1 : compare(a.first, b.first, "<") == -1;
    });
    List out;
    out.reserve(items.size());
    for (const auto& [k, v] : keyed) out.push_back(*v);
    return out;
}

Value sort_filter(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_sort", {"reverse", "case_sensitive", "attribute"}, a, 0);
    const bool fold = !flag(in, p, 1);
    std::vector<Getter> getters;
    if (p[2] && p[2]->is_string()) {
        const Text comma(",");
        for (const Value& part : split(p[2]->text(), &comma, -1, false)) getters.emplace_back(&part, fold);
    } else {
        getters.emplace_back(p[2], fold);
    }
    const List items = in.to_list(v);
    return Value::list(sort_by(
        in, items,
        [&](const Value& item) {
            List key;
            for (const Getter& g : getters) key.push_back(g(in, item));
            return Value::list(std::move(key));
        },
        flag(in, p, 0)));
}

Value dict_sort(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_dictsort", {"case_sensitive", "by", "reverse"}, a, 0);
    const std::string by = p[1] ? std::string(in.str(*p[1]).view()) : "key";
    if (by != "key" && by != "value")
        raise("FilterArgumentError", "You can only sort by either \"key\" or \"value\"");
    if (v.is_undefined()) raise_undefined(v);
    if (!v.is_dict()) raise("AttributeError", "'" + type_name(v) + "' object has no attribute 'items'");
    const bool fold = !flag(in, p, 0);
    List items;
    for (const auto& [key, value] : v.as_dict().entries()) items.push_back(Value::tuple({key, value}));
    return Value::list(sort_by(
        in, items,
        [&](const Value& item) {
            const Value& x = item.items()[by == "key" ? 0 : 1];
            return fold ? ignore_case(x) : x;
        },
        flag(in, p, 2)));
}

Value unique(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_unique", {"case_sensitive", "attribute"}, a, 0);
    const Getter get(p[1], !flag(in, p, 0));
    return lazy(in, v, "sync_do_unique", [&in, v, get]() -> Iterator {
        return [&in, get, next = in.iterate(v), seen = std::make_shared<Dict>()]() -> std::optional<Value> {
            while (auto item = next()) {
                in.step();
                const Value key = get(in, *item);
                if (seen->find(key)) continue;
                seen->set(key, Value());
                return item;
            }
            return std::nullopt;
        };
    });
}

Value extreme(Interpreter& in, const Value& v, Arguments& a, const char* op) {
    const Parameters p(op[0] == '<' ? "do_min" : "do_max", {"case_sensitive", "attribute"}, a, 0);
    const Getter get(p[1], !flag(in, p, 0));
    const Iterator next = in.iterate(v);
    std::optional<Value> best;
    Value best_key;
    while (auto item = next()) {
        in.step();
        Value key = get(in, *item);
        if (!best || compare(key, best_key, op) == (op[0] == '<' ? -1 : 1)) {
            best = std::move(item);
            best_key = std::move(key);
        }
    }
    return best ? *best : Value::undefined("No aggregated item, sequence was empty.");
}
Value min_filter(Interpreter& in, const Value& v, Arguments&& a) { return extreme(in, v, a, "<"); }
Value max_filter(Interpreter& in, const Value& v, Arguments&& a) { return extreme(in, v, a, ">"); }

Value join_filter(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_join", {"d", "attribute"}, a, 0);
    const Value by = p.get(0, Value::string(""));
    const bool has_attribute = p[1] && !p[1]->is_none();
    const Getter get(has_attribute ? p[1] : nullptr, false);
    List items = in.to_list(v);
    if (has_attribute)
        for (Value& item : items) item = get(in, item);
    const bool markup =
        in.autoescape && (by.is_markup() || std::any_of(items.begin(), items.end(),
                                                        [](const Value& x) { return x.is_markup(); }));
    std::vector<Text> parts;
    for (const Value& item : items) parts.push_back(markup ? in.escape(item).text() : in.str(item));
    return Value::string(join(in, markup ? in.escape(by).text() : in.str(by), parts), markup);
}

Value first(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_first", {}, a, 0);
    const auto item = in.iterate(v)();
    return item ? *item : Value::undefined("No first item, sequence was empty.");
}

// What Python's reversed() takes: sequences, dicts and their views.
bool reversible(const Value& v) {
    return v.is_string() || v.is_list() || v.is_tuple() || v.is_dict() || v.as<Range>() || v.as<DictView>() ||
           v.is_undefined();
}

Value last(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_last", {}, a, 0);
    if (!reversible(v)) raise("TypeError", "'" + type_name(v) + "' object is not reversible");
    if (v.is_string() || v.is_list() || v.is_tuple()) {
        const Value item = in.item(v, Value::integer(-1));
        return item.is_undefined() && *in.length(v) == 0
                   ? Value::undefined("No last item, sequence was empty.")
                   : item;
    }
    const List items = in.to_list(v);
    return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value random_filter(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_random", {}, a, 0);
    const List items = in.to_list(v);
    if (items.empty()) return Value::undefined("No random item, sequence was empty.");
    raise("TypeError", "random is not available in chat templates: a prompt must not change from run to run");
}

Value length(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("len", {}, a, 0);
    const auto n = in.length(v);
    if (!n) raise("TypeError", "object of type '" + type_name(v) + "' has no len()");
    return Value::integer(*n);
}

Value list_filter(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_list", {}, a, 0);
    return Value::list(in.to_list(v));
}

Value items_filter(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_items", {}, a, 0);
    return lazy(in, v, "do_items", [&in, v]() -> Iterator {
        if (v.is_undefined()) return {};
        if (!v.is_dict()) raise("TypeError", "Can only get item pairs from a mapping.");
        DictView view;
        view.kind = DictView::Kind::items;
        view.dict = v.dict_ptr();
        return view.iterate(in);
    });
}

Value reverse_filter(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_reverse", {}, a, 0);
    if (v.is_string()) return in.own(reverse(v.text()), v.is_markup());
    if (!in.is_iterable(v)) raise("FilterArgumentError", "argument must be iterable");
    List items = in.to_list(v);
    std::reverse(items.begin(), items.end());
    const Value list = Value::list(std::move(items));
    if (!reversible(v)) return list;
    return make_generator(in.iterate(list), "reversed", list.depth());
}

Value sum_filter(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_sum", {"attribute", "start"}, a, 0);
    const Getter get(p[0], false);
    Value total = p.get(1, Value::integer(0));
    if (total.is_string()) raise("TypeError", "sum() can't sum strings [use ''.join(seq) instead]");
    const Iterator next = in.iterate(v);
    while (auto item = next()) {
        in.step();
        total = in.binary(Op::add, total, get(in, *item));
    }
    return total;
}

Value batch(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_batch", {"linecount", "fill_with"}, a, 1);
    return lazy(in, v, "do_batch", [&in, v, count = *p[0], fill = p.get(1, Value())]() -> Iterator {
        return [&in, count, fill, next = in.iterate(v), done = false,
                held = std::optional<Value>()]() mutable -> std::optional<Value> {
            if (done) return std::nullopt;
            List row;
            if (held) row.push_back(std::move(*held));
            held.reset();
            while (auto item = next()) {
                in.step();
                if (equal(Value::integer(std::int64_t(row.size())), count)) {
                    held = std::move(item);
                    return Value::list(std::move(row));
                }
                row.push_back(std::move(*item));
            }
            done = true;
            if (row.empty()) return std::nullopt;
            const std::int64_t size = fill.is_none() ? 0 : index_value(count);
            if (std::int64_t(row.size()) < size) {
                in.charge(std::size_t(std::min(size, std::int64_t(1) << 32)) * sizeof(Value));
                row.resize(std::size_t(size), fill);
            }
            return Value::list(std::move(row));
        };
    });
}

Value slice_filter(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_slice", {"slices", "fill_with"}, a, 1);
    return lazy(in, v, "sync_do_slice", [&in, v, count = *p[0], fill = p.get(1, Value())]() -> Iterator {
        const List all = in.to_list(v);
        const std::int64_t slices = index_value(count), n = std::int64_t(all.size());
        if (slices == 0) raise("ZeroDivisionError", "integer division or modulo by zero");
        const std::int64_t per = slices > 0 ? n / slices : 0, extra = slices > 0 ? n % slices : 0;
        return [all, slices, per, extra, fill, i = std::int64_t(0),
                offset = std::int64_t(0)]() mutable -> std::optional<Value> {
            if (i >= slices) return std::nullopt;
            const std::int64_t start = offset + i * per;
            if (i < extra) ++offset;
            const std::int64_t end = offset + (i + 1) * per;
            List row(all.begin() + std::ptrdiff_t(start), all.begin() + std::ptrdiff_t(end));
            if (!fill.is_none() && i >= extra) row.push_back(fill);
            ++i;
            return Value::list(std::move(row));
        };
    });
}

Value group_by(Interpreter& in, const Value& v, Arguments&& a) {
    const Parameters p("do_groupby", {"attribute", "default", "case_sensitive"}, a, 1);
    const bool sensitive = flag(in, p, 2);
    const Getter key(p[0], !sensitive, p.get(1, Value())), real(p[0], false, p.get(1, Value()));
    const List items = in.to_list(v);
    const List sorted = sort_by(
        in, items, [&](const Value& x) { return key(in, x); }, false);
    List out;
    for (std::size_t i = 0; i < sorted.size();) {
        const Value k = key(in, sorted[i]);
        List group;
        const std::size_t begin = i;
        while (i < sorted.size() && equal(key(in, sorted[i]), k)) group.push_back(sorted[i++]);
        if (i == begin) group.push_back(sorted[i++]);  // a key that does not equal itself
        out.push_back(
            Value::tuple({sensitive ? k : real(in, sorted[begin]), Value::list(std::move(group))}, true));
    }
    return Value::list(std::move(out));
}

Value map_filter(Interpreter& in, const Value& v, Arguments&& arguments) {
    auto a = std::make_shared<Arguments>(std::move(arguments));
    return lazy_if_true(in, v, "sync_do_map", [&in, a](Iterator next) -> Iterator {
        const auto attribute = std::find_if(a->keyword.begin(), a->keyword.end(),
                                            [](const auto& k) { return k.first.view() == "attribute"; });
        if (a->positional.empty() && attribute != a->keyword.end()) {
            Value otherwise;
            for (const auto& [key, value] : a->keyword) {
                if (key.view() == "default")
                    otherwise = value;
                else if (key.view() != "attribute")
                    raise("FilterArgumentError",
                          "Unexpected keyword argument '" + std::string(key.view()) + "'");
            }
            const Getter get(&attribute->second, false, otherwise);
            return [&in, get, next = std::move(next)]() -> std::optional<Value> {
                auto item = next();
                if (item) item = get(in, *item);
                return item;
            };
        }
        if (a->positional.empty()) raise("FilterArgumentError", "map requires a filter argument");
        const std::string name(in.str(a->positional[0]).view());
        return [&in, a, name, next = std::move(next)]() -> std::optional<Value> {
            auto item = next();
            if (!item) return item;
            Arguments rest = *a;
            rest.positional.erase(rest.positional.begin());
            return in.call_filter(name, *item, std::move(rest));
        };
    });
}

Value select_or_reject(Interpreter& in, const Value& v, Arguments&& arguments, bool keep, bool by_attribute) {
    auto a = std::make_shared<Arguments>(std::move(arguments));
    return lazy_if_true(in, v, "select_or_reject", [&in, a, keep, by_attribute](Iterator next) -> Iterator {
        const std::size_t offset = by_attribute ? 1 : 0;
        if (a->positional.size() < offset)
            raise("FilterArgumentError", "Missing parameter for attribute name");
        const Getter get(by_attribute ? &a->positional[0] : nullptr, false);
        const bool plain = a->positional.size() <= offset;
        const std::string name = plain ? "" : std::string(in.str(a->positional[offset]).view());
        return [&in, a, get, keep, plain, name, offset, next = std::move(next)]() -> std::optional<Value> {
            while (auto item = next()) {
                in.step();
                const Value value = get(in, *item);
                bool passes = false;
                if (plain) {
                    passes = in.truthy(value);
                } else {
                    Arguments rest = *a;
                    rest.positional.erase(rest.positional.begin(),
                                          rest.positional.begin() + std::ptrdiff_t(offset) + 1);
                    passes = in.call_test(name, value, std::move(rest));
                }
                if (passes == keep) return item;
            }
            return std::nullopt;
        };
    });
}
Value select(Interpreter& in, const Value& v, Arguments&& a) {
    return select_or_reject(in, v, std::move(a), true, false);
}
Value reject(Interpreter& in, const Value& v, Arguments&& a) {
    return select_or_reject(in, v, std::move(a), false, false);
}
Value select_attribute(Interpreter& in, const Value& v, Arguments&& a) {
    return select_or_reject(in, v, std::move(a), true, true);
}
Value reject_attribute(Interpreter& in, const Value& v, Arguments&& a) {
    return select_or_reject(in, v, std::move(a), false, true);
}

}  // namespace

FilterFunction find_sequence_filter(std::string_view name) {
    static const std::map<std::string_view, FilterFunction> table = {
        {"batch", batch},
        {"count", length},
        {"dictsort", dict_sort},
        {"first", first},
        {"groupby", group_by},
        {"items", items_filter},
        {"join", join_filter},
        {"last", last},
        {"length", length},
        {"list", list_filter},
        {"map", map_filter},
        {"max", max_filter},
        {"min", min_filter},
        {"random", random_filter},
        {"reject", reject},
        {"rejectattr", reject_attribute},
        {"reverse", reverse_filter},
        {"select", select},
        {"selectattr", select_attribute},
        {"slice", slice_filter},
        {"sort", sort_filter},
        {"sum", sum_filter},
        {"unique", unique},
    };
    const auto it = table.find(name);
    return it == table.end() ? nullptr : it->second;
}

}  // namespace llmgen::jinja
