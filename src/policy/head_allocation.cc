#include "policy/head_allocation.h"

#include <algorithm>
#include <numeric>

#include "kernels/select.h"

namespace keynest {
namespace {

std::vector<Row> all_rows(std::size_t count) {
  std::vector<Row> rows(count);
  for (std::size_t i = 0; i < count; ++i) rows[i] = Row{static_cast<std::int32_t>(i)};
  return rows;
}

std::vector<Row> without(const std::vector<Row>& rows, const std::vector<Row>& taken) {
  std::vector<Row> rest;
  rest.reserve(rows.size() - taken.size());
  std::set_difference(rows.begin(), rows.end(), taken.begin(), taken.end(), std::back_inserter(rest));
  return rest;
}

void merge_into(std::vector<Row>& rows, const std::vector<Row>& more) {
  const auto middle = static_cast<std::ptrdiff_t>(rows.size());
  rows.insert(rows.end(), more.begin(), more.end());
  std::inplace_merge(rows.begin(), rows.begin() + middle, rows.end());
}

}  // namespace

void keep_best(const HeadScores& head, std::int32_t budget, std::vector<Row>& kept) {
  const std::vector<Row> rows = all_rows(head.scores.size());
  if (rows.size() <= static_cast<std::size_t>(budget)) {
    kept = rows;
  } else {
    select_top_k(head.scores, head.positions, rows, budget, kept);
  }
}

void keep_across_heads(std::span<const HeadScores> heads, std::int32_t budget, std::int32_t secured,
                       std::vector<std::vector<Row>>& kept) {
  std::vector<std::vector<Row>> safe(heads.size()), open(heads.size());
  std::vector<HeadCandidates> candidates;
  std::int64_t left = static_cast<std::int64_t>(heads.size()) * budget;
  std::int64_t available = 0;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    keep_best(heads[h], std::min(secured, budget), safe[h]);
    open[h] = without(all_rows(heads[h].scores.size()), safe[h]);
    candidates.push_back({heads[h].scores, heads[h].positions, open[h]});
    left -= static_cast<std::int64_t>(safe[h].size());
    available += static_cast<std::int64_t>(open[h].size());
  }
  select_across_heads(candidates, std::min(left, available), kept);
  for (std::size_t h = 0; h < heads.size(); ++h) merge_into(kept[h], safe[h]);
}

}  // namespace keynest
