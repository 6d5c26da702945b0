// A conversation: its messages, and the ids of what the model has already computed.
//
// The next prompt is built from ids, not from text: the ids of the last prompt and of the reply, as sampled,
// then the ids of what the template adds after the reply. Encoding the reply's text again can give other ids
// (the model need not write as the tokenizer would), and then nothing after that point could be reused.
// That holds only where the new rendering begins with exactly what was there before and the template's
// addition begins with a control token; otherwise all is encoded anew.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/cli/json.h"
#include "llmgen/llmgen.h"

namespace llmgen::app {

class Conversation {
public:
    /// `chat_template` nullopt: the model has none, and next_prompt() says so.
    Conversation(const Tokenizer& tokenizer,
                 std::optional<ChatTemplate> chat_template,
                 RenderInput variables,
                 bool allow_special);

    void set_system(const std::string& text);  // "" removes it
    std::string system() const;
    void add_user(const std::string& text);
    /// The reply to the last user message. An empty one that was interrupted takes the user's turn back.
    void add_reply(const Result& result);
    /// Takes the last reply off, so that next_prompt() asks for it again. False where there is none.
    bool drop_reply();
    /// Takes the last user message off (it could not be answered).
    void drop_user();
    void clear();  // all but the system message
    std::size_t turns() const;

    /// Ids to submit. Throws Error: the template's own complaint, or that there is none.
    std::vector<int> next_prompt();

    const Json& messages() const { return messages_; }
    void restore(Json messages);  // as messages() gave them

    std::string to_text() const;  // the messages as indented JSON
    void from_text(const std::string& text, const std::string& where);

private:
    std::vector<int> encode(std::string_view text, std::vector<TextRange> ranges) const;

    const Tokenizer& tokenizer_;
    std::optional<ChatTemplate> template_;
    RenderInput variables_;
    bool allow_special_;
    std::vector<int> control_ids_;
    Json messages_ = Json::array();
    // The last prompt with its reply, where its ids are known to stand for exactly this text.
    std::string prompt_text_, known_text_;
    std::vector<int> known_ids_;
};

}  // namespace llmgen::app
