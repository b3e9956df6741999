// keynest's kernels beside what the machine can do, and beside ggml's where it has the same operation.
#pragma once

#include <string>
#include <vector>

#include "bench/recorder.h"

namespace keynest::bench {

struct KernelOptions {
  std::vector<std::string> only;    ///< kernels, of kernel_names(); empty: all
  std::vector<std::string> shapes;  ///< parts that a shape's text must have
  int threads = 1;                  ///< of the cases with several; 1: without those
  int rounds = 5;
  double seconds = 0.05;  ///< of every measurement
  bool quick = false;     ///< the first shape of every kernel
};

std::vector<std::string> kernel_names();

/// Records runs of part "kernels": by "keynest" and "ggml", and what the machine can do at most in the same
/// round, "fma", "copy", "read". The machine's peaks, part "peak", come first. Errors: no case is as asked
/// for.
Status bench_kernels(const KernelOptions& options, Recorder& recorder);

}  // namespace keynest::bench
