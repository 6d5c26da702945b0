// A checkpoint as models read it: shards and index, the tied-embedding rule, what is left over, what is
// missing.
#include "weights/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../support.h"
#include "base/sha256.h"
#include "files.h"
#include "weights/locate.h"

namespace llmgen {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Item {
    std::string name, type;
    std::vector<int> shape;
    std::string data;
};

std::string f32(const std::vector<float>& values) {
    std::string bytes(values.size() * sizeof(float), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

Item floats(const std::string& name, const std::vector<float>& values) {
    return {name, "F32", {int(values.size())}, f32(values)};
}

/// The embedding and head of config(): [3, 2].
Item table(const std::string& name, float first) {
    return {name, "F32", {3, 2}, f32({first, 1, 2, 3, 4, 5})};
}

std::string file_of(const std::vector<Item>& items, std::size_t extra_padding = 0) {
    json header = json::object();
    std::string data;
    for (const Item& item : items) {
        header[item.name] = {{"dtype", item.type},
                             {"shape", item.shape},
                             {"data_offsets", {data.size(), data.size() + item.data.size()}}};
        data += item.data;
    }
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8 + extra_padding, ' ');
    return test::safetensors(text, data);
}

std::string config(const json& more = json::object()) {
    json config = {{"architectures", {"LlamaForCausalLM"}},
                   {"model_type", "llama"},
                   {"hidden_size", 2},
                   {"intermediate_size", 4},
                   {"num_hidden_layers", 1},
                   {"num_attention_heads", 1},
                   {"vocab_size", 3},
                   {"max_position_embeddings", 8}};
    config.update(more);
    return config.dump();
}

class CheckpointTest : public testing::Test {
protected:
    void write(const std::vector<Item>& items, const json& more = json::object()) {
        folder.write("config.json", config(more));
        folder.write("model.safetensors", file_of(items));
    }
    Checkpoint open() { return Checkpoint::open(folder.path()); }
    std::string message() {
        return test::message_of([&] { open(); });
    }
    static float first(const Tensor& tensor) { return tensor.as<float>()[0]; }

    test::Folder folder;
};

TEST_F(CheckpointTest, ViewsOfEveryType) {
    write({floats("a", {1, 2}),
           {"b", "BF16", {2}, std::string("\x80\x3f\x00\x40", 4)},
           {"h", "F16", {1}, std::string("\x00\x3c", 2)},
           {"s", "F32", {}, f32({7})},
           {"z", "F32", {0, 5}, ""}});
    Checkpoint checkpoint = open();
    EXPECT_THAT(checkpoint.names(), ElementsAre("a", "b", "h", "s", "z"));
    EXPECT_EQ(checkpoint.tensor("a", {2}).as<float>()[1], 2);
    const Tensor b = checkpoint.tensor("b", {2});
    EXPECT_EQ(b.dtype, DType::bf16);
    EXPECT_EQ(to_f32(b.as<bf16>()[1]), 2);
    EXPECT_EQ(to_f32(checkpoint.tensor("h").as<f16>()[0]), 1);
    EXPECT_EQ(first(checkpoint.tensor("s", {})), 7);
    EXPECT_EQ(checkpoint.tensor("z", {0, 5}).size(), 0);
    checkpoint.check_all_consumed();
    EXPECT_EQ(checkpoint.total_bytes(), 18u);
    EXPECT_EQ(checkpoint.n_parameters(), 6);
    checkpoint.drop("a");
    EXPECT_EQ(first(checkpoint.tensor("a")), 1);
}

TEST_F(CheckpointTest, DataAtOddAddressesIsCopied) {
    folder.write("config.json", config());
    for (std::size_t padding = 0; padding < 8; ++padding) {
        folder.write("model.safetensors",
                     file_of({floats("a", {1, 2}), {"u", "U8", {1}, "x"}, floats("b", {3, 4})}, padding));
        Checkpoint checkpoint = open();
        const Tensor b = checkpoint.tensor("b", {2});
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data) % alignof(float), 0u);
        EXPECT_EQ(b.as<float>()[0] + b.as<float>()[1], 7);
        EXPECT_EQ(first(checkpoint.tensor("a")), 1);
        const Checkpoint moved = std::move(checkpoint);
        EXPECT_EQ(b.as<float>()[1], 4) << "views stay valid when the checkpoint moves";
    }
}

