// tokenize, detokenize, render: text room only; no weights are needed and no engine is opened.
#include <functional>

#include "app/cli/command.h"
#include "app/cli/flags.h"
#include "app/cli/io.h"
#include "app/cli/json.h"
#include "app/cli/options.h"
#include "base/error.h"
#include "base/utf8.h"
#include "llmgen/llmgen.h"

namespace llmgen::app {
namespace {

// One answer line for each line in, {"error"} where it can't be had; nothing is lost. Exit code 1 where any
// failed.
int for_each_line(const std::function<Json(JsonObject&)>& answer) {
    LineReader lines("-");
    bool failed = false;
    while (const auto line = lines.next()) {
        Json out;
        const std::string where = fmt::format("line {}", lines.line_number());
        try {
            JsonObject object(*line, where);
            out = answer(object);
        } catch (const std::bad_alloc&) {
            throw;
        } catch (const std::exception& error) {
            failed = true;
            out = Json{{"error", printable(error.what())}};
        }
        write_stdout(dump(out) + "\n");
    }
    if (failed) say("some lines could not be done; each has an \"error\" in its place");
    return failed ? kFailed : kDone;
}

// What --model and --tokenizer mean for the commands that need no weights.
struct TokenizerFlags {
    std::string model;
    std::string file;

