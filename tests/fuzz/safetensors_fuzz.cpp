// Any bytes as a safetensors file: either an Error of one line, or tensors that lie within the data.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "llmgen/error.h"
#include "weights/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    const std::string_view file(reinterpret_cast<const char*>(bytes), size);
    try {
        std::uint64_t at = 0;
        const auto tensors = llmgen::parse_safetensors(file, size, "fuzz");
        for (const llmgen::TensorInfo& info : tensors) {
            if (info.begin != at || info.end < info.begin || info.end > size) std::abort();
            at = info.end;
            llmgen::describe(info);
        }
    } catch (const llmgen::Error& error) {
        if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
    }
    return 0;
}
