// Chat messages to the prompt's text, through the checkpoint's own Jinja template.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llmgen/tokenizer.h"

namespace llmgen {

/// What a template sees. The *_json members are JSON texts, so that this header needs no JSON library.
struct RenderInput {
    std::string messages_json;                  // an array of {"role", "content", …}
    std::optional<std::string> tools_json;      // an array; absent = none
    std::optional<std::string> documents_json;  // an array; absent = none
    bool add_generation_prompt = true;
    bool continue_final_message = false;           // the last message is left open, to be continued
    std::map<std::string, std::string> variables;  // further template variables, each a JSON text
};

struct RenderedPrompt {
    std::string text;
    /// Where text stands that came from the messages, tools and variables, not from the template: no control
    /// token is read there.
    std::vector<TextRange> user_ranges;
};

/// Immutable once loaded, safe to use from many threads at once.
class ChatTemplate {
public:
    /// The template of a checkpoint directory: tokenizer_config.json's, which chat_template.jinja and
    /// additional_chat_templates/NAME.jinja override. `name` picks among several ("default"; "tool_use" is
    /// taken by itself when there are tools). nullopt where the checkpoint has none. Throws Error on a
    /// template that does not parse (line, column, the line's text).
    static std::optional<ChatTemplate> load(const std::filesystem::path& checkpoint_dir,
                                            const std::string& name = "");
    /// From a template's text. The token strings are what the template sees as bos_token and eos_token;
    /// nullopt = undefined.
    static ChatTemplate parse(std::string_view text,
                              std::optional<std::string> bos_token,
                              std::optional<std::string> eos_token,
                              const std::string& file_name = "chat template");

    /// Throws Error: the template's own raise_exception message, or what went wrong with line and column.
    /// Ends within a second whatever the template.
    RenderedPrompt render(const RenderInput& input) const;

    /// Whether `text` stands in the template's own words (its text and string constants).
    bool writes(std::string_view text) const;
    /// Whether `name` stands as a word in its source: a variable that doesn't can have no effect.
    bool mentions(std::string_view name) const;
    /// Ids, ascending, of the tokenizer's added tokens that aren't special, yet words of the template
    /// ("<think>"): EncodeOptions::control_ids of a rendered chat.
    std::vector<int> control_ids(const Tokenizer& tokenizer) const;

    class Impl;

private:
    explicit ChatTemplate(std::shared_ptr<const Impl> impl);
    std::shared_ptr<const Impl> impl_;
};

}  // namespace llmgen
