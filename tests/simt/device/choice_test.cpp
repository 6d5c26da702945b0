// Tokens chosen on the device are the ones that the engine chooses from the same logits: each request twice,
// once asking for log-probabilities, so that its logits come to the host, once not.
#include <gtest/gtest.h>

#include "llmgen/llmgen.h"
#include "tests/support.h"

namespace llmgen::test {
namespace {

std::vector<Sampling> settings() {
    std::vector<Sampling> all(7);
    all[0].temperature = 0;
    all[1].temperature = 0;
    all[1].repetition_penalty = 1.3;
    all[1].presence_penalty = 0.5;
    all[2].temperature = 1.5;
    all[3].temperature = 0.8;
    all[3].top_p = 0.9;
    all[3].frequency_penalty = 0.4;
    all[4].temperature = 1.2;
    all[4].top_k = 20;
    all[4].logit_bias = {{5, 3.0}, {9, -2.0}};
    all[5].temperature = 2;
    all[5].min_p = 0.1;
    all[5].top_k = 40;
    all[5].top_p = 0.95;
    all[6].temperature = 1;
    all[6].logit_bias = {{5, 3.0}, {5, -1.0}};  // given twice: only the host adds them in order
    for (std::size_t i = 0; i < all.size(); ++i) all[i].seed = 100 + i;
    return all;
}

TEST(Choice, OnTheDeviceIsTheHosts) {
    EngineOptions options;
    options.model = data("models/llama").string();
    options.device = "cuda";
    options.compute = "f32";
    options.max_context = 256;
    Engine engine = Engine::open(options);
    const auto request = [](const Sampling& sampling, bool on_host) {
        Request request;
        request.prompt = TokenIds{1, 17, 42, 5};
        request.max_new_tokens = 8;
        request.ignore_eos = true;
        request.sampling = sampling;
        if (on_host) request.logprobs = 0;
        return request;
    };
    std::vector<Stream> together;  // some on the host, most on the device, in the same steps
    for (const Sampling& sampling : settings()) together.push_back(engine.submit(request(sampling, false)));
    together.push_back(engine.submit(request(settings()[2], true)));
    std::vector<TokenIds> want;
    for (const Sampling& sampling : settings()) {
        want.push_back(engine.generate(request(sampling, true)).token_ids);
        EXPECT_EQ(want.back().size(), 8u);
    }
    want.push_back(want[2]);
    for (std::size_t i = 0; i < together.size(); ++i) {
        EXPECT_EQ(together[i].result().error, "");
        EXPECT_EQ(together[i].result().token_ids, want[i]) << "setting " << i;
    }
}

}  // namespace
}  // namespace llmgen::test