TEST_F(CheckpointTest, AMissingTensorOrAnotherShapeIsNamed) {
    write({floats("a", {1, 2}), {"q", "F8_E4M3", {2}, "xy"}, {"r", "F32", {1, 1, 1, 1, 1}, f32({1})}});
    Checkpoint checkpoint = open();
    const std::string file = (folder.path() / "model.safetensors").string();
    EXPECT_EQ(test::message_of([&] { checkpoint.tensor("a", {3}); }),
              file + ": tensor a is [2] F32, config.json says [3]");
    EXPECT_THAT(test::message_of([&] {
                    checkpoint.tensor("a", {2, 1});
                }),
                HasSubstr("config.json says [2, 1]"));
    EXPECT_EQ(test::message_of([&] { checkpoint.tensor("b"); }),
              folder.path().string() + ": the checkpoint has no tensor b, which LlamaForCausalLM needs");
    EXPECT_EQ(test::message_of([&] { checkpoint.tensor("q", {2}); }),
              file + ": tensor q is [2] F8_E4M3, a type that is not supported; F32, F16 and BF16 are");
    EXPECT_THAT(test::message_of([&] { checkpoint.tensor("r"); }), HasSubstr("of more than 4 axes"));
    EXPECT_THAT(test::message_of([&] {
                    checkpoint.require(std::vector<std::string>{"a", "x", "y"});
                }),
                HasSubstr("2 tensors that LlamaForCausalLM needs are missing: x, y"));
}

TEST_F(CheckpointTest, WhatNobodyAskedForIsAnError) {
    write({floats("a", {1}), floats("b", {1}), floats("model.layers.0.self_attn.rotary_emb.inv_freq", {1}),
           floats("c", {1})});
    Checkpoint checkpoint = open();
    checkpoint.tensor("a");
    EXPECT_THAT(test::message_of([&] { checkpoint.check_all_consumed(); }),
                HasSubstr("2 tensors have no place in LlamaForCausalLM as config.json describes it: b, c"));
    checkpoint.skip("b");
    checkpoint.tensor("c");
    EXPECT_EQ(test::message_of([&] { checkpoint.check_all_consumed(); }), "");
}

TEST_F(CheckpointTest, TheTiedEmbeddingRule) {
    const std::string in = "model.embed_tokens.weight", out = "lm_head.weight";
    const auto names = [&] {
        Checkpoint checkpoint = open();
        const auto found = checkpoint.embeddings();
        checkpoint.tensor(found.input, {3, 2});
        checkpoint.tensor(found.output, {3, 2});
        checkpoint.check_all_consumed();
        return found.input + " " + found.output + " " + std::to_string(checkpoint.warnings().size());
    };
    write({table(in, 0)}, {{"tie_word_embeddings", true}});
    EXPECT_EQ(names(), in + " " + in + " 0");
    write({table(out, 0)}, {{"tie_word_embeddings", true}});
    EXPECT_EQ(names(), out + " " + out + " 0");
    write({table(in, 0), table(out, 0)}, {{"tie_word_embeddings", true}});
    EXPECT_EQ(names(), in + " " + in + " 0");
    write({table(in, 0), table(out, 9)}, {{"tie_word_embeddings", true}});
    EXPECT_EQ(names(), in + " " + out + " 1");
    write({table(in, 0), table(out, 0)});
    EXPECT_EQ(names(), in + " " + out + " 0");
    write({table(in, 0)});  // the key is missing: false
    EXPECT_THAT(test::message_of(names), HasSubstr("the output projection is missing"));
    write({table(out, 0)});
    EXPECT_THAT(test::message_of(names), HasSubstr("missing: " + in));
    write({floats("x", {1})}, {{"tie_word_embeddings", true}});
    EXPECT_THAT(test::message_of(names), HasSubstr("missing: " + in));
}

