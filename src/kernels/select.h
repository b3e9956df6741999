// Choosing the k best entries in linear time. Tie rule: of equal scores the lower position wins (across
// heads: the lower head, then the lower position).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/page.h"

namespace keynest {

/// Writes the rows (ascending) of the `k` best of `candidates` into `kept`. scores and positions are indexed by
/// row. Scores must not be NaN; +inf is allowed. k <= candidates.size().
void select_top_k(std::span<const float> scores, std::span<const Position> positions,
                  std::span<const Row> candidates, int k, std::vector<Row>& kept);

}  // namespace keynest
