// The most fused multiply-adds one core can do, for comparison with what the kernels reach.
#pragma once

#include <cstdint>

namespace keynest::bench {

/// Runs `rounds` rounds of independent float FMAs on the best SIMD target; returns how many floating-point
/// operations that was.
double run_fma(std::int64_t rounds);

}  // namespace keynest::bench
