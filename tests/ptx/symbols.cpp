#include "ptx/symbols.h"

#include <elf.h>
#include <link.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

namespace llmgen::ptx {

std::map<std::uintptr_t, std::string> own_symbols() {
    std::ifstream in("/proc/self/exe", std::ios::binary);
    const std::vector<char> file{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    auto at = [&]<typename T>(std::size_t offset, T) {
        T value;
        if (offset + sizeof value > file.size())
            throw std::runtime_error("this program's symbols can't be read");
        std::memcpy(&value, file.data() + offset, sizeof value);
        return value;
    };
    std::uintptr_t base = 0;  // where the program was loaded
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* to) {
            *static_cast<std::uintptr_t*>(to) = info->dlpi_addr;
            return 1;  // the first is the program itself
        },
        &base);
    std::map<std::uintptr_t, std::string> symbols;
    const auto head = at(0, Elf64_Ehdr{});
    for (unsigned i = 0; i < head.e_shnum; ++i) {
        const auto section = at(head.e_shoff + i * sizeof(Elf64_Shdr), Elf64_Shdr{});
        if (section.sh_type != SHT_SYMTAB) continue;
        const auto strings = at(head.e_shoff + section.sh_link * sizeof(Elf64_Shdr), Elf64_Shdr{});
        for (std::size_t offset = 0; offset < section.sh_size; offset += sizeof(Elf64_Sym)) {
            const auto symbol = at(section.sh_offset + offset, Elf64_Sym{});
            if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_value != 0)
                symbols[base + symbol.st_value] = file.data() + strings.sh_offset + symbol.st_name;
        }
    }
    if (symbols.empty()) throw std::runtime_error("this program has no symbol table: was it stripped?");
    return symbols;
}

}  // namespace llmgen::ptx
