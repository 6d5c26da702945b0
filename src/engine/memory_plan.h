// How much context fits: decided from numbers, before anything is loaded.
//
//   bytes per token = 2 (k, v) × layers × kv heads × head_dim × size of the activation type
//   free - weights - a step's activations and scratch - what a device wants beside = what keys and values
//   can have
#pragma once

#include <cstddef>
#include <string>

#include "llmgen/llmgen.h"
#include "models/model.h"

namespace llmgen {

struct MemoryNeeds {
    std::size_t free_bytes = 0;       // of the device, before the weights are loaded
    const char* free_by = "";         // what bounds it, where that isn't the memory there is: " by ulimit -v"
    std::size_t weight_bytes = 0;     // as they will lie in memory
    std::size_t step_bytes = 0;       // of a device: the buffers of the largest step
    std::size_t bytes_per_token = 0;  // of keys and values, all layers
    int model_context = 0;            // positions that the model can compute
    bool host = true;                 // the device's memory is the machine's own, which others use too
};

struct MemoryPlan {
    int max_context = 0;  // tokens of prompt and answer of one request
    int n_pages = 0;
    std::string note;  // where less context than the model's own fits; else empty
};

/// Throws Error with the numbers and the flags that would help, where what was asked for doesn't fit.
MemoryPlan plan_memory(const MemoryNeeds& needs, const EngineOptions& options);

/// Of a host: no more than this process may still map (`ulimit -v`).
void bound_by_address_space(MemoryNeeds& needs);

std::size_t kv_bytes_per_token(const ModelConfig& config, Compute compute);
/// Bytes of the config's matrices in the activation type: what the weights will take.
std::size_t expected_weight_bytes(const ModelConfig& config, Compute compute);

/// What the model, the runner and the backend allocate for the largest step that the options allow.
std::size_t expected_step_bytes(const ModelConfig& config,
                                const Ops& ops,
                                const EngineOptions& options,
                                int max_context);

/// "1.5 GiB", "640 MiB": for messages.
std::string in_units(std::size_t bytes);

}  // namespace llmgen