TEST_F(CheckpointTest, TheIndexDecidesPerTensor) {
    folder.write("config.json", config());
    // Decoys: a single file and a stale shard with the same names, and in each shard the other's tensor.
    folder.write("model.safetensors", file_of({floats("a", {-1}), floats("b", {-1})}));
    folder.write("consolidated.safetensors", "not even a file of that kind");
    folder.write("one.safetensors", file_of({floats("a", {1}), floats("b", {-2})}));
    folder.write("two.safetensors", file_of({floats("a", {-2}), floats("b", {2}), floats("unlisted", {3})}));
    folder.write(
        "model.safetensors.index.json",
        R"({"metadata":{"total_size":8},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
    Checkpoint checkpoint = open();
    EXPECT_THAT(checkpoint.names(), ElementsAre("a", "b"));
    EXPECT_EQ(first(checkpoint.tensor("a")), 1);
    EXPECT_EQ(first(checkpoint.tensor("b")), 2);
    checkpoint.check_all_consumed();
    EXPECT_THAT(
        checkpoint.warnings(),
        ElementsAre(HasSubstr("doesn't list 1 tensors that its files hold, which are ignored: unlisted")));
}

TEST_F(CheckpointTest, FaultsOfAnIndex) {
    folder.write("config.json", config());
    folder.write("one.safetensors", file_of({floats("a", {1})}));
    const auto with_map = [&](const std::string& map) {
        folder.write("model.safetensors.index.json", R"({"weight_map":)" + map + "}");
        return message();
    };
    EXPECT_EQ(with_map(R"({"a":"one.safetensors"})"), "");
    EXPECT_THAT(with_map(R"({"a":"one.safetensors","b":"two.safetensors","c":"three.safetensors"})"),
                HasSubstr("2 of 3 shards missing: three.safetensors, two.safetensors"));
    EXPECT_THAT(with_map(R"({"a":"one.safetensors","b":"one.safetensors"})"),
                HasSubstr("1 tensors are not in the file that it names: b in one.safetensors"));
    for (const char* name :
         {"../one.safetensors", "sub/one.safetensors", "/etc/passwd", "..", "", ".", "a\\\\b", "a\\u0000b"})
        EXPECT_THAT(with_map(R"({"a":")" + std::string(name) + "\"}"),
                    HasSubstr("which is no plain file name"))
            << name;
    EXPECT_THAT(with_map("{}"), HasSubstr("no weight_map"));
    EXPECT_THAT(with_map("[]"), HasSubstr("no weight_map"));
    EXPECT_THAT(with_map(R"({"a":1})"), HasSubstr("weight_map of a is no file name"));
    folder.write("model.safetensors.index.json", "{}");
    EXPECT_THAT(message(), HasSubstr("no weight_map"));
    folder.write("model.safetensors.index.json", "version https://git-lfs.github.com/spec/v1\n");
    EXPECT_THAT(message(), HasSubstr("Git LFS pointer"));
    folder.write("one.safetensors", "version https://git-lfs.github.com/spec/v1\n");
    EXPECT_THAT(with_map(R"({"a":"one.safetensors"})"), HasSubstr("one.safetensors: is a Git LFS pointer"));
}

