// Chat messages to the prompt's text: what transformers' apply_chat_template does around the template.
//
//   messages   top-level keys that are null are dropped; reasoning_content, thinking and reasoning fill each
//   other's first two variables  the tokenizer's special tokens, then messages, tools, documents,
//   add_generation_prompt (always there), then the caller's parts      a template that takes strings only
//   gets the joined text of content parts: their Python form never reaches the prompt
#include "llmgen/chat_template.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <ctime>

#include "base/error.h"
#include "base/lfs.h"
#include "base/mmap.h"
#include "base/utf8.h"
#include "text/jinja/eval.h"
#include "text/jinja/lexer.h"
#include "text/jinja/objects.h"

namespace llmgen {

using jinja::Dict;
using jinja::Failure;
using jinja::Interpreter;
using jinja::List;
using jinja::Text;
using jinja::Value;

namespace {

constexpr std::size_t kMaxTemplate = std::size_t(2) << 20;

// One line, printable.
std::string printable(std::string_view text) {
    std::string out;
    for (const std::string valid = utf8::repair(text); const char c : valid) {
        if (c == '\n')
            out += "\\n";
        else if (c == '\t')
            out += "\\t";
        else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
            out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        else
            out += c;
    }
    return out;
}

std::string place(const jinja::Template& t, std::size_t offset) {
    offset = std::min(offset, t.source.size());
    const std::string_view before = std::string_view(t.source).substr(0, offset);
    const std::size_t newline = before.rfind('\n');
    const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    const std::size_t line = 1 + std::size_t(std::count(before.begin(), before.end(), '\n'));
    std::string_view text = std::string_view(t.source).substr(begin, t.source.find('\n', begin) - begin);
    constexpr std::size_t kShown = 160;
    std::string shown(text);
    if (shown.size() > kShown) {  // a window around the fault
        const std::size_t from = offset - begin > kShown / 2 ? offset - begin - kShown / 2 : 0;
        shown = (from ? "…" : "") + shown.substr(from, kShown) + "…";
    }
    return fmt::format("{}, line {}, column {}: ", t.name, line, 1 + utf8::length(before.substr(begin))) +
           "\x01" + shown;
}

[[noreturn]] void report(const jinja::Template& t, const Failure& f) {
    const bool silent = f.message.find_first_not_of(" \t\r\n") == std::string::npos;
    if (f.type == "TemplateError" && !silent) throw Error(printable(f.message));  // the template's own words
    const std::string why = f.type + ": " + (silent ? "raised without a word of why" : printable(f.message));
    if (f.offset == std::string::npos) throw Error(t.name + ": " + why);
    const std::string where = place(t, f.offset);
    const std::size_t cut = where.find('\x01');
    throw Error(where.substr(0, cut) + why + " — in the line: " + printable(where.substr(cut + 1)));
}

std::shared_ptr<const jinja::Template> compile(std::string_view text, const std::string& name) {
    if (text.size() > kMaxTemplate)
        fail("{}: a chat template of {} bytes; at most {} are read", name, text.size(), kMaxTemplate);
    auto t = std::make_unique<jinja::Template>();
    std::string source = jinja::normalise_template(text);
    try {
        // parse() needs the place to report faults, so it must not own the only copy of the text
        t->source = source;
        t->name = name;
        auto parsed = jinja::parse(std::move(source));
        parsed->name = name;
        jinja::resolve(*parsed);
        return parsed;
    } catch (const Failure& f) {
        report(*t, f);
    }
}

Value json(std::string_view text, const char* what, bool user = true) {
    try {
        return jinja::parse_json(text, user);
    } catch (const Failure& f) {
        fail("{}: {}", what, printable(f.message));
    }
}

std::tm clock_now() {
    std::tm t{};
    const char* fixed = std::getenv("LLMGEN_NOW");
    if (fixed && *fixed) {
        const char* end = strptime(fixed, "%Y-%m-%dT%H:%M:%S", &t);
        if (!end || *end != '\0')
            fail("LLMGEN_NOW is '{}'; it must look like 2026-07-04T09:05:06", printable(fixed));
        return t;
    }
    const std::time_t now = std::time(nullptr);
    localtime_r(&now, &t);
    return t;
}

// --- messages before the template sees them ---

Value alias_reasoning(const Value& message) {
    const Dict& d = message.as_dict();
    const Value* reasoning = nullptr;
    for (const std::string_view key : {"reasoning_content", "thinking", "reasoning"})
        if (!reasoning) {
            const Value* v = d.find(key);
            if (v && !v->is_none()) reasoning = v;
        }
    if (!reasoning) return message;
    auto out = std::make_shared<Dict>();
    out->set("thinking", *reasoning);
    for (const auto& [key, value] : d.entries()) out->set(key, value);
    out->set("reasoning_content", *reasoning);
    return Value::dict(std::move(out));
}

List prepare_messages(const Value& messages) {
    if (!messages.is_list())
        fail("messages: an array of objects is needed, not {}", jinja::type_name(messages));
    List out;
    for (const Value& message : messages.items()) {
        if (!message.is_dict())
            fail("messages[{}]: an object with \"role\" and \"content\" is needed, not {}", out.size(),
                 jinja::type_name(message));
        auto kept = std::make_shared<Dict>();
        for (const auto& [key, value] : message.as_dict().entries())
            if (!value.is_none()) kept->set(key, value);
        out.push_back(alias_reasoning(Value::dict(std::move(kept))));
    }
    return out;
}

Value with_key(const Value& message, std::string_view key, Value value) {
    auto out = std::make_shared<Dict>();
    for (const auto& [k, v] : message.as_dict().entries()) out->set(k, v);
    out->set(key, std::move(value));
    return Value::dict(std::move(out));
}

/// Content parts of messages to one text each. `why` is what went wrong with the parts.
List join_parts(const List& messages, const std::string& why) {
    List out;
    for (const Value& message : messages) {
        const Value* content = message.as_dict().find("content");
        if (!content || !content->is_list()) {
            out.push_back(message);
            continue;
        }
        jinja::TextBuilder text;
        for (const Value& part : content->items()) {
            const Value* words = part.is_dict() ? part.as_dict().find("text") : nullptr;
            const Value* type = part.is_dict() ? part.as_dict().find("type") : nullptr;
            const bool is_text =
                type && type->is_string() && type->text().view() == "text" && words && words->is_string();
            if (!is_text)
                fail("messages[{}].content: the chat template takes text only, and this part is {} ({})",
                     out.size(),
                     type && type->is_string() ? "of type '" + printable(type->text().view()) + "'"
                                               : "not a text part",
                     printable(why));
            text.append(words->text());
        }
        out.push_back(with_key(message, "content", Value::string(text.finish())));
    }
    return out;
}

bool has_parts(const List& messages) {
    return std::any_of(messages.begin(), messages.end(), [](const Value& m) {
        const Value* content = m.as_dict().find("content");
        return content && content->is_list();
    });
}

}  // namespace

// --- the template of a checkpoint ---

class ChatTemplate::Impl {
public:
    std::shared_ptr<const jinja::Template> main;
    std::shared_ptr<const jinja::Template> tool_use;  // taken when there are tools; null: main
    std::map<std::string, std::string> tokens;        // bos_token, eos_token …

