#include "policy/head_allocation.h"

#include <algorithm>
#include <numeric>

namespace keynest {

void keep_best(const ScoredRows& head, std::int32_t budget, std::vector<Row>& kept) {
  if (head.scores.size() > static_cast<std::size_t>(budget)) return select_top_k(head, budget, kept);
  kept.resize(head.scores.size());
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = Row{static_cast<std::int32_t>(i)};
}

void keep_across_heads(std::span<const ScoredRows> heads, std::int32_t budget, std::int32_t secured,
                       std::vector<std::vector<Row>>& kept) {
  const std::int64_t available = std::accumulate(
      heads.begin(), heads.end(), std::int64_t{0},
      [](std::int64_t sum, const ScoredRows& h) { return sum + static_cast<std::int64_t>(h.scores.size()); });
  const std::int64_t total = std::min(static_cast<std::int64_t>(heads.size()) * budget, available);
  select_across_heads(heads, total, std::min(secured, budget), kept);
}

}  // namespace keynest
