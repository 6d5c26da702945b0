// From what the user calls a model to the directory that holds it; nothing is downloaded.
//
//   a directory        itself
//   ORG/NAME           the snapshot that refs/main names in the Hugging Face cache (HF_HUB_CACHE, else
//                      HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub);
//                      ORG/NAME@REVISION takes a branch, tag or commit
//   nothing            LLMGEN_MODEL, else the model that tools/quickstart fetched
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace llmgen {

/// A variable's value; nullopt where it isn't set.
using Environment = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> process_environment(const char* name);

/// Throws Error where nothing is found: what was looked for, where, and the command that fetches it.
std::filesystem::path locate_model(std::string_view model,
                                   const Environment& environment = process_environment);

/// LLMGEN_CACHE, else XDG_CACHE_HOME/llmgen, else ~/.cache/llmgen.
std::filesystem::path cache_directory(const Environment& environment = process_environment);
/// Where tools/fetch_model puts the small model.
std::filesystem::path default_model_directory(const Environment& environment = process_environment);

}  // namespace llmgen
