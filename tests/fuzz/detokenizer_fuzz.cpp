// Any ids, in any decoder of a few: chunks are valid UTF-8 and join to the text of all ids. Any text encodes
// and, by bytes, comes back.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/tokenizer_impl.h"

namespace {

std::string toy(const std::string& decoder, bool bytes) {
    std::string vocab;
    for (int b = 0; b < 256; ++b) {
        const std::string token =
            bytes ? llmgen::bytes_to_alphabet(std::string(1, char(b))) : fmt::format("<0x{:02X}>", b);
        vocab += fmt::format("\"{}{}\":{},", token == "\"" || token == "\\" ? "\\" : "", token, b);
    }
    const std::string pre =
        bytes ? R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})" : "null";
    return R"({"added_tokens":[{"id":0,"content":"<s>","special":true},{"id":0,"content":"é ","special":false}],"pre_tokenizer":)" +
           pre + R"(,"decoder":)" + decoder + R"(,"model":{"type":"BPE","byte_fallback":)" +
           (bytes ? "false" : "true") + R"(,"ignore_merges":true,"vocab":{)" + vocab +
           R"("▁":256,"▁a":257,"a</w>":258,"##b":259,"ab":260,"<pad>":261},"merges":[]}})";
}

using ImplPtr = std::shared_ptr<llmgen::Tokenizer::Impl>;
const std::vector<ImplPtr>& tokenizers() {
    static const std::vector<ImplPtr> all = [] {
        const std::string replace = R"({"type":"Replace","pattern":{"String":"▁"},"content":" "})";
        std::vector<ImplPtr> v;
        for (
            const std::string& d :
            {std::string(R"({"type":"ByteLevel"})"),
             R"({"type":"Sequence","decoders":[)" + replace +
                 R"(,{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":1}]})",
             std::string(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"first"})"),
             std::string(R"({"type":"BPEDecoder"})"), std::string(R"({"type":"WordPiece"})"),
             std::string(R"({"type":"CTC","word_delimiter_token":"▁"})"), std::string("null"),
             std::string(
                 R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Replace","pattern":{"String":"aba"},"content":"▁"},{"type":"ByteFallback"}]})")}) {
            v.push_back(llmgen::load_tokenizer_bytes("toy", toy(d, v.empty())));
            v.back()->seal();
        }
        return v;
    }();
    return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const llmgen::Tokenizer::Impl& t = *tokenizers()[data[0] % tokenizers().size()];
    std::vector<int> ids;
    for (std::size_t i = 1; i < size; ++i) ids.push_back(data[i] + (i + 1 < size && data[i] < 16 ? 256 : 0));
    llmgen::DecodeChain stream(t.decoder), whole(t.decoder);
    std::string joined;
    for (int id : ids) {
        if (!t.known(id)) continue;
        stream.push(t.decoder_token(id));
        whole.push(t.decoder_token(id));
        const std::string chunk = stream.take();
        if (!llmgen::utf8::is_valid(chunk)) std::abort();
        joined += chunk;
    }
    stream.flush();
    whole.flush();
    joined += stream.take();
    if (joined != whole.take() || !llmgen::utf8::is_valid(joined)) std::abort();

    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const llmgen::Tokenizer::Impl& bytes = *tokenizers()[0];
    llmgen::DecodeChain back(bytes.decoder);
    for (int id : bytes.encode(text, {.parse_special = false})) back.push(bytes.decoder_token(id));
    back.flush();
    const std::string again = back.take();
    if (text.find("é ") == text.npos && again != llmgen::utf8::repair(text)) std::abort();
    return 0;
}
