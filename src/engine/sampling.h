// What a request and a checkpoint say about sampling, made into one decision; and the check of each number.
#pragma once

#include "engine/sampler.h"
#include "weights/config.h"

namespace llmgen {

/// The checkpoint's own settings, in the request's form.
Sampling defaults_of(const GenerationDefaults& file);

/// request > defaults > neutral. The checkpoint decides, as in transformers, whether to sample at all:
/// without "do_sample": true its temperature, top_k, top_p and min_p don't count, and a request that sets
/// none of them is greedy. Throws UsageError naming the parameter that can't be.
SamplingParams resolve(const Sampling& request, const Sampling& defaults, int vocab_size);

/// Every field set.
Sampling as_used(const SamplingParams& params);

}  // namespace llmgen