    void add_to(Flags& flags) {
        flags.text("--model", model, "DIR|ORG/NAME",
                   "checkpoint directory, or a model in the Hugging Face cache");
        flags.text("--tokenizer", file, "FILE", "a tokenizer.json or tokenizer.model by itself");
    }
    Tokenizer load() const {
        if (!model.empty() && !file.empty()) fail_usage("--model and --tokenizer: give one of them");
        return Tokenizer::load(file.empty() ? locate_model(model) : file);
    }
};

std::string joined(const std::vector<int>& ids) { return fmt::format("{}", fmt::join(ids, ",")); }

class Tokenize : public Command {
public:
    explicit Tokenize(CLI::App& root)
        : Command(add_subcommand(
              root,
              "tokenize",
              "Text to token ids, as the Hugging Face library gives them",
              "  llmgen tokenize --model DIR \"Hello world\"          # 9906,1917\n"
              "  printf 'Hello' | llmgen tokenize --model DIR --json\n"
              "  llmgen tokenize --tokenizer tokenizer.json --jsonl < lines.jsonl\n"
              "\n"
              "The text is the argument, else stdin, byte for byte. Special strings in it are found, unless\n"
              "--plain. --jsonl: a line is {\"text\": …} or {\"text_b64\": …}, the answer {\"ids\", "
              "\"tokens\"}.")) {
        Flags flags(*app_);
        tokenizer_.add_to(flags);
        flags.flag("--no-special", no_special_, "don't add BOS and the like");
        flags.flag("--plain", plain_, "special strings in the text are ordinary characters");
        flags.flag("--json", json_, "print {\"ids\", \"tokens\"}");
        flags.flag("--jsonl", jsonl_, "read JSON lines from stdin");
        flags.text("TEXT", text_, "", "the text (stdin)");
    }
    int run(Context&) override {
        if (jsonl_ && text_) fail_usage("--jsonl reads stdin; leave the text out");
        const Tokenizer tokenizer = tokenizer_.load();
        if (jsonl_)
            return for_each_line([&](JsonObject& line) {
                if (!line.find("text") && !line.find("text_b64"))
                    fail("{}: neither \"text\" nor \"text_b64\"", line.where());
                return answer(tokenizer, line.find("text")
                                             ? line.string("text")
                                             : decode_base64(line.string("text_b64"), line.where()));
            });
        const Json out = answer(tokenizer, text_ ? *text_ : read_all(0, "standard input"));
        write_stdout((json_ ? dump(out) : joined(out["ids"].get<std::vector<int>>())) + "\n");
        return kDone;
    }

private:
    Json answer(const Tokenizer& tokenizer, const std::string& text) const {
        EncodeOptions options;
        options.add_special_tokens = !no_special_;
        options.parse_special = !plain_;
        const std::vector<int> ids = tokenizer.encode(text, options);
        Json tokens = Json::array();
        for (const int id : ids) tokens.push_back(tokenizer.token(id));
        return Json{{"ids", ids}, {"tokens", std::move(tokens)}};
    }
    TokenizerFlags tokenizer_;
    bool no_special_ = false, plain_ = false, json_ = false, jsonl_ = false;
    std::optional<std::string> text_;
};

class Detokenize : public Command {
public:
    explicit Detokenize(CLI::App& root)
        : Command(add_subcommand(
              root,
              "detokenize",
              "Token ids to text",
              "  llmgen detokenize --model DIR 9906,1917             # Hello world\n"
              "  llmgen tokenize --model DIR Hello | llmgen detokenize --model DIR --skip-special\n"
              "\n"
              "The ids are the argument, else stdin. --jsonl: a line is {\"ids\": […]}, the answer "
              "{\"text\"}, or with\n"
              "--chunks {\"chunks\": [text that became final with each id], \"flush\": the rest}.")) {
        Flags flags(*app_);
        tokenizer_.add_to(flags);
        flags.flag("--skip-special", skip_special_, "leave special tokens out");
        flags.flag("--chunks", chunks_, "show what each id makes final");
        flags.flag("--json", json_, "print {\"text\"}");
        flags.flag("--jsonl", jsonl_, "read JSON lines from stdin");
        flags.text("IDS", ids_, "", "the ids, 1,2,3 (stdin)");
    }
    int run(Context&) override {
        if (jsonl_ && ids_) fail_usage("--jsonl reads stdin; leave the ids out");
        const Tokenizer tokenizer = tokenizer_.load();
        if (jsonl_)
            return for_each_line([&](JsonObject& line) {
                if (!line.find("ids")) fail("{}: no \"ids\"", line.where());
                return answer(tokenizer, ids_from_json(*line.find("ids"), line.where()));
            });
        const Json out = answer(tokenizer, parse_ids("IDS", ids_ ? *ids_ : read_all(0, "standard input")));
        write_stdout((json_ || chunks_ ? dump(out) : out["text"].get<std::string>()) + "\n");
        return kDone;
    }

private:
    Json answer(const Tokenizer& tokenizer, const std::vector<int>& ids) const {
        if (!chunks_) return Json{{"text", tokenizer.decode(ids, skip_special_)}};
        Detokenizer detokenizer(tokenizer, skip_special_);
        Json chunks = Json::array();
        for (const int id : ids) chunks.push_back(detokenizer.push(id));
        return Json{{"chunks", std::move(chunks)}, {"flush", detokenizer.flush()}};
    }
    TokenizerFlags tokenizer_;
    bool skip_special_ = false, chunks_ = false, json_ = false, jsonl_ = false;
    std::optional<std::string> ids_;
};

class Render : public Command {
public:
    explicit Render(CLI::App& root)
        : Command(add_subcommand(root,
                                 "render",
                                 "Chat messages to the prompt's text, byte for byte",
                                 "  llmgen render --model DIR --messages chat.json\n"
                                 "  echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | llmgen render "
                                 "--model DIR --messages -\n"
                                 "  llmgen render --jsonl < cases.jsonl\n"
                                 "\n"
                                 "No newline is added at the end. --jsonl: a line is {\"template_text\", "
                                 "\"messages\", \"tools\", \"documents\",\n"
                                 "\"add_generation_prompt\", \"continue_final_message\", \"kwargs\", "
                                 "\"bos_token\", \"eos_token\"}, the answer\n"
                                 "{\"text\"} or {\"error\"}. Without \"template_text\" the template of "
                                 "--model or --chat-template is used.")) {
        Flags flags(*app_);
        flags.text("--model", model_, "DIR|ORG/NAME",
                   "checkpoint directory, or a model in the Hugging Face cache");
        flags.text("--messages", messages_, "FILE", "a JSON array of {\"role\", \"content\"} (- for stdin)");
        flags.text("--chat-template", template_file_, "FILE", "Jinja template instead of the checkpoint's");
        flags.text("--template-name", template_name_, "NAME", "which, where the checkpoint has several");
        flags.flag("--no-generation-prompt", no_generation_prompt_,
                   "stop before the assistant's turn begins");
        flags.flag("--continue-final", continue_final_, "leave the last message open");
        variables_.add_to(flags);
        flags.flag("--jsonl", jsonl_, "read JSON lines from stdin");
    }
    int run(Context&) override {
        if (jsonl_ && !messages_.empty()) fail_usage("--jsonl reads stdin; leave --messages out");
        if (jsonl_) return for_each_line([&](JsonObject& line) { return answer(line); });
        if (messages_.empty()) fail_usage("--messages FILE is needed (or --jsonl)");
        RenderInput input = messages_from_json(read_input(messages_),
                                               messages_ == "-" ? "standard input" : printable(messages_));
        input.add_generation_prompt = !no_generation_prompt_ && !continue_final_;
        input.continue_final_message = continue_final_;
        variables_.fill(input);
        const ChatTemplate& chat_template = checkpoint_template();
        variables_.warn_of_unread(chat_template);
        write_stdout(chat_template.render(input).text);
        return kDone;
    }

private:
    const ChatTemplate& checkpoint_template() {
        if (loaded_) return *loaded_;
        std::optional<std::string> bos, eos;
        std::string dir;
        if (template_file_.empty() || !model_.empty()) dir = locate_model(model_);
        if (template_file_.empty()) {
            loaded_ = ChatTemplate::load(dir, template_name_);
            if (!loaded_)
                fail(
                    "{}: the checkpoint has no chat template; give one by --chat-template FILE, or use the "
                    "model by --raw",
                    printable(dir));
            return *loaded_;
        }
        if (!dir.empty()) {
            const Tokenizer tokenizer = Tokenizer::load(dir);
            bos = tokenizer.bos_token();
            eos = tokenizer.eos_token();
        }
        loaded_ = ChatTemplate::parse(read_input(template_file_), bos, eos, printable(template_file_));
        return *loaded_;
    }

