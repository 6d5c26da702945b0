// The report page: one file, no network, no script; reads on a phone, in dark and light.
#pragma once

#include <string>

#include "app/bench/study.h"

namespace llmgen::bench {

std::string html_report(const Study& study);

}  // namespace llmgen::bench
