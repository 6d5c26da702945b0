// Decode steps that were recorded once and replayed since, with rows of padding: the ids of a crowd are those
// that each prompt gets alone on the CPU, whatever numbers of rows and bounds of the context came before.
#include <gtest/gtest.h>

#include <cstdlib>

#include "simt/fake/fake_cuda.h"
#include "tests/models/harness.h"

namespace llmgen::test {
namespace {

using simt::FakeCuda;

std::vector<int> some_ids(const nlohmann::json& golden, std::size_t n, std::size_t shift) {
    std::vector<int> all;
    for (const auto& prompt : golden["prompts"])
        for (const int id : prompt["ids"]) all.push_back(id);
    std::vector<int> ids;
    for (std::size_t i = 0; i < n; ++i) ids.push_back(all[(i * 7 + shift * 13) % all.size()]);
    return ids;
}

TEST(RecordedSteps, ACrowdThatShrinksGetsTheIdsOfTheCpu) {
    const auto directory = data("models") / "llama";
    const auto golden = read_json(directory / "golden.json");
    std::vector<std::vector<int>> prompts;
    std::vector<int> lengths;
    for (std::size_t i = 0; i < 19; ++i) {  // 19 rows run as 24, then 16, 9 as 16, then exact ones
        prompts.push_back(some_ids(golden, 3 + i % 5, i));
        lengths.push_back(i < 3 ? 12 : 4 + int(i % 4));
    }
    Harness cpu(directory, "f32", 128, open_backend({"cpu", "f32", 1}).ops);
    std::vector<std::vector<int>> want;
    for (std::size_t i = 0; i < prompts.size(); ++i) want.push_back(cpu.greedy(prompts[i], lengths[i]));

    Harness device(directory, "f32", 128);
    const auto count = [](const char* call) { return FakeCuda::get().n_calls(call); };
    const std::size_t launched = count("cudaGraphLaunch"), made = count("cudaGraphInstantiate");
    EXPECT_EQ(device.greedy(prompts, lengths), want);
    EXPECT_GE(count("cudaGraphInstantiate"), made + 3) << "24, 16 and 3 rows come more than once";
    EXPECT_GE(count("cudaGraphLaunch"), launched + 5);
    const std::size_t plain = count("launch");
    EXPECT_EQ(device.greedy(prompts, lengths), want) << "with what was recorded before";
    EXPECT_LT(count("launch") - plain, plain) << "the second time little is enqueued kernel by kernel";
}

TEST(RecordedSteps, AContextThatPassesABoundIsRecordedAnew) {
    const auto directory = data("models") / "llama";
    const auto prompt = some_ids(read_json(directory / "golden.json"), 250, 1);
    setenv("LLMGEN_SYNC", "1", 1);  // nothing is recorded
    Harness plain(directory, "bf16", 300);
    unsetenv("LLMGEN_SYNC");
    Harness device(directory, "bf16", 300);
    const std::size_t made = FakeCuda::get().n_calls("cudaGraphInstantiate");
    const auto got = device.greedy(prompt, 12);
    EXPECT_EQ(FakeCuda::get().n_calls("cudaGraphInstantiate"), made + 2);
    EXPECT_EQ(got, plain.greedy(prompt, 12));
    EXPECT_EQ(FakeCuda::get().n_calls("cudaGraphInstantiate"), made + 2);
}

}  // namespace
}  // namespace llmgen::test
