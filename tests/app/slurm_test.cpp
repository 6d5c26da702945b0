// The recipe of src/app/batch/README.md on a real Slurm: the distribution's, as a cluster of this one node.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/app/checkpoint.h"
#include "tests/app/process.h"
#include "tests/support.h"

namespace llmgen::test {
namespace {

using nlohmann::json;

std::vector<json> sorted_lines(const TempDir& dir, int n) {
    std::vector<json> all;
    for (int i = 0; i < n; ++i) {
        std::ifstream file(dir.at("answers-" + std::to_string(i) + "-of-" + std::to_string(n) + ".jsonl"));
        for (std::string line; std::getline(file, line);) all.push_back(json::parse(line));
    }
    std::ranges::sort(all, {}, [](const json& line) { return line["line"].get<int>(); });
    return all;
}

TEST(Slurm, AJobArrayThatIsKilledAndSubmittedAgainAnswersEveryLineOnce) {
    TempDir dir;
    constexpr int kLines = 600;
    std::string text;
    for (int i = 0; i < kLines; ++i)
        text += json{{"id", i}, {"token_ids", {40 + i % 50, 60}}, {"max_new_tokens", 4}}.dump() + "\n";
    dir.file("prompts.jsonl", text);
    const std::string command =
        std::string("exec " LLMGEN_BINARY " batch prompts.jsonl -o 'answers-{shard}.jsonl' --shard auto ") +
        "--resume --device cpu --threads 1 --greedy --ignore-eos --model " + tiny_checkpoint();
    dir.file("array.sh", "#!/bin/sh\n#SBATCH --array=0-2\n" + command + "\n");
    dir.file("tasks.sh", "#!/bin/sh\n" + command + "\n");
    // Killed at some moment, submitted again; then as tasks of one job into other files, for the other
    // variables.
    const std::string script = dir.file("script.sh",
                                        "set -e\n"
                                        "id=$(sbatch --parsable array.sh)\n"
                                        "sleep 1\n"
                                        "scancel -s KILL $id || true\n"
                                        "sbatch --wait array.sh\n"
                                        "srun -n 2 sh tasks.sh\n");
    mkdir(dir.at("cluster").c_str(), 0755);
    const std::string run = "cd " + dir.path().string() + " && timeout 240 bash " +
                            (data("").parent_path().parent_path() / "app/slurm/one_node.sh").string() + " " +
                            dir.at("cluster") + " bash " + script + " > " + dir.at("log") + " 2>&1";
    const int status = std::system(run.c_str());
    if (WEXITSTATUS(status) == 77) GTEST_SKIP() << slurp(dir.at("log"));
    ASSERT_EQ(WEXITSTATUS(status), 0) << slurp(dir.at("log"));
    for (const int n : {3, 2}) {
        const std::vector<json> lines = sorted_lines(dir, n);
        ASSERT_EQ(lines.size(), std::size_t(kLines)) << n;
        for (int i = 0; i < kLines; ++i) {
            EXPECT_EQ(lines[std::size_t(i)]["id"], i);
            EXPECT_EQ(lines[std::size_t(i)]["output"]["token_ids"].size(), 4u);
        }
    }
}

}  // namespace
}  // namespace llmgen::test
