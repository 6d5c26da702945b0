// Frequencies of the rotary position embedding: pair d of a head turns by position × inverse[d], the pair
// being channels (d, d + n_rotary / 2).
//
//   default    theta^(−2d / n_rotary)
//   linear     the same / factor
//   dynamic    theta grows with the length past max_position_embeddings ("NTK-aware")
//   llama3     long wavelengths / factor, short ones kept, a ramp between; by wavelength, not by index
//   yarn       a ramp by index between kept and / factor, and a factor on cos and sin
//   longrope   each channel / its own factor, from one of two lists by length, and a factor on cos and sin
//
// In f32 with transformers' order of operations, so that angles at large positions agree with it. Source:
// its modeling_rope_utils.py; tests compare with its numbers.
#pragma once

#include <vector>

#include "weights/config.h"

namespace llmgen {

struct RopeFrequencies {
    std::vector<float> inverse;  // [n_rotary / 2]
    float attention_factor = 1;  // multiplies cos and sin
};

/// `n_positions`: the length that is being computed for. It matters to dynamic (past
/// max_position_embeddings) and longrope (past original_max_position) only; 0 = short.
RopeFrequencies rope_frequencies(const ModelConfig& config, int n_positions = 0);

}  // namespace llmgen
