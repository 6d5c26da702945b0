// What the waist asks for as the sampling kernel takes it.
#pragma once

#include "kernels.h"
#include "ops/ops.h"

namespace llmgen::cuda {

/// All of `choice` but its two lists, which must first stand in the device's memory.
inline kernels::SampleRow sample_row(const TokenChoice& choice) {
    kernels::SampleRow row{};
    row.row = choice.row;
    row.inverse_temperature = choice.inverse_temperature;
    row.top_k = choice.top_k;
    row.top_p = choice.top_p;
    row.min_p = choice.min_p;
    row.seed = choice.seed;
    row.step = choice.step;
    row.repetition = choice.repetition;
    return row;
}

}  // namespace llmgen::cuda
