// Any bytes as a tokenizer.model, a tiktoken rank file or sentencepiece's protobuf.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/utf8.h"
#include "llmgen/error.h"
#include "text/tokenizer_impl.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(bytes), size);
    try {
        const auto impl = llmgen::load_tokenizer_bytes("tokenizer.model", text);
        impl->seal();
        const auto ids = impl->encode(" Hello  wörld's 123\n<s> 你好\xff🤗", {});
        llmgen::DecodeChain chain(impl->decoder);
        for (int id : ids) {
            if (!impl->known(id)) std::abort();
            chain.push(impl->decoder_token(id));
        }
        chain.flush();
        if (!llmgen::utf8::is_valid(chain.take())) std::abort();
    } catch (const llmgen::Error& error) {
        const std::string_view line = error.what();
        if (line.empty() || line.find('\n') != line.npos || !llmgen::utf8::is_valid(line)) std::abort();
    }
    return 0;
}