TEST_F(CheckpointTest, AFolderWithoutWeightsSaysWhatItHolds) {
    EXPECT_THAT(message(), HasSubstr("no config.json"));
    EXPECT_THAT(test::message_of([&] { Checkpoint::open(folder.path() / "none"); }),
                HasSubstr("no such directory"));
    folder.write("config.json", config());
    EXPECT_THAT(message(), HasSubstr("no model.safetensors and no model.safetensors.index.json"));
    folder.write("consolidated.safetensors", "");
    EXPECT_THAT(message(), HasSubstr("holds consolidated.safetensors only"));
    folder.write("adapter_model.safetensors", "");
    EXPECT_THAT(message(), HasSubstr("LoRA adapter"));
    folder.write("pytorch_model.bin", "");
    EXPECT_THAT(message(), HasSubstr("PyTorch weights only"));
}

TEST_F(CheckpointTest, AQuantizedCheckpointIsRefusedByMethodAndType) {
    write({floats("a", {1}), {"b", "F8_E4M3", {2}, "xy"}, {"c", "I8", {1}, "x"}},
          {{"quantization_config", {{"quant_method", "fp8"}}}});
    EXPECT_EQ(message(), (folder.path() / "config.json").string() +
                             ": quantized with fp8 (tensors of F8_E4M3, I8), which is not supported yet; use "
                             "the unquantized checkpoint");
    write({floats("a", {1})}, {{"quantization_config", {{"quant_method", "gptq\n"}}}});
    EXPECT_THAT(message(), HasSubstr("quantized with gptq"));
}

TEST_F(CheckpointTest, EndsOfSequenceAreTheUnionOfTheFiles) {
    write({floats("a", {1})}, {{"eos_token_id", 2}});
    EXPECT_THAT(open().eos_token_ids(), ElementsAre(2));
    folder.write("generation_config.json", R"({"eos_token_id": [1, 2, 77], "temperature": 0.6})");
    const Checkpoint checkpoint = open();
    EXPECT_THAT(checkpoint.eos_token_ids(), ElementsAre(1, 2));
    EXPECT_EQ(checkpoint.generation().temperature, 0.6);
    EXPECT_THAT(checkpoint.warnings(), ElementsAre(HasSubstr("77 is outside the vocabulary of 3")));
    write({floats("a", {1})}, {{"eos_token_id", nullptr}});
    EXPECT_THAT(open().eos_token_ids(), ElementsAre(1, 2));
}

TEST_F(CheckpointTest, FingerprintsSeeWhatTheySay) {
    write({floats("a", {1})});
    const std::string cheap = open().sha256(), full = open().sha256_full();
    EXPECT_EQ(cheap.size(), 64u);
    write({floats("a", {2})});
    EXPECT_EQ(open().sha256(), cheap);
    EXPECT_NE(open().sha256_full(), full);
    write({floats("b", {1})});
    EXPECT_NE(open().sha256(), cheap);
    write({floats("a", {1, 1})});
    EXPECT_NE(open().sha256(), cheap);
}

TEST_F(CheckpointTest, ReadInsteadOfMappedItIsTheSame) {
    write({floats("a", {1, 2, 3}), floats("b", {4, 5})});
    const Checkpoint mapped = open();
    Checkpoint read = Checkpoint::open(folder.path(), {}, FileAccess::read);
    EXPECT_EQ(read.sha256(), mapped.sha256());
    EXPECT_EQ(read.sha256_full(), mapped.sha256_full());
    for (int i = 0; i < 2; ++i) {  // dropped, it is read again
        const Tensor b = read.tensor("b");
        EXPECT_THAT(std::vector<float>(b.as<float>(), b.as<float>() + 2), ElementsAre(4, 5));
        read.drop("b");
    }
    std::filesystem::resize_file(folder.path() / "model.safetensors",
                                 std::filesystem::file_size(folder.path() / "model.safetensors") - 4);
    EXPECT_THAT(test::message_of([&] { read.tensor("b"); }), HasSubstr("got shorter while it was read"));
}

long resident_kb() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
    return 0;
}

