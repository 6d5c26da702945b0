// Any text as a chat template, over a small talk: a prompt whose user ranges are in order and inside it, or
// an Error of one line. No crash, no hang, whatever the template.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "llmgen/chat_template.h"
#include "llmgen/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(bytes), size);
    try {
        llmgen::RenderInput in;
        in.messages_json =
            R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "é 1,2"}]},
                {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, null]}}}]},
                {"role": "tool", "content": "<b>&'"}])";
        in.tools_json =
            R"([{"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {"type": "array"}}}}}])";
        in.variables["s"] = "\"a b\\n\"";
        in.variables["n"] = "3";
        const llmgen::RenderedPrompt p = llmgen::ChatTemplate::parse(text, "<s>", "</s>").render(in);
        std::size_t at = 0;
        for (const llmgen::TextRange& r : p.user_ranges) {
            if (r.begin >= r.end || r.begin < at || r.end > p.text.size()) std::abort();
            at = r.end;
        }
    } catch (const llmgen::Error& error) {
        const std::string_view line = error.what();
        if (line.empty() || line.find('\n') != std::string_view::npos) std::abort();
    }
    return 0;
}
