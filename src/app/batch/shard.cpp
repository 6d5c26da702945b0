#include "app/batch/shard.h"

#include "app/cli/io.h"
#include "app/cli/numbers.h"
#include "base/error.h"

namespace llmgen::app {
namespace {

struct Source {
    const char* rank;
    const char* size;
    const char* first;  // the variable of the first rank; nullptr = ranks begin at 0
};

// The most specific first: inside a Slurm array, SLURM_PROCID and SLURM_NTASKS are set too (0 and 1).
constexpr Source kSources[] = {{"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN"},
                               {"SLURM_PROCID", "SLURM_NTASKS", nullptr},
                               {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr},
                               {"PMI_RANK", "PMI_SIZE", nullptr}};

constexpr std::int64_t kMost = 1'000'000;

}  // namespace

Shard parse_shard(const std::string& text, const Environment& environment) {
    if (text == "auto") {
        for (const Source& source : kSources) {
            const auto rank = environment(source.rank), size = environment(source.size);
            if (!rank || !size) continue;
            const std::int64_t first =
                source.first
                    ? parse_integer(source.first, environment(source.first).value_or("0"), 0, kMost * 100)
                    : 0;
            const std::int64_t n = parse_integer(source.size, *size, 1, kMost);
            const std::int64_t i = parse_integer(source.rank, *rank, 0, kMost * 100) - first;
            if (i < 0 || i >= n)
                fail_usage(
                    "--shard auto: {} is {} of {} tasks; an array with gaps or steps can't be divided, use "
                    "--array=0-{}",
                    source.rank, printable(*rank), n, n - 1);
            return {std::size_t(i), std::size_t(n)};
        }
        fail_usage(
            "--shard auto: none of SLURM_ARRAY_TASK_ID, SLURM_PROCID, OMPI_COMM_WORLD_RANK, PMI_RANK is set; "
            "write i/n");
    }
    const std::size_t slash = text.find('/');
    if (slash == std::string::npos)
        fail_usage("--shard: \"{}\" is not i/n, for example 0/4", printable(text));
    const std::int64_t n = parse_integer("--shard", text.substr(slash + 1), 1, kMost);
    const std::int64_t i = parse_integer("--shard", text.substr(0, slash), 0, kMost);
    if (i >= n)
        fail_usage("--shard: {} has no part {}; parts are counted from 0 to {}", printable(text), i, n - 1);
    return {std::size_t(i), std::size_t(n)};
}

std::string shard_path(const std::string& path, const Shard& shard) {
    const std::string mark = "{shard}";
    const std::size_t at = path.find(mark);
    if (at != std::string::npos)
        return path.substr(0, at) + fmt::format("{}-of-{}", shard.i, shard.n) + path.substr(at + mark.size());
    if (shard.n > 1 && path != "-")
        fail_usage(
            "-o {}: with --shard write {{shard}} into the name, for example out-{{shard}}.jsonl, so that no "
            "part writes over another",
            printable(path));
    return path;
}

}  // namespace llmgen::app
