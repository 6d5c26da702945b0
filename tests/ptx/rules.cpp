// The table behind find_rule: an opcode is looked up whole, so a modifier that no rule names is unknown.
#include "ptx/rules.h"

namespace llmgen::ptx {

namespace {
const Table& table() {
    static const Table rules = [] {
        Table t;
        add_number_rules(t);
        add_memory_rules(t);
        add_warp_rules(t);
        return t;
    }();
    return rules;
}
}  // namespace

const Rule* find_rule(const std::string& opcode) {
    const auto it = table().find(opcode);
    return it == table().end() ? nullptr : &it->second;
}

std::vector<std::string> all_opcodes() {
    std::vector<std::string> names;
    for (const auto& [name, rule] : table()) names.push_back(name);
    return names;
}

}  // namespace llmgen::ptx
