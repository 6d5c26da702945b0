// Any bytes as a tokenizer.json: a tokenizer that encodes and decodes some text, or an Error of one line.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/utf8.h"
#include "llmgen/error.h"
#include "text/tokenizer_impl.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(bytes), size);
    if (text.find('{') == text.npos) return 0;  // other kinds of files have targets of their own
    try {
        const auto impl = llmgen::load_tokenizer_bytes("tokenizer.json", text);
        impl->seal();
        for (const std::string_view sample :
             {"", " Hello, wörld's 12345\n\n  x", "<s>a</s><mask> 你好\xff🤗 e\u0301"}) {
            const llmgen::TextRange plain[] = {{2, 5}};
            llmgen::EncodeOptions options;
            options.plain_ranges = plain;
            const auto ids = impl->encode(sample, options);
            llmgen::DecodeChain chain(impl->decoder);
            std::string out;
            for (int id : ids) {
                if (id < 0 || id >= impl->vocab_size()) std::abort();
                chain.push(impl->decoder_token(id));
                out += chain.take();
            }
            chain.flush();
            out += chain.take();
            if (!llmgen::utf8::is_valid(out)) std::abort();
        }
    } catch (const llmgen::Error& error) {
        const std::string_view line = error.what();
        if (line.empty() || line.find('\n') != line.npos || !llmgen::utf8::is_valid(line)) std::abort();
    }
    return 0;
}