// A gibibyte, sparse on the disk: loading takes the memory of one tensor, not of the file.
TEST_F(CheckpointTest, ReadTensorByTensorAGibibyteTakesLittleMemory) {
    constexpr std::uint64_t kTensor = std::uint64_t(1) << 25, kTensors = 32;
    json header = json::object();
    for (std::uint64_t i = 0; i < kTensors; ++i)
        header[fmt::format("t{:02}", i)] = {
            {"dtype", "BF16"}, {"shape", {4096, 4096}}, {"data_offsets", {i * kTensor, (i + 1) * kTensor}}};
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    write({floats("a", {1})});
    const std::string front = test::safetensors(text);
    folder.write("model.safetensors", front);
    std::filesystem::resize_file(folder.path() / "model.safetensors", front.size() + kTensors * kTensor);

    const long before = resident_kb();
    Checkpoint checkpoint = Checkpoint::open(folder.path(), {}, FileAccess::read);
    long most = 0;
    for (const std::string& name : checkpoint.names()) {
        const Tensor tensor = checkpoint.tensor(name, {4096, 4096});
        EXPECT_EQ(tensor.as<bf16>()[4096 * 4096 - 1].bits, 0);
        most = std::max(most, resident_kb() - before);
        checkpoint.drop(name);
    }
    EXPECT_LT(most, 3 * long(kTensor >> 10));
}

TEST_F(CheckpointTest, TheDirectoryIsCheckedBeforeAnythingIsRead) {
    const std::vector<std::string> known{"Qwen2ForCausalLM"};
    write({floats("a", {1})});
    EXPECT_THAT(test::message_of([&] { Checkpoint::open(folder.path(), known); }),
                HasSubstr("LlamaForCausalLM"));
}

TEST(Checkpoint, TheTinyCheckpoints) {
    SKIP_WITHOUT(test::shared("data/tiny"));
    for (const auto& entry : std::filesystem::directory_iterator(test::shared("data/tiny"))) {
        if (!entry.is_directory()) continue;
        SCOPED_TRACE(entry.path().filename().string());
        Checkpoint checkpoint = Checkpoint::open(entry.path());
        const json golden = json::parse(std::ifstream(entry.path() / "golden.json"));
        EXPECT_EQ(checkpoint.config().architecture, golden["architecture"]);
        auto eos = golden["eos_token_id"].get<std::vector<int>>();
        std::sort(eos.begin(), eos.end());
        EXPECT_EQ(checkpoint.eos_token_ids(), eos);
        const auto [input, output] = checkpoint.embeddings();
        checkpoint.tensor(input, {checkpoint.config().vocab_size, checkpoint.config().hidden_size});
        checkpoint.tensor(output, {checkpoint.config().vocab_size, checkpoint.config().hidden_size});
        for (const std::string& name : checkpoint.names()) checkpoint.tensor(name);
        checkpoint.check_all_consumed();
        EXPECT_THAT(checkpoint.warnings(), IsEmpty());
    }
}

TEST(Checkpoint, TheSmallRealModelHasTheGoldensTensors) {
    const auto directory = default_model_directory();
    SKIP_WITHOUT(directory);
    SKIP_WITHOUT(test::shared("data/golden/smollm2_tensors.json"));
    Checkpoint checkpoint = Checkpoint::open(directory);
    EXPECT_EQ(checkpoint.n_parameters(), 134515008);
    const json golden = json::parse(std::ifstream(test::shared("data/golden/smollm2_tensors.json")));
    EXPECT_EQ(checkpoint.names().size(), golden["tensors"].size());
    for (const json& item : golden["tensors"]) {
        const Tensor tensor = checkpoint.tensor(item["name"].get<std::string>());
        EXPECT_EQ(
            Sha256()
                .update(std::span(static_cast<const std::byte*>(tensor.data), std::size_t(tensor.bytes())))
                .hex(),
            item["sha256"].get<std::string>())
            << item["name"];
    }
    checkpoint.check_all_consumed();
}

}  // namespace
}  // namespace llmgen
