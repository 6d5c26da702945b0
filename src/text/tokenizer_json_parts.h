// The components of tokenizer.json other than the model.
#pragma once

#include "text/decoder.h"
#include "text/json_view.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace llmgen {

NormalizerPtr parse_normalizer(const JsonView& j);
/// `raw_bytes`: the last ByteLevel leaves bytes as they are.
PreTokenizerPtr parse_pre_tokenizer(const JsonView& j, bool raw_bytes);
/// Whether pieces come out of a single ByteLevel at the end of it.
bool ends_in_byte_level(const JsonView& j);
DecoderPlan parse_decoder(const JsonView& j);

}  // namespace llmgen
