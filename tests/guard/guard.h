// Sections of work whose instructions callgrind counts, one dump per section, named after it. Run without
// callgrind they are only run. scripts/guard compares the counts with the committed ones.
#pragma once

#include <valgrind/callgrind.h>

#include <string>

namespace keynest::guard {

/// Counts one run of `work`.
template <class Work>
void count(const std::string& name, Work work) {
  CALLGRIND_START_INSTRUMENTATION;
  work();
  CALLGRIND_STOP_INSTRUMENTATION;
  CALLGRIND_DUMP_STATS_AT(name.c_str());
}

/// Counts a second run: buffers have grown, pages are there, the SIMD target is chosen.
template <class Work>
void count_again(const std::string& name, Work work) {
  work();
  count(name, work);
}

/// Kernels alone, on one head.
void count_kernels();

/// Whole steps of a tiny model. False, and a message on standard error, when one fails.
bool count_steps();

}  // namespace keynest::guard
