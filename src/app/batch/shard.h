// Which part of a batch this process does: lines whose index leaves remainder i when divided by n.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace llmgen::app {

struct Shard {
    std::size_t i = 0;  // from 0
    std::size_t n = 1;
    bool has(std::size_t index) const { return index % n == i; }
};

using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// "i/n" with i from 0, or "auto": a Slurm array (SLURM_ARRAY_TASK_ID, _MIN, _COUNT; step 1), Slurm tasks
/// (SLURM_PROCID, SLURM_NTASKS), Open MPI, PMI (MPICH, Intel). Throws UsageError.
Shard parse_shard(const std::string& text, const Environment& environment);

/// `{shard}` in an output path becomes "i-of-n". With n > 1 a path without it is refused: the parts would
/// write over each other.
std::string shard_path(const std::string& path, const Shard& shard);

}  // namespace llmgen::app
