// Weights from rows to panels by transpositions in registers: a quarter of the time of moving pair by pair.
#pragma once

#include <cstdint>

namespace llmgen::cpu {

/// The depth of such a panel is a multiple of this.
inline constexpr std::int64_t kPackStep = 32;

/// panel [depth / 2][32][2] from 32 rows of `depth` bf16 each.
using PackPanel = void (*)(void* panel, const void* const* rows, std::int64_t depth);

/// Null where the compiler knows no such instructions. For CPUs with AVX-512 only.
PackPanel pack_panel_avx512bf16();

}  // namespace llmgen::cpu
