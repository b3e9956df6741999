// The commands under `keynest bench` that are not in bench.cc.
#pragma once

#include "cli/commands.h"

namespace keynest::cli {

/// `memory` and `compare`: every run in a process of its own.
void add_bench_memory(CLI::App& bench, Context& context);
void add_bench_compare(CLI::App& bench, Context& context);

/// `show`: tables and the picture of results kept earlier.
void add_bench_show(CLI::App& bench, Context& context);

}  // namespace keynest::cli
