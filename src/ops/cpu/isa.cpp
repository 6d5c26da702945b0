#include "ops/cpu/isa.h"

#include "base/error.h"

namespace llmgen::cpu {
namespace {

struct Named {
    Isa isa;
    std::string_view flag;
    const char* name;
};
constexpr Named kNames[] = {{Isa::scalar, "scalar", "no SIMD"},
                            {Isa::avx2, "avx2", "AVX2"},
                            {Isa::avx512, "avx512", "AVX-512"},
                            {Isa::avx512_bf16, "avx512_bf16", "AVX-512 bf16"},
                            {Isa::amx, "amx", "AMX bf16"}};

}  // namespace

const char* name_of(Isa isa) {
    for (const Named& entry : kNames)
        if (entry.isa == isa) return entry.name;
    return "?";
}

Isa parse_isa(std::string_view text) {
    for (const Named& entry : kNames)
        if (entry.flag == text) return entry.isa;
    fail_usage("LLMGEN_CPU_ISA={}: unknown; give scalar, avx2, avx512, avx512_bf16 or amx", text);
}

}  // namespace llmgen::cpu
