// Instruction sets that the fast kernels know, in rising order.
#pragma once

#include <string_view>

namespace llmgen::cpu {

enum class Isa { scalar, avx2, avx512, avx512_bf16, amx };

/// The best that this machine has.
Isa best_isa();
const char* name_of(Isa isa);
/// scalar, avx2, avx512, avx512_bf16 or amx; throws UsageError on anything else.
Isa parse_isa(std::string_view text);

}  // namespace llmgen::cpu
