// Whole models that no CPU could compute, on cards that no host could hold: the memory plan, and every
// launch, copy and GEMM of the engine's own loop held against the limits of all cards since sm_80 and against
// what is allocated. Nothing is computed: every token is 0.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/memory_plan.h"
#include "ops/cuda/cuda_ops.h"
#include "simt/fake/fake_cuda.h"
#include "tests/engine/requests.h"
#include "tests/models/harness.h"

namespace llmgen::test {
namespace {

namespace fs = std::filesystem;
using simt::FakeCard;
using simt::FakeCuda;

constexpr std::size_t kMiB = 1 << 20;

/// As nvidia-smi names them.
constexpr std::size_t kH100 = 81559 * kMiB, kH200 = 143771 * kMiB;

class Dry : public testing::Test {
protected:
    void SetUp() override {
        if (FakeCuda::get().n_streams() > 0) GTEST_SKIP() << "another engine is open";
        fs::create_directories(folder_);
    }
    void TearDown() override {
        fs::remove_all(folder_);
        EXPECT_EQ(FakeCuda::get().n_device_allocations(), 0u);
        FakeCuda::get().reset();
    }
    void use_card(std::size_t memory) {
        FakeCard card;
        card.memory = memory;
        card.n_sms = 132;
        card.dry = true;
        FakeCuda::get().reset(card);
        FakeCuda::get().on_launch = [this](const simt::Launch& launch) {
            ++launches_[launch.name];
            if (launch.name == "swiglu") parts_.insert(launch.grid.y);
        };
    }
    Engine open(const fs::path& model, const std::function<void(EngineOptions&)>& change = {}) {
        return open_engine(model, [&](EngineOptions& o) {
            o.device = "cuda";
            o.compute = "bf16";
            o.dummy_weights = true;
            if (change) change(o);
        });
    }
    fs::path write(const nlohmann::json& config) {
        std::ofstream(folder_ / "config.json") << config;
        return folder_;
    }
    static TokenIds prompt(int n) { return TokenIds(std::size_t(n), 7); }
    /// Prompts of each length alone, then batches of each size.
    static void run(Engine& engine, std::initializer_list<int> lengths, std::initializer_list<int> batches) {
        for (const int n : lengths) expect_tokens(engine.generate(greedy(prompt(n), 4)), 4);
        for (const int rows : batches) {
            std::vector<Request> requests;
            for (int i = 0; i < rows; ++i) requests.push_back(greedy(prompt(3 + i % 5), 6 + i % 2));
            for (const Result& result : together(engine, requests)) expect_tokens(result, 6);
        }
    }
    static void expect_tokens(const Result& result, std::size_t at_least) {
        EXPECT_EQ(result.error, "");
        EXPECT_GE(result.token_ids.size(), at_least);
    }

