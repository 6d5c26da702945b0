// Groups of options that several commands share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/cli/flags.h"
#include "llmgen/llmgen.h"

namespace llmgen::app {

/// How the engine is opened. `chat_template_file` is read by engine_options().
struct EngineFlags {
    EngineOptions engine;
    std::string chat_template_file;
    bool quiet = false;

    void add_to(Flags& flags);
    /// With the template's file read.
    EngineOptions options() const;
};

/// Everything of a Request but its prompt.
struct GenerationFlags {
    Sampling sampling;
    bool greedy = false;
    std::optional<int> max_new_tokens;
    std::vector<std::string> stop;
    std::vector<int> stop_token_ids;
    bool ignore_eos = false;
    bool allow_special = false;
    bool show_special = false;
    std::optional<int> logprobs;

    void add_to(Flags& flags);
    /// Throws UsageError where two flags contradict each other.
    Request request() const;
};

/// What a chat template is given beside the messages.
struct TemplateFlags {
    std::string tools_file;
    std::vector<std::string> variables;  // k=json

    void add_to(Flags& flags);
    void fill(RenderInput& input) const;
    bool is_empty() const { return tools_file.empty() && variables.empty(); }
    /// Says what of it the template doesn't read.
    void warn_of_unread(const ChatTemplate& chat_template) const;
};

/// "1,2,3" or "@FILE" ("@-": stdin).
std::vector<int> ids_from_flag(const std::string& name, const std::string& value);

}  // namespace llmgen::app
