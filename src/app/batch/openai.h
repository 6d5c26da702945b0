// A line of the OpenAI batch form: what is read of its body, and the body of its answer.
//
// Read: messages or prompt, max_tokens, max_completion_tokens, stop, seed, temperature, top_p, the penalties,
// logit_bias, logprobs, tools, and our own sampling fields. What would change the answer and isn't done here
// is refused in its line; what changes nothing ("user", "metadata", "stream") is passed over.
#pragma once

#include "app/batch/item.h"
#include "app/cli/json.h"

namespace llmgen::app {

/// "batch_req_LINE"
std::string openai_id(const BatchItem& item);
void read_openai(const JsonObject& line, BatchItem& item);
Json openai_body(const BatchItem& item,
                 const Result& result,
                 const EngineInfo& info,
                 const Tokenizer& tokenizer);

}  // namespace llmgen::app
