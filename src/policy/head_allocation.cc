#include "policy/head_allocation.h"

#include <algorithm>

#include "kernels/select.h"

namespace keynest {

void keep_best(const HeadScores& head, std::int32_t budget, std::vector<Row>& kept) {
  if (head.scores.size() > static_cast<std::size_t>(budget)) {
    return select_top_k({head.scores, head.positions}, budget, kept);
  }
  kept.resize(head.scores.size());
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = Row{static_cast<std::int32_t>(i)};
}

void keep_across_heads(std::span<const HeadScores> heads, std::int32_t budget, std::int32_t secured,
                       std::vector<std::vector<Row>>& kept) {
  thread_local std::vector<ScoredRows> rows;
  rows.clear();
  std::int64_t available = 0;
  for (const HeadScores& head : heads) {
    rows.push_back({head.scores, head.positions});
    available += static_cast<std::int64_t>(head.scores.size());
  }
  const std::int64_t total = std::min(static_cast<std::int64_t>(heads.size()) * budget, available);
  select_across_heads(rows, total, std::min(secured, budget), kept);
}

}  // namespace keynest
