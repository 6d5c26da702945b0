// Any text as messages, tools and a variable, through a template that prints them in every way: a prompt
// whose user ranges are in order and inside it, or an Error of one line.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "llmgen/chat_template.h"
#include "llmgen/error.h"

namespace {

constexpr std::string_view kTemplate =
    "{% for m in messages %}<|{{ m.role }}|>{% if m.content is string %}{{ m.content | trim }}{{ "
    "m.content.split(',') | join(';') }}"
    "{{ m.content | title | replace('a', 'bb') }}{{ '%s-%r' % (m.content, m.content) }}{{ "
    "'{:>5}'.format(m.content) }}"
    "{% elif m.content %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{{ m | tojson }}{{ m "
    "}}{{ m.x | default(m.y) }}\n{% endfor %}"
    "{% for t in tools or messages %}{{ t | tojson(indent=2) }}{% for k, v in t.items() %}{{ k }}={{ v }}{% "
    "endfor %}{% endfor %}"
    "{{ v }}{{ messages | map(attribute='role') | join(',') }}{{ messages[::-1] | length }}";

const llmgen::ChatTemplate& chat_template() {
    static const llmgen::ChatTemplate t = llmgen::ChatTemplate::parse(kTemplate, "<s>", std::nullopt);
    return t;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    const std::string text(reinterpret_cast<const char*>(bytes), size);
    const std::size_t half = text.find('\0');
    try {
        llmgen::RenderInput in;
        in.messages_json = text.substr(0, half);
        if (half != std::string::npos) in.tools_json = text.substr(half + 1);
        in.continue_final_message = size % 5 == 0;
        in.variables["v"] = in.messages_json;
        const llmgen::RenderedPrompt p = chat_template().render(in);
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
