// What a kernel did: see profile.cpp.
#pragma once

#include "ptx/context.h"

namespace llmgen::ptx {

struct Profile {
    void before(Context&, const Op&) {}
};

}  // namespace llmgen::ptx
