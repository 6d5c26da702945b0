// The rope part of config.json. For this room only.
#pragma once

#include "weights/config.h"
#include "weights/json_file.h"

namespace llmgen::weights {

/// Fills config.rope from rope_parameters (transformers 5), rope_scaling and rope_theta (4); needs head_dim
/// and max_position_embeddings.
void read_rope(ModelConfig& config, const JsonObject& json);

}  // namespace llmgen::weights