    fs::path folder_ = fs::temp_directory_path() / ("llmgen_dry_" + std::to_string(getpid()));
    std::map<std::string, int> launches_;
    std::set<unsigned> parts_;  // rows of the products of gate and up
};

TEST_F(Dry, Llama8BOnTheCardsItIsFor) {
    const fs::path model = shared("data/configs/llama-3.1-8b-instruct");
    SKIP_WITHOUT(model / "config.json");
    const ModelConfig config = ModelConfig::load(model, known_architectures());
    for (const std::size_t memory : {kH100, kH200}) {
        SCOPED_TRACE(testing::Message() << memory / kMiB << " MiB");
        use_card(memory);
        launches_.clear();
        const auto change = [](EngineOptions& o) {
            o.prefill_chunk = 8192;
            o.max_sequences = 256;
        };
        EngineOptions options;
        change(options);
        const std::size_t step = expected_step_bytes(config, *make_cuda_ops(0, Compute::bf16), options,
                                                     config.max_position_embeddings);
        Engine engine = open(model, change);
        const std::size_t after_open = FakeCuda::get().device_bytes();
        const EngineInfo& info = engine.info();
        EXPECT_EQ(info.max_context, 131072);
        EXPECT_EQ(info.kv_bytes_per_token, 131072u);
        // What is left for keys and values, to a page; what isn't theirs is for the library and for graphs.
        const std::size_t weights = expected_weight_bytes(config, Compute::bf16);
        const std::size_t free = memory - 32 * kMiB, left = free - weights - step - 256 * kMiB;
        EXPECT_NEAR(double(info.kv_tokens), double(left) * 0.9 / 131072, 16);
        run(engine, {1, 17, 512, 8192}, {1, 2, 8, 32, 256});
        const std::size_t after_run = FakeCuda::get().device_bytes();
        EXPECT_LE(after_run - after_open, 65 * kMiB) << "what steps take later";
        EXPECT_GT(memory - after_run, 2048 * kMiB);
        // The plan's sum is what was taken, but for the norms and what an allocation rounds up.
        const std::size_t pool = (info.kv_tokens + 16) * info.kv_bytes_per_token;
        const double taken = double(after_run - weights - pool - 32 * kMiB);
        EXPECT_LE(taken, double(step) + 2 * kMiB);
        EXPECT_GT(taken, 0.98 * double(step));
        for (const char* kernel :
             {"embed", "rope_angles", "gemv_qkv", "attn_decode", "gemv_add", "gemv_swiglu", "gemv_argmax",
              "take_best", "rmsnorm", "qk_norm_rope_store_kv", "attn_prefill", "swiglu", "gather_rows",
              "argmax"})
            EXPECT_GT(launches_[kernel], 0) << kernel;
        EXPECT_GE(FakeCuda::get().n_calls("cudaGraphInstantiate"), 5u);
        EXPECT_EQ(*parts_.rbegin(), 512u) << "whole tiles";
    }
}

/// The odd shapes of real models: groups of 7 and 3 heads, vocabularies that no vector divides, biases, norms
/// of heads, fused slices, every head_dim. Two layers: the others are launched alike.
TEST_F(Dry, OtherModels) {
    nlohmann::json phi3 = {{"architectures", {"Phi3ForCausalLM"}},
                           {"model_type", "phi3"},
                           {"hidden_size", 3072},
                           {"intermediate_size", 8192},
                           {"num_attention_heads", 32},
                           {"num_key_value_heads", 32},
                           {"vocab_size", 32064},
                           {"max_position_embeddings", 4096},
                           {"sliding_window", 2047},
                           {"rms_norm_eps", 1e-5}};
    nlohmann::json odd = {{"architectures", {"LlamaForCausalLM"}},
                          {"model_type", "llama"},
                          {"hidden_size", 1000},
                          {"intermediate_size", 1336},
                          {"num_attention_heads", 6},
                          {"num_key_value_heads", 2},
                          {"vocab_size", 50257},
                          {"max_position_embeddings", 2048},
                          {"attention_bias", true},
                          {"mlp_bias", true},
                          {"rms_norm_eps", 1e-5}};
    std::vector<std::pair<std::string, nlohmann::json>> models = {{"phi3", phi3}};
    for (const int head_dim : {80, 96, 256, 72}) {  // 72: attention for what the tiles don't know
        odd["head_dim"] = head_dim;
        models.emplace_back("head_dim " + std::to_string(head_dim), odd);
    }
    for (const char* name : {"llama-3.2-1b-instruct", "qwen2.5-0.5b-instruct", "qwen2.5-7b-instruct",
                             "qwen3-8b", "smollm2-135m"})
        if (const fs::path file = shared("data/configs") / name / "config.json"; fs::exists(file))
            models.emplace_back(name, read_json(file));
    for (auto& [name, config] : models) {
        config["num_hidden_layers"] = 2;
        config.erase("layer_types");
        for (const char* compute : {"bf16", "f32"}) {
            if (compute == std::string("f32") && config["vocab_size"].get<int>() > 60000)
                continue;  // takes long
            SCOPED_TRACE(name + " " + compute);
            use_card(kH100);
            Engine engine = open(write(config), [&](EngineOptions& o) {
                o.compute = compute;
                o.max_context = 2000;
                o.max_sequences = 32;
            });
            run(engine, {1, 9, 1500}, {3, 8, 19});
        }
    }
}

/// So many sequences that their scratch alone is gigabytes: planned for, and refused in one line where it
/// can't be.
TEST_F(Dry, ThousandsOfSequences) {
    const fs::path file = shared("data/configs/llama-3.1-8b-instruct") / "config.json";
    SKIP_WITHOUT(file);
    nlohmann::json config = read_json(file);
    config["num_hidden_layers"] = 1;
    const auto many = [](EngineOptions& o) { o.max_sequences = 4096; };
    use_card(24564 * kMiB);
    {
        Engine engine = open(write(config), many);
        run(engine, {}, {1100});
        EXPECT_LT(FakeCuda::get().device_bytes(), 24564 * kMiB - 256 * kMiB);
    }
    use_card(12288 * kMiB);
    try {
        open(folder_, many);
        FAIL() << "12 GB are enough for scratch of 4,096 sequences";
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("for steps of 4096 sequences and 512 tokens"));
    }
    Engine engine = open(folder_);
    run(engine, {5}, {});
}

}  // namespace
}  // namespace llmgen::test
