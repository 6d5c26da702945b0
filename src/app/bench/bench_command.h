// `llmgen bench`: DESIGN section 7.
#pragma once

#include <memory>

#include "app/cli/command.h"

namespace llmgen::app {

std::unique_ptr<Command> make_bench(CLI::App& root);

}  // namespace llmgen::app
