// One line of a batch: from JSON to a request, and from its result to a line again.
//
// Two forms, told apart by "custom_id" (a file may mix them; each line is answered in its own form):
//   ours    {"id"?, "prompt" | "messages" | "token_ids", "system"?, "raw"?, any sampling field,
//   "max_new_tokens",
//            "stop", …}                        -> the record of a run with "id" and "line" in front
//   OpenAI  {"custom_id", "method", "url", "body"}   -> {"id": "batch_req_LINE", "custom_id", "response",
//   "error"}
//
// A line that can't be done becomes a line with an "error", in its place and with its id. "line" (in the
// OpenAI form: the number in "id") is what --resume goes by.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "app/cli/json.h"
#include "llmgen/llmgen.h"

namespace llmgen::app {

struct BatchItem {
    std::size_t line = 0;   // in the input file, from 1
    std::size_t index = 0;  // among the lines that aren't blank, from 0: the id where the line has none
    Json id;                // a string or a number
    bool openai = false;
    bool chat_endpoint = true;  // OpenAI: /v1/chat/completions rather than /v1/completions
    std::string model;          // OpenAI: as asked for, comes back
    Request request;
    std::string error;  // what is wrong with the line; "" where nothing is
};

/// What a line starts from: the command's own flags.
struct BatchDefaults {
    Request request;
    std::string system;
    bool raw = false;
};

/// Never throws on what the line holds: the item then has an error.
BatchItem parse_item(const std::string& text,
                     std::size_t line,
                     std::size_t index,
                     const BatchDefaults& defaults);

/// One line with its newline.
std::string result_line(const BatchItem& item,
                        const Result& result,
                        const EngineInfo& info,
                        const Tokenizer& tokenizer);
std::string error_line(const BatchItem& item, const std::string& message);

/// The input line that an output line answers, 0 where it is no line of ours; and whether it holds an error.
struct DoneLine {
    std::size_t line = 0;
    bool failed = false;
};
DoneLine read_done_line(std::string_view text);
/// "id" or "custom_id" of an output or input line; null where there is none.
Json id_of_line(const std::string& text);

}  // namespace llmgen::app
