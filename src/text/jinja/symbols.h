// What one frame of a template knows while its names are resolved (scope.cpp).
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "text/jinja/ast.h"

namespace llmgen::jinja {

struct Symbols {
    Symbols* parent = nullptr;
    int level = 0;
    FrameInfo* info = nullptr;
    std::shared_ptr<std::map<std::string, int>> slots =
        std::make_shared<std::map<std::string, int>>();  // of all branches
    std::map<std::string, int> refs;
    std::map<int, FrameInfo::Slot> loads;
    std::set<std::string> stores;
    std::shared_ptr<std::size_t> copied = std::make_shared<std::size_t>(0);

    int slot_of(const std::string& name) const {
        const auto [it, fresh] = slots->emplace(name, int(info->slots.size()));
        if (fresh) info->slots.push_back({name, Load::undefined, {}});
        return it->second;
    }
    /// Relative to this frame; slot −1 where no frame knows the name.
    Place find(const std::string& name) const {
        for (const Symbols* s = this; s; s = s->parent)
            if (const auto it = s->refs.find(name); it != s->refs.end())
                return {level - s->level, it->second};
        return {};
    }
    Place find_outer(const std::string& name) const {
        if (!parent) return {};
        Place p = parent->find(name);
        if (p.slot >= 0) p.up += 1;
        return p;
    }
    int define(const std::string& name, Load load, Place from = {}) {
        const int slot = slot_of(name);
        refs[name] = slot;
        loads[slot] = {name, load, from};
        return slot;
    }
    int parameter(const std::string& name) {
        stores.insert(name);
        return define(name, Load::parameter);
    }
    void load(const std::string& name) {
        if (find(name).slot < 0) define(name, Load::resolve);
    }
    void store(const std::string& name) {
        stores.insert(name);
        if (refs.count(name)) return;
        const Place outer = find_outer(name);
        if (outer.slot >= 0)
            define(name, Load::alias, outer);
        else
            define(name, Load::undefined);
    }
    void merge(const std::vector<Symbols>& branches) {
        std::set<std::string> fresh;
        for (const Symbols& b : branches) fresh.insert(b.stores.begin(), b.stores.end());
        for (const std::string& name : stores) fresh.erase(name);
        for (const Symbols& b : branches) {
            refs.insert(b.refs.begin(), b.refs.end());
            for (const auto& [slot, load] : b.loads) loads[slot] = load;
            stores.insert(b.stores.begin(), b.stores.end());
        }
        for (const std::string& name : fresh) {
            const int slot = refs.at(name);
            const Place outer = find_outer(name);
            loads[slot] = outer.slot >= 0 ? FrameInfo::Slot{name, Load::alias, outer}
                                          : FrameInfo::Slot{name, Load::resolve, {}};
        }
    }
    void finish() const {
        for (const auto& [slot, load] : loads) info->slots[std::size_t(slot)] = load;
    }
};

// What a frame's own code loads and stores goes into `s`.
enum class Use { load, store, parameter };
void see(Symbols& s, const Expr* e, Use use = Use::load);
void see(Symbols& s, const Body& body);

// What the reference's optimiser does before a template runs, where templates show it.
bool is_short_cut(const Expr& e);  // `and`, `or` whose first operand, a constant, decides
bool is_constant(const Expr& e);
/// Whether a constant's value can be, or hold, what a slice of it gave: an undefined, which the reference
/// computes but doesn't put in the expression's place.
bool may_be_slice(const Expr& e);
void mark_folded(Expr& e);

}  // namespace llmgen::jinja
