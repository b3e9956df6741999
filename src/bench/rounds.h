// What every benchmark does in a round: measure the machine, and let what is compared take turns.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "bench/recorder.h"

namespace keynest::bench {

/// The order of a round: the next one begins one further, so that nobody always comes after the same one.
std::vector<std::size_t> order_of(std::size_t count, int round);

/// A run of part "peak": what `threads` threads can do now, measured for about 5 * `seconds`.
Json peak_run(int threads, std::optional<int> round, double seconds);

}  // namespace keynest::bench
