// Another program, run to its end with a time limit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "keynest/result.h"

namespace keynest::bench {

struct ProcessEnd {
  int exit_code = -1;  ///< 128 + n when signal n killed it
  bool timed_out = false;
  std::string out;     ///< standard output, the first MiB of it
  std::string err;     ///< the end of standard error
  double seconds = 0;  ///< from its start to its end
};

/// Runs `command` (program and arguments, no shell) in a process group of its own, with nothing on standard
/// input, and kills the whole group when the limit has passed or `stopped` says so; the program dies with us.
/// Errors: kIo when it cannot be started, kCancelled.
Result<ProcessEnd> run_process(const std::vector<std::string>& command, double limit_seconds,
                               const std::function<bool()>& stopped);

}  // namespace keynest::bench
