// Joules that the machine says it has used: RAPL of the CPU packages, NVML of a GPU.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace llmgen::bench {

/// A counter for `device` ("cpu", "cuda:0"); an empty function where the machine doesn't tell (most virtual
/// machines, and RAPL without root).
std::function<std::optional<double>()> energy_counter(const std::string& device);

/// The same for RAPL files under another root, for tests.
std::function<std::optional<double>()> rapl_counter(const std::string& root);

}  // namespace llmgen::bench