    RenderedPrompt render(const RenderInput& input) const;

private:
    Text render_messages(const jinja::Template& t,
                         Interpreter::Variables variables,
                         const List& messages) const;
};

// With content parts as they are; where the template can't do with them, once more with their text.
Text ChatTemplate::Impl::render_messages(const jinja::Template& t,
                                         Interpreter::Variables variables,
                                         const List& messages) const {
    variables["messages"] = Value::list(messages);
    const bool parts = has_parts(messages);
    std::string why = "the chat template would print the list of content parts";
    {
        Interpreter in(t, variables, clock_now());
        try {
            Text text = in.render();
            if (!parts || !in.printed_parts || in.went_through_parts) return text;
        } catch (const Failure& f) {
            if (!parts || in.went_through_parts || f.type == "TemplateError" || f.type == "ResourceError")
                report(t, f);
            why = f.message;
        }
    }
    variables["messages"] = Value::list(join_parts(messages, why));
    Interpreter in(t, std::move(variables), clock_now());
    try {
        return in.render();
    } catch (const Failure& f) {
        report(t, f);
    }
}

namespace {

constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Tags the end of the last message; gives its text as it was.
Text tag_final_message(List& messages, const jinja::Template& t) {
    if (messages.empty()) fail("continuing the final message: there are no messages");
    const Value last = messages.back();
    const Value* content = last.as_dict().find("content");
    if (!content || content->is_none()) fail("continuing the final message: it has no \"content\"");
    if (t.source.find("content") == std::string::npos)
        fail("continuing the final message: the chat template does not use \"content\"");
    const auto tagged = [](const Text& text) {
        jinja::TextBuilder out;
        out.append(text);
        out.append(kContinueTag);
        return Value::string(out.finish());
    };
    if (content->is_string()) {
        messages.back() = with_key(last, "content", tagged(content->text()));
        return content->text();
    }
    if (!content->is_list())
        fail("continuing the final message: its content is neither text nor a list of parts");
    List parts = content->items();
    for (std::size_t i = parts.size(); i-- > 0;) {
        const Value* text = parts[i].is_dict() ? parts[i].as_dict().find("text") : nullptr;
        if (!text || !text->is_string()) continue;
        const Text original = text->text();
        parts[i] = with_key(parts[i], "text", tagged(original));
        messages.back() = with_key(last, "content", Value::list(std::move(parts)));
        return original;
    }
    fail("continuing the final message: it has no text");
}

/// Cuts the prompt at the tag.
Text cut_at_tag(const Text& rendered, const Text& final_message) {
    const std::string_view bytes = rendered.view();
    const std::string_view bare = kContinueTag.substr(0, kContinueTag.size() - 1);
    const std::size_t at = bytes.rfind(bare);
    const Text wanted = jinja::strip(final_message, nullptr, true, true);
    if (at == std::string_view::npos || bytes.find(wanted.view()) == std::string_view::npos)
        fail("continuing the final message: it does not appear as it is in what the chat template writes");
    const Text head = rendered.slice(0, at);
    if (bytes.substr(at, kContinueTag.size()) == kContinueTag) return head;
    return jinja::strip(head, nullptr, false, true);  // the template trims what a message ends with
}

void check_objects(const Value& v, const char* what) {
    if (!v.is_list()) fail("{}: an array of objects is needed, not {}", what, jinja::type_name(v));
    for (std::size_t i = 0; i < v.items().size(); ++i)
        if (!v.items()[i].is_dict())
            fail("{}[{}]: an object is needed, not {}", what, i, jinja::type_name(v.items()[i]));
}

}  // namespace

RenderedPrompt ChatTemplate::Impl::render(const RenderInput& input) const {
    Interpreter::Variables variables;
    for (const auto& [name, token] : tokens) variables[name] = Value::string(token);
    variables["tools"] = Value();
    variables["documents"] = Value();
    if (input.tools_json) variables["tools"] = json(*input.tools_json, "tools");
    if (input.documents_json) variables["documents"] = json(*input.documents_json, "documents");
    for (const char* name : {"tools", "documents"})
        if (!variables[name].is_none()) check_objects(variables[name], name);
    const bool tools = !variables["tools"].is_none();
    variables["add_generation_prompt"] =
        Value::boolean(input.add_generation_prompt && !input.continue_final_message);
    for (const auto& [name, text] : input.variables) variables[name] = json(text, name.c_str());

    const jinja::Template& t = tools && tool_use ? *tool_use : *main;
    List messages = prepare_messages(json(input.messages_json, "messages"));
    Text final_message;
    if (input.continue_final_message) final_message = tag_final_message(messages, t);
    Text text = render_messages(t, std::move(variables), messages);
    if (input.continue_final_message) text = cut_at_tag(text, final_message);
    return {std::string(text.view()), text.user()};
}

ChatTemplate::ChatTemplate(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

RenderedPrompt ChatTemplate::render(const RenderInput& input) const {
    try {
        return impl_->render(input);
    } catch (const Failure& f) {  // from the preparation, outside any template
        fail("chat: {}: {}", f.type, printable(f.message));
    }
}

bool ChatTemplate::writes(std::string_view text) const {
    const auto in = [&](const auto& t) { return t && t->literals.find(text) != std::string::npos; };
    return in(impl_->main) || in(impl_->tool_use);
}

bool ChatTemplate::mentions(std::string_view name) const {
    const auto is_word = [](char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)); };
    const auto in = [&](const auto& t) {
        if (!t) return false;
        const std::string_view source = t->source;
        for (std::size_t at = source.find(name); at != source.npos; at = source.find(name, at + 1)) {
            const std::size_t end = at + name.size();
            if ((at == 0 || !is_word(source[at - 1])) && (end == source.size() || !is_word(source[end])))
                return true;
        }
        return false;
    };
    return in(impl_->main) || in(impl_->tool_use);
}

