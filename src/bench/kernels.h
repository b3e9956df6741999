// keynest's kernels on one thread, beside ggml's where it has the same operation.
#pragma once

#include <string>
#include <vector>

#include "bench/recorder.h"

namespace keynest::bench {

struct KernelOptions {
  std::vector<std::string> only;  ///< kernels, of kernel_names(); empty: all
  int rounds = 5;
  double seconds = 0.05;  ///< of every measurement
  bool quick = false;     ///< the first shape of every kernel
};

std::vector<std::string> kernel_names();

/// Records runs of part "kernels", and the machine's peaks (part "peak") before every kernel and at the end.
Status bench_kernels(const KernelOptions& options, Recorder& recorder);

}  // namespace keynest::bench
