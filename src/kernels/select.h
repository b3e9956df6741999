// Choosing the k best entries in linear time. Tie rule: of equal scores the lower position wins (across
// heads: the lower head, then the lower position).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/page.h"

namespace keynest {

/// Writes the rows (ascending) of the `k` best of `candidates` into `kept`. scores and positions are indexed
/// by row. Scores must not be NaN; +inf is allowed. k <= candidates.size().
void select_top_k(std::span<const float> scores, std::span<const Position> positions,
                  std::span<const Row> candidates, int k, std::vector<Row>& kept);

/// One head's share of a competition; fields as in select_top_k. Heads may differ in length.
struct HeadCandidates {
  std::span<const float> scores;
  std::span<const Position> positions;
  std::span<const Row> candidates;
};

/// Heads compete: of the candidates of all heads the `total` best are chosen, and those of head h are
/// written, as ascending rows, into kept[h]. kept is resized to heads.size(). total <= the number of all
/// candidates.
void select_across_heads(std::span<const HeadCandidates> heads, std::int64_t total,
                         std::vector<std::vector<Row>>& kept);

}  // namespace keynest
