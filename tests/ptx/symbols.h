// The functions of the running program by address, from its own ELF symbol table (also what dladdr can't see:
// functions of anonymous namespaces).
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace llmgen::ptx {

std::map<std::uintptr_t, std::string> own_symbols();

}  // namespace llmgen::ptx
