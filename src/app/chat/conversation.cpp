#include "app/chat/conversation.h"

#include <algorithm>

#include "app/cli/io.h"
#include "base/error.h"
#include "base/utf8.h"

namespace llmgen::app {
namespace {

Json message(const char* role, const std::string& content) {
    return Json{{"role", role}, {"content", content}};
}

bool has_role(const Json& message, const char* role) { return message["role"] == role; }

// The parts of `ranges` from `begin` on, counted from there.
std::vector<TextRange> shifted(const std::vector<TextRange>& ranges, std::size_t begin) {
    std::vector<TextRange> out;
    for (const TextRange& range : ranges)
        if (range.end > begin) out.push_back({std::max(range.begin, begin) - begin, range.end - begin});
    return out;
}

}  // namespace

Conversation::Conversation(const Tokenizer& tokenizer,
                           std::optional<ChatTemplate> chat_template,
                           RenderInput variables,
                           bool allow_special)
    : tokenizer_(tokenizer),
      template_(std::move(chat_template)),
      variables_(std::move(variables)),
      allow_special_(allow_special),
      control_ids_(template_ ? template_->control_ids(tokenizer) : std::vector<int>()) {}

void Conversation::set_system(const std::string& text) {
    if (!messages_.empty() && has_role(messages_[0], "system")) messages_.erase(0);
    if (!text.empty()) messages_.insert(messages_.begin(), message("system", text));
}

std::string Conversation::system() const {
    return !messages_.empty() && has_role(messages_[0], "system") && messages_[0].contains("content") &&
                   messages_[0]["content"].is_string()
               ? messages_[0]["content"].get<std::string>()
               : "";
}

void Conversation::add_user(const std::string& text) { messages_.push_back(message("user", text)); }

void Conversation::add_reply(const Result& result) {
    known_ids_.clear();
    if (result.text.empty() && result.finish_reason == FinishReason::cancelled) {
        drop_user();
        return;
    }
    messages_.push_back(message("assistant", result.text));
    std::vector<int> ids = result.token_ids;
    if (result.finish_reason == FinishReason::eos && !ids.empty())
        ids.pop_back();  // the template writes it again
    if (tokenizer_.decode(ids, true) != result.text)
        return;  // a stop string cut the text, or ids have no text of their own
    if (std::any_of(ids.begin(), ids.end(), [&](int id) { return tokenizer_.is_special(id); })) return;
    known_text_ = prompt_text_ + result.text;
    known_ids_ = result.prompt_ids;
    known_ids_.insert(known_ids_.end(), ids.begin(), ids.end());
}

bool Conversation::drop_reply() {
    if (messages_.empty() || !has_role(messages_.back(), "assistant")) return false;
    messages_.erase(messages_.size() - 1);
    return true;
}

void Conversation::drop_user() {
    if (!messages_.empty() && has_role(messages_.back(), "user")) messages_.erase(messages_.size() - 1);
}

void Conversation::clear() {
    const std::string kept = system();
    messages_ = Json::array();
    set_system(kept);
    known_ids_.clear();
}

std::size_t Conversation::turns() const {
    return std::size_t(
        std::count_if(messages_.begin(), messages_.end(), [](const Json& m) { return has_role(m, "user"); }));
}

std::vector<int> Conversation::encode(std::string_view text, std::vector<TextRange> ranges) const {
    EncodeOptions options;
    options.add_special_tokens = false;  // the template has written BOS
    if (!allow_special_) {
        options.plain_ranges = ranges;
        options.control_ids = control_ids_;
    }
    return tokenizer_.encode(text, options);
}

std::vector<int> Conversation::next_prompt() {
    if (!template_)
        fail(
            "this model has no chat template, so it can't chat; give one by --chat-template FILE, or let it "
            "continue a text: "
            "llmgen --raw --prompt \"…\"");
    RenderInput input = variables_;
    input.messages_json = dump(messages_);
    input.add_generation_prompt = true;
    RenderedPrompt rendered = template_->render(input);
    prompt_text_ = rendered.text;
    if (!known_ids_.empty() && rendered.text.starts_with(known_text_)) {
        const std::vector<int> rest = encode(std::string_view(rendered.text).substr(known_text_.size()),
                                             shifted(rendered.user_ranges, known_text_.size()));
        if (!rest.empty() && tokenizer_.is_special(rest.front())) {
            std::vector<int> ids = known_ids_;
            ids.insert(ids.end(), rest.begin(), rest.end());
            return ids;
        }
    }
    return encode(rendered.text, rendered.user_ranges);
}

void Conversation::restore(Json messages) {
    messages_ = std::move(messages);
    known_ids_.clear();
}

std::string Conversation::to_text() const {
    return messages_.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void Conversation::from_text(const std::string& text, const std::string& where) {
    Json json = parse_json(utf8::repair(without_bom(text)), where);
    if (json.is_object() && json.contains("messages")) json = Json(json["messages"]);
    check_messages(json, where);
    restore(std::move(json));
}

}  // namespace llmgen::app
