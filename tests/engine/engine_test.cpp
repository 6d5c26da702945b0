// The public API over real checkpoints: chats, raw text and ids in; text, ids and the record out.
#include <atomic>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "llmgen/llmgen.h"
#include "tests/models/harness.h"

namespace llmgen::test {
namespace {

using Json = nlohmann::json;

std::filesystem::path tiny() {
    const auto found = checkpoints_under(data("models"));
    return found.empty() ? shared("data/tiny/llama-gqa-llama3") : found.front();
}

Engine open(const std::filesystem::path& path, const std::function<void(EngineOptions&)>& change = {}) {
    EngineOptions options;
    options.model = path.string();
    options.device = "cpu";
    options.compute = "f32";
    options.threads = 2;
    if (change) change(options);
    return Engine::open(options);
}

Request ids_request(std::vector<int> ids, int n) {
    Request request;
    request.prompt = TokenIds(std::move(ids));
    request.max_new_tokens = n;
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    return request;
}

TEST(Engine, AnswersAChatWithTheRealModel) {
    SKIP_WITHOUT(smollm2() / "model.safetensors");
    Engine engine = open(smollm2(), [](EngineOptions& o) { o.compute = "bf16"; });
    Request request;
    request.prompt = Chat::user("What is the capital of France?");
    std::string streamed;
    const Result result = engine.generate(request, [&](const Chunk& chunk) {
        streamed += chunk.text;
        return true;
    });
    EXPECT_EQ(result.text, "The capital of France is Paris.");
    EXPECT_EQ(streamed, result.text);
    EXPECT_EQ(result.finish_reason, FinishReason::eos);
    EXPECT_EQ(result.stop_token_id, 2);
    EXPECT_TRUE(result.complete);
    EXPECT_GT(result.timing.ttft_s, 0);
}

}  // namespace
}  // namespace llmgen::test
