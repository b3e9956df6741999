#include "bench/rounds.h"

#include "bench/peak.h"

namespace keynest::bench {

std::vector<std::size_t> order_of(std::size_t count, int round) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < count; ++i) order.push_back((i + static_cast<std::size_t>(round)) % count);
  return order;
}

Json peak_run(int threads, std::optional<int> round, double seconds) {
  Team team(threads);
  const Peak peak = measure_peak(team, seconds);
  Json run = {{"part", "peak"}, {"threads", threads}};
  if (round) run["round"] = *round;
  run.update({{"flops", peak.flops},
              {"copy_bytes", peak.copy_bytes},
              {"read_bytes", peak.read_bytes},
              {"cached_copy_bytes", peak.cached_copy_bytes},
              {"cached_read_bytes", peak.cached_read_bytes}});
  return run;
}

}  // namespace keynest::bench
