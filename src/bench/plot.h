// A picture of a comparison.
#pragma once

#include <string>

#include "bench/recorder.h"

namespace keynest::bench {

/// Time to first token and peak resident memory against the length of the prompt, a line per engine, medians
/// of the rounds, as an SVG picture. Errors (kInvalidArgument): no runs of part "compare".
Result<std::string> plot_compare(const Json& results);

}  // namespace keynest::bench
