// Which of Highway's targets an instruction set selects. Include after foreach_target.h. The targets that are
// built: see HWY_DISABLED_TARGETS in CMakeLists.txt.
//
// Highway 1.0.3 knows no bf16 dot product; the few kernels that live on it are in the *_avx512bf16 files,
// compiled for that instruction set alone and chosen at run time.
#pragma once

#include <hwy/highway.h>

#include "ops/cpu/isa.h"

namespace llmgen::cpu {

/// The place in Highway's dispatch tables of the best target that `isa` allows. Highway's own switch is one
/// for the whole process; backends of different instruction sets may live side by side in ours.
inline std::size_t target_index([[maybe_unused]] Isa isa) {
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
    return 0;
#else
    auto targets = hwy::SupportedTargets();
    if (isa < Isa::avx512) targets &= ~HWY_AVX3;
    if (isa < Isa::avx2) targets &= ~HWY_AVX2;
    hwy::ChosenTarget chosen;
    chosen.Update(targets);
    return chosen.GetIndex();
#endif
}

}  // namespace llmgen::cpu
