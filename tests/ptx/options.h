// What main_test.cpp was asked.
#pragma once

#include <string>

namespace llmgen::ptx {

struct Options {
    std::string folder = LLMGEN_PTX, coverage, reached, launches, only, write_profile,
                profile = LLMGEN_PROFILE_TABLE;
    bool fail_at_once = false, differences = false;
};
Options& options();

}  // namespace llmgen::ptx
