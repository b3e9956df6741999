// What one core can do at most with AVX-512: dot products of BF16 pairs, and F32 fused multiply-adds.
#pragma once

namespace keynest::bench {

/// Prints a line for each, in the form of run_candidates; nothing without AVX-512.
void print_peaks();

}  // namespace keynest::bench
