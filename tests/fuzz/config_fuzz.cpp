// Any text as config.json and as generation_config.json: either an Error of one line, or a config whose
// sizes are in range and whose rotary frequencies can be made.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "llmgen/error.h"
#include "weights/config.h"
#include "weights/rope.h"

namespace {

void check_line(std::string_view line) {
    if (line.empty() || line.find('\n') != std::string_view::npos) std::abort();
}

template <typename F>
void try_it(F f) {
    try {
        f();
    } catch (const llmgen::Error& error) {
        check_line(error.what());
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(bytes), size);
    try_it([&] {
        const auto config = llmgen::ModelConfig::parse(text, "fuzz");
        if (config.n_heads < 1 || config.head_dim < 1 || config.n_heads % config.n_kv_heads != 0)
            std::abort();
        if (config.windows.size() != std::size_t(config.n_layers)) std::abort();
        for (const int id : config.eos_token_ids)
            if (id < 0 || id >= config.vocab_size) std::abort();
        for (const std::string& line : config.warnings) check_line(line);
        for (const int n_positions : {0, 1'000'000})
            if (llmgen::rope_frequencies(config, n_positions).inverse.size() !=
                std::size_t(config.n_rotary() / 2))
                std::abort();
    });
    try_it([&] { llmgen::GenerationDefaults::parse(text, "fuzz", 1000); });
    return 0;
}
