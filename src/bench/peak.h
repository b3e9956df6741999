// What the machine can do at most, for comparison with what the kernels and the model reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/team.h"

namespace keynest::bench {

/// Runs `rounds` rounds of independent float FMAs on the best SIMD target; returns how many floating-point
/// operations that was.
double run_fma(std::int64_t rounds);

/// Where the bytes come from that something is measured with.
enum class Source { kMemory, kCache };

/// Memory for every thread of a team, copied or read by all of them at once: 64 MiB a thread, which no cache
/// holds, or 4 MiB of all threads together, which the last cache holds and no other does.
class Traffic {
 public:
  Traffic(Team& team, Source source);

  void copy();  ///< one half over the other
  void read();
  double copied_bytes() const;  ///< of copy(), counted once read and once written
  double read_bytes() const;    ///< of read()

 private:
  Team& team_;
  std::size_t bytes_;  // of a half, of one thread
  std::vector<std::vector<char>> buffers_;
};

/// Measured, all threads at once, per second.
struct Peak {
  double flops = 0;       ///< fused multiply-adds in float, two operations each
  double copy_bytes = 0;  ///< copying memory, bytes counted once read and once written
  double read_bytes = 0;  ///< reading memory
  double cached_copy_bytes = 0, cached_read_bytes = 0;  ///< the same in the last cache
};

/// Takes about `seconds` for each of them.
Peak measure_peak(Team& team, double seconds);

}  // namespace keynest::bench
