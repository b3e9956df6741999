// The outcome of a needle check as a Markdown table.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace keynest::bench {

/// Answers of one policy and budget.
struct NeedleCell {
  int answers = 0, exact = 0;
  double leading = 0;                 ///< sum over the answers
  std::map<int, int> exact_by_depth;  ///< depth -> exact answers
};

/// Rows in the order given: a policy and a cell per budget.
struct NeedleRow {
  std::string policy;
  std::vector<NeedleCell> cells;  ///< [budgets], or one for a policy without a budget
};

/// "exact of all (share of leading digits)" per policy and budget.
std::string needle_table(const std::vector<std::string>& budgets, const std::vector<NeedleRow>& rows);

/// Exact answers per depth, all policies and budgets.
std::string needle_depth_table(const std::vector<std::string>& budgets, const std::vector<NeedleRow>& rows,
                               int depths);

}  // namespace keynest::bench
