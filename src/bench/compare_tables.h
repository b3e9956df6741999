// Tables of the runs that each had a process of their own.
#pragma once

#include <string>

#include "bench/runs.h"

namespace keynest::bench {

/// Engines at every length, with ratios to `reference` where it has run, else to nothing.
std::string compare_table(const Runs& runs, const std::string& reference);

/// Peaks at every length, and how much they change from the first to the last one.
std::string memory_table(const Runs& runs);

}  // namespace keynest::bench
