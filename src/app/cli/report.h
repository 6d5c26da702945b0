// What --stats and --explain print.
#pragma once

#include <string>

#include "app/cli/options.h"
#include "llmgen/llmgen.h"

namespace llmgen::app {

/// Read bandwidth of the engine's device in bytes a second, measured now; 0 where it can't be.
double measured_read_bandwidth(const EngineInfo& info);

/// Lines "name  value", ending with a newline; of what was measured only: an answer of one token has no pace.
/// `asked`: what it stopped on. `bandwidth`: 0 leaves the floor out.
std::string stats_report(const Result& result,
                         const EngineInfo& info,
                         const Tokenizer& tokenizer,
                         const GenerationFlags& asked,
                         double bandwidth);

/// The loop, told to someone who has never seen inference: a line a step.
std::string explain_report(const Result& result, const EngineInfo& info, const Tokenizer& tokenizer);

/// "eos: the model produced <|im_end|> (id 2)" and the like.
std::string finish_text(const Result& result, const Tokenizer& tokenizer);

}  // namespace llmgen::app
