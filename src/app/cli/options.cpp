#include "app/cli/options.h"

#include <algorithm>
#include <cctype>
#include <climits>

#include "app/cli/io.h"
#include "app/cli/json.h"
#include "base/error.h"
#include "base/utf8.h"

namespace llmgen::app {

void EngineFlags::add_to(Flags& flags) {
    flags.group("Model and machine");
    flags.text("--model", engine.model, "DIR|ORG/NAME",
               "checkpoint directory, or a model in the Hugging Face cache");
    flags.custom("--device", "auto|cpu|cuda[:N]", "where to compute (auto: the GPU where there is one)",
                 [this](const std::string& name, const std::string& value) {
                     if (value != "auto" && value != "cpu" && value != "cuda") {
                         if (!value.starts_with("cuda:"))
                             fail_usage("{}: \"{}\" is not one of auto, cpu, cuda, cuda:N", name,
                                        printable(value));
                         parse_integer(name, value.substr(5), 0, 1023);
                     }
                     engine.device = value;
                 });
    flags.choice("--compute", engine.compute, "auto|bf16|f32",
                 "arithmetic (f32: the same ids as transformers in f32)");
    flags.integer("--max-context", engine.max_context, 1, INT_MAX,
                  "tokens of prompt and answer together, at most");
    flags.custom("--kv-memory", "SIZE", "memory for keys and values: 512M, 4GiB",
                 [this](const std::string& name, const std::string& value) {
                     engine.kv_memory = parse_size(name, value);
                 });
    flags.flag_off("--no-mmap", engine.map_weights,
                   "read the weights instead of mapping the files: for network disks");
    flags.integer("--threads", engine.threads, 1, 4096, "CPU threads (one per core)");
    flags.integer("--prefill-chunk", engine.prefill_chunk, 1, EngineOptions::kLargestChunk,
                  "prompt tokens computed in one step, at most");
    flags.flag_off("--no-prefix-cache", engine.prefix_cache, "don't share keys and values of equal prefixes");
    flags.flag_off("--no-generation-config", engine.use_generation_config,
                   "drop the checkpoint's sampling defaults");
    flags.text("--chat-template", chat_template_file, "FILE", "Jinja template instead of the checkpoint's");
    flags.flag("-q,--quiet", quiet, "nothing on stderr but errors");
}

EngineOptions EngineFlags::options() const {
    EngineOptions options = engine;
    if (!chat_template_file.empty()) {
        options.chat_template = read_input(chat_template_file);
        if (options.chat_template.empty())
            fail("{}: the chat template is empty", printable(chat_template_file));
    }
    return options;
}

void GenerationFlags::add_to(Flags& flags) {
    flags.group("Length and stopping");
    flags.integer("--max-new-tokens", max_new_tokens, 0, INT_MAX,
                  "length of the answer (until the model stops); 0: prompt only");
    flags.repeated("--stop", "TEXT", "end before this text; repeatable; \\n \\t \\\\ \\xHH \\uHHHH are read",
                   [this](const std::string&, const std::string& value) {
                       if (value.empty())
                           fail_usage("--stop: the text is empty, it would stop every answer at once");
                       // As a shell passes it, it may be no UTF-8; what our escapes make of it must be.
                       const std::string text = unescape(utf8::repair(value));
                       if (!utf8::is_valid(text))
                           fail_usage(
                               "--stop: \"{}\" is no valid UTF-8, which the text of an answer always is",
                               printable(value));
                       stop.push_back(text);
                   });
    flags.repeated("--stop-token-id", "ID", "end after this token; repeatable",
                   [this](const std::string& name, const std::string& value) {
                       stop_token_ids.push_back(int(parse_integer(name, value, 0, INT_MAX)));
                   });
    flags.flag("--ignore-eos", ignore_eos, "go on after the model's own end");

    flags.group("Sampling (penalties, temperature, top-k, top-p, min-p: in this order)");
    flags.flag("--greedy", greedy, "always the likeliest token; the same as --temperature 0");
    flags.real("--temperature", sampling.temperature, kTemperatureRange, "0: greedy; 1: as the model says");
    flags.integer("--top-k", sampling.top_k, -1, INT_MAX, "only the K likeliest (0 or -1: all)");
    flags.real("--top-p", sampling.top_p, kShareRange, "the likeliest that together reach P (1: all)");
    flags.real("--min-p", sampling.min_p, kShareRange,
               "those at least P times as likely as the best (0: all)");
    flags.real("--repetition-penalty", sampling.repetition_penalty, kRepetitionRange,
               "over prompt and answer (1: off)");
    flags.real("--presence-penalty", sampling.presence_penalty, kPenaltyRange,
               "for each token that the answer has (0: off)");
    flags.real("--frequency-penalty", sampling.frequency_penalty, kPenaltyRange,
               "the same, times its count (0: off)");
    flags.custom("--seed", "N", "the same seed gives the same answer (drawn, and shown by --stats)",
                 [this](const std::string& name, const std::string& value) {
                     sampling.seed = parse_unsigned(name, value);
                 });
    flags.repeated("--logit-bias", "ID:X", "add X to a token's logit; repeatable",
                   [this](const std::string& name, const std::string& value) {
                       sampling.logit_bias.push_back(parse_bias(name, value));
                   });

    flags.group("Tokens");
    flags.integer("--logprobs", logprobs, 0, 1 << 20,
                  "log-probabilities of each token and of the N best, in --json");
    flags.flag("--allow-special", allow_special, "read special tokens in the words of a chat, too");
    flags.flag("--show-special", show_special, "keep special tokens in the text");
}

Request GenerationFlags::request() const {
    Request request;
    request.sampling = sampling;
    if (greedy) {
        if (sampling.temperature && *sampling.temperature != 0)
            fail_usage("--greedy and --temperature {:g} contradict each other; leave one out",
                       *sampling.temperature);
        request.sampling.temperature = 0;
    }
    request.max_new_tokens = max_new_tokens;
    request.stop = stop;
    request.stop_token_ids = stop_token_ids;
    request.ignore_eos = ignore_eos;
    request.parse_special_in_chat = allow_special;
    request.skip_special = !show_special;
    request.logprobs = logprobs.value_or(-1);
    return request;
}

void TemplateFlags::add_to(Flags& flags) {
    flags.text("--tools", tools_file, "FILE", "tool definitions for the template, a JSON array");
    flags.list("--set", variables, "NAME=JSON", "a variable for the template; repeatable");
}

void TemplateFlags::fill(RenderInput& input) const {
    if (!tools_file.empty()) {
        std::string text = utf8::repair(read_input(tools_file));
        const Json tools = parse_json(text, printable(tools_file));
        if (!tools.is_array())
            fail("{}: tools are a JSON array, this is {}", printable(tools_file), tools.type_name());
        input.tools_json = std::move(text);
    }
    for (const std::string& entry : variables) {
        const std::size_t equals = entry.find('=');
        if (equals == 0 || equals == std::string::npos)
            fail_usage("--set: \"{}\" is not NAME=JSON, for example enable_thinking=false", printable(entry));
        const std::string name = entry.substr(0, equals);
        const bool is_name = std::all_of(name.begin(), name.end(), [](unsigned char c) {
            return c == '_' || std::isalnum(c) || c >= 0x80;
        });
        if (!is_name || std::isdigit(static_cast<unsigned char>(name[0])))
            fail_usage("--set: \"{}\" is no name that a template could read", printable(name));
        if (name == "messages")
            fail_usage("--set messages: the conversation itself is given by --prompt or --messages");
        std::string value = utf8::repair(entry.substr(equals + 1));
        try {
            parse_json(value, "--set " + printable(name));
        } catch (const Error& error) {
            fail_usage("{} (a string needs quotes: --set '{}=\"text\"')", error.what(), printable(name));
        }
        input.variables[name] = std::move(value);
    }
}

void TemplateFlags::warn_of_unread(const ChatTemplate& chat_template) const {
    if (!tools_file.empty() && !chat_template.mentions("tools"))
        say("warning: --tools: the chat template reads no tools, so the model doesn't see them");
    for (const std::string& entry : variables) {
        const std::string name = entry.substr(0, entry.find('='));
        constexpr std::string_view kOurs[] = {"add_generation_prompt", "continue_final_message"};
        const bool ours = std::find(std::begin(kOurs), std::end(kOurs), name) != std::end(kOurs);
        if (!ours && !chat_template.mentions(name))
            say("warning: --set {}: the chat template reads no such variable", name);
    }
}

std::vector<int> ids_from_flag(const std::string& name, const std::string& value) {
    std::vector<int> ids = parse_ids(name, value.starts_with("@") ? read_input(value.substr(1)) : value);
    if (ids.empty()) fail_usage("{}: no ids", name);
    return ids;
}

}  // namespace llmgen::app
