// Choosing the k best entries in linear time. Tie rule: of equal scores the lower position wins (across
// heads: the lower head, then the lower position).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/page.h"

namespace keynest {

/// One head's entries, by row. Scores must not be NaN; infinities are allowed.
struct ScoredRows {
  std::span<const float> scores;
  std::span<const Position> positions;
};

/// Writes the `k` best rows, ascending, into `kept`. k <= scores.size().
void select_top_k(const ScoredRows& head, std::int64_t k, std::vector<Row>& kept);

/// Heads compete: each secures its own best `secured` rows (all, if it has fewer), the rest of `total` goes
/// by score over all heads. The rows of head h are written, ascending, into kept[h], which is resized to
/// heads.size(). total is at least what is secured and at most the number of all rows; heads may differ in
/// length.
void select_across_heads(std::span<const ScoredRows> heads, std::int64_t total, std::int64_t secured,
                         std::vector<std::vector<Row>>& kept);

}  // namespace keynest
