// What the machine can do at most, for comparison with what the kernels and the model reach.
#pragma once

#include <cstddef>
#include <cstdint>

namespace keynest::bench {

/// Runs `rounds` rounds of independent float FMAs on the best SIMD target; returns how many floating-point
/// operations that was.
double run_fma(std::int64_t rounds);

/// Measured, all threads at once.
struct Peak {
  double flops = 0;       ///< fused multiply-adds in float, two operations each, per second
  double copy_bytes = 0;  ///< bytes per second of copying memory, counted once read and once written
};

/// Takes about `seconds` for each of the two. `copied`: bytes every thread copies; far more than the caches
/// hold, if the figure is to be memory's.
Peak measure_peak(int threads, double seconds, std::size_t copied);

}  // namespace keynest::bench