std::vector<int> ChatTemplate::control_ids(const Tokenizer& tokenizer) const {
    std::vector<int> ids;
    for (const int id : tokenizer.ordinary_added_ids()) {
        const std::string token = tokenizer.token(id);
        const bool blank =
            token.find_first_not_of(" \t\n\r") == std::string::npos;  // runs of spaces are words
        if (!blank && writes(token)) ids.push_back(id);
    }
    return ids;
}

ChatTemplate ChatTemplate::parse(std::string_view text,
                                 std::optional<std::string> bos_token,
                                 std::optional<std::string> eos_token,
                                 const std::string& file_name) {
    auto impl = std::make_shared<Impl>();
    impl->main = compile(text, file_name);
    if (bos_token) impl->tokens["bos_token"] = utf8::repair(*bos_token);
    if (eos_token) impl->tokens["eos_token"] = utf8::repair(*eos_token);
    return ChatTemplate(std::move(impl));
}

// --- files ---

namespace {

std::string read_text(const std::filesystem::path& path) {
    std::string text = read_file(path, std::size_t(64) << 20);
    reject_lfs_pointer(path.string(), text);
    return text;
}

// "bos_token": "<s>" or {"content": "<s>", …}
void take_tokens(const Dict& config, std::map<std::string, std::string>& tokens) {
    for (const char* name :
         {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
        const Value* v = config.find(name);
        if (v && v->is_dict()) v = v->as_dict().find("content");
        if (v && v->is_string()) tokens[name] = std::string(v->text().view());
    }
}

struct Source {
    std::string text;
    std::string file;
};

void read_config(const std::filesystem::path& path,
                 std::map<std::string, Source>& sources,
                 std::map<std::string, std::string>& tokens) {
    const std::string file = path.string();
    const Value config = json(read_text(path), file.c_str(), false);
    if (!config.is_dict()) fail("{}: an object is needed", file);
    take_tokens(config.as_dict(), tokens);
    const Value* chat = config.as_dict().find("chat_template");
    if (!chat || chat->is_none()) return;
    if (chat->is_string()) {
        sources["default"] = {std::string(chat->text().view()), file};
        return;
    }
    if (!chat->is_list())
        fail("{}: \"chat_template\" must be a text or a list of {{\"name\", \"template\"}}", file);
    for (const Value& entry : chat->items()) {
        const Value* name = entry.is_dict() ? entry.as_dict().find("name") : nullptr;
        const Value* text = entry.is_dict() ? entry.as_dict().find("template") : nullptr;
        if (!name || !text || !name->is_string() || !text->is_string())
            fail("{}: an entry of \"chat_template\" needs a \"name\" and a \"template\"", file);
        sources[std::string(name->text().view())] = {std::string(text->text().view()), file};
    }
}

std::map<std::string, Source> read_sources(const std::filesystem::path& dir,
                                           std::map<std::string, std::string>& tokens) {
    namespace fs = std::filesystem;
    std::map<std::string, Source> sources;
    std::error_code ignored;
    if (fs::exists(dir / "special_tokens_map.json", ignored)) {
        const fs::path path = dir / "special_tokens_map.json";
        const Value map = json(read_text(path), path.string().c_str(), false);
        if (map.is_dict()) take_tokens(map.as_dict(), tokens);
    }
    if (fs::exists(dir / "tokenizer_config.json", ignored))
        read_config(dir / "tokenizer_config.json", sources, tokens);
    if (const fs::path path = dir / "chat_template.jinja"; fs::exists(path, ignored))
        sources["default"] = {read_text(path), path.string()};
    if (const fs::path extra = dir / "additional_chat_templates"; fs::is_directory(extra, ignored)) {
        for (const fs::directory_entry& entry : fs::directory_iterator(extra))
            if (entry.path().extension() == ".jinja")
                sources[entry.path().stem().string()] = {read_text(entry.path()), entry.path().string()};
    }
    return sources;
}

}  // namespace

std::optional<ChatTemplate> ChatTemplate::load(const std::filesystem::path& checkpoint_dir,
                                               const std::string& name) {
    auto impl = std::make_shared<Impl>();
    const std::map<std::string, Source> sources = read_sources(checkpoint_dir, impl->tokens);
    std::string names;
    for (const auto& [n, source] : sources) names += (names.empty() ? "" : ", ") + printable(n);
    if (sources.empty()) {
        if (!name.empty())
            fail("{} has no chat template '{}': it has none at all", checkpoint_dir.string(),
                 printable(name));
        return std::nullopt;
    }
    const auto named = [&](const std::string& wanted) -> std::shared_ptr<const jinja::Template> {
        const auto it = sources.find(wanted);
        return it == sources.end() ? nullptr : compile(it->second.text, it->second.file);
    };
    impl->main = named(name.empty() ? "default" : name);
    if (name.empty()) impl->tool_use = named("tool_use");
    if (!impl->main && name.empty()) impl->main = impl->tool_use;
    if (!impl->main)
        fail("{} has no chat template '{}'; it has: {}", checkpoint_dir.string(),
             name.empty() ? "default" : printable(name), names);
    return ChatTemplate(std::move(impl));
}

}  // namespace llmgen
