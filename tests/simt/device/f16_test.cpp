// A checkpoint that is stored in f16: its weights are converted on their way to the device, and prompts of
// more rows than a GEMV takes go through cuBLASLt. The ids are the CPU's of the same file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "base/dtype.h"
#include "simt/fake/fake_cuda.h"
#include "tests/engine/requests.h"
#include "tests/models/harness.h"

namespace llmgen::test {
namespace {

namespace fs = std::filesystem;

/// The test checkpoint with every bf16 value as f16.
class F16 : public testing::Test {
protected:
    void SetUp() override {
        fs::remove_all(copy_);
        fs::copy(data("models/llama"), copy_);
        std::ifstream in(copy_ / "model.safetensors", std::ios::binary);
        std::string file{std::istreambuf_iterator<char>(in), {}};
        std::uint64_t header = 0;
        std::memcpy(&header, file.data(), 8);
        std::string names = file.substr(8, header);
        for (std::size_t at = 0; (at = names.find("\"BF16\"", at)) != std::string::npos;)
            names.replace(at, 6, "\"F16\" ");
        file.replace(8, header, names);
        for (std::size_t at = 8 + header; at < file.size(); at += 2) {
            bf16 value;
            std::memcpy(&value.bits, &file[at], 2);
            const f16 half = to_f16(to_f32(value));
            std::memcpy(&file[at], &half.bits, 2);
        }
        fs::remove(copy_ / "model.safetensors");
        std::ofstream(copy_ / "model.safetensors", std::ios::binary) << file;
    }
    void TearDown() override { fs::remove_all(copy_); }
    fs::path copy_ = fs::temp_directory_path() / ("llmgen_f16_" + std::to_string(getpid()));
};

TEST_F(F16, PromptsOfManyRowsThroughCublasLt) {
    ASSERT_EQ(Checkpoint::open(copy_, known_architectures()).info("model.norm.weight").dtype(), DType::f16);
    for (const char* compute : {"f32", "bf16"}) {
        SCOPED_TRACE(compute);
        Engine cpu = open_engine(copy_, [&](EngineOptions& o) { o.compute = compute; });
        Engine device = open_engine(copy_, [&](EngineOptions& o) {
            o.compute = compute;
            o.device = "cuda";
        });
        const std::size_t before = simt::FakeCuda::get().n_calls("cublasLtMatmul");
        for (const int n : {5, 9, 40}) {
            TokenIds ids;
            for (int i = 0; i < n; ++i) ids.push_back((i * i * 11 + n) % 250 + 3);
            EXPECT_EQ(device.generate(greedy(ids, 6)).token_ids, cpu.generate(greedy(ids, 6)).token_ids) << n;
        }
        EXPECT_GT(simt::FakeCuda::get().n_calls("cublasLtMatmul"), before + 8);
    }
}

}  // namespace
}  // namespace llmgen::test