    Json answer(const JsonObject& line) {
        RenderInput input;
        if (!line.find("messages")) fail("{}: no \"messages\"", line.where());
        input.messages_json = line.raw("messages");
        if (line.find("tools")) input.tools_json = line.raw("tools");
        if (line.find("documents")) input.documents_json = line.raw("documents");
        input.continue_final_message = line.boolean("continue_final_message", continue_final_);
        input.add_generation_prompt =
            line.boolean("add_generation_prompt", !no_generation_prompt_ && !input.continue_final_message);
        variables_.fill(input);
        if (line.find("kwargs")) {
            const JsonObject kwargs(line.raw("kwargs"), line.where() + ", kwargs");
            for (const auto& [name, value] : kwargs.members()) input.variables[name] = value;
        }
        if (!line.find("template_text")) return Json{{"text", checkpoint_template().render(input).text}};
        const auto token = [&](const char* key) {
            return line.find(key) ? std::optional(line.string(key)) : std::nullopt;
        };
        return Json{
            {"text", ChatTemplate::parse(line.string("template_text"), token("bos_token"), token("eos_token"))
                         .render(input)
                         .text}};
    }

    std::string model_, messages_, template_file_, template_name_;
    bool no_generation_prompt_ = false, continue_final_ = false, jsonl_ = false;
    TemplateFlags variables_;
    std::optional<ChatTemplate> loaded_;
};

}  // namespace

std::unique_ptr<Command> make_tokenize(CLI::App& root) { return std::make_unique<Tokenize>(root); }
std::unique_ptr<Command> make_detokenize(CLI::App& root) { return std::make_unique<Detokenize>(root); }
std::unique_ptr<Command> make_render(CLI::App& root) { return std::make_unique<Render>(root); }

}  // namespace llmgen::app
