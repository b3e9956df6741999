// Choosing the k best entries in linear time. Tie rule: of equal scores the lower position wins (across
// heads: the lower head, then the lower position).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/page.h"

namespace keynest {

/// The positions of a head's rows, as its pages or an array have them; they are looked up where scores are
/// equal only. Views what it is made of.
class RowPositions {
 public:
  RowPositions(const HeadRows& head) : head_(&head) {}  // NOLINT(google-explicit-constructor)
  RowPositions(const std::vector<Position>& positions)
      : array_(positions.data()) {}  // NOLINT(google-explicit-constructor)

  RowPositions(std::vector<Position>&&) = delete;
  RowPositions(HeadRows&&) = delete;

  Position operator[](std::size_t row) const {
    return head_ != nullptr ? head_->position(Row{static_cast<std::int32_t>(row)}) : array_[row];
  }

 private:
  const HeadRows* head_ = nullptr;
  const Position* array_ = nullptr;
};

/// One head's entries, by row. Scores must not be NaN; infinities are allowed.
struct ScoredRows {
  std::span<const float> scores;
  RowPositions positions;
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
