// Picks and opens a backend by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace llmgen {

struct BackendOptions {
    std::string device = "auto";   // auto | cpu | cuda | cuda:N
    std::string compute = "auto";  // auto | f32 | bf16
    int threads = 0;               // CPU threads; 0 = one per core that this process may use
};

struct Backend {
    std::unique_ptr<Ops> ops;
    std::string note;  // one line when auto fell back to the CPU, with the reason; else empty
};

/// `cuda` never falls back: an Error says what is missing. `auto` takes the GPU where one works, else the CPU
/// with a note.
Backend open_backend(const BackendOptions& options);

/// What this machine offers, one entry a device; entries that can't be used say why in `problem`.
struct DeviceReport {
    DeviceInfo info;
    std::string problem;  // empty = usable
};
std::vector<DeviceReport> list_devices();

/// What the CPU reaches on `threads` threads (at least 1), measured in about half a second: the
/// floor and the peak that reports put beside their pace.
struct MachineLimits {
    double read_bytes_per_s = 0;
    double bf16_flop_per_s = 0;
    double f32_flop_per_s = 0;
    std::size_t cache_bytes = 0;  // of the last cache
};
MachineLimits measure_cpu(int threads);
/// The same of a device by its name, "cpu" or "cuda:N"; zeros where it can't be measured.
MachineLimits measure_device(const std::string& name, int threads);

}  // namespace llmgen
