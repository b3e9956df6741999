// The results of benchmarks as Markdown.
#pragma once

#include <string>

#include "bench/recorder.h"

namespace keynest::bench {

/// What it ran on, then a table for every part that there are runs of. Runs with fields missing are left out.
std::string print_tables(const Json& results);

}  // namespace keynest::bench
