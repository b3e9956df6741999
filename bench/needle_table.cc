#include "needle_table.h"

#include <cstdio>

namespace keynest::bench {
namespace {

std::string line(const std::vector<std::string>& cells) {
  std::string text = "|";
  for (const std::string& cell : cells) text += " " + cell + " |";
  return text + "\n";
}

std::string head(std::vector<std::string> cells) {
  std::string text = line(cells);
  for (std::string& cell : cells) cell = "---";
  return text + line(cells);
}

std::string cell_text(const NeedleCell& cell) {
  if (cell.answers == 0) return "–";
  char share[32];
  std::snprintf(share, sizeof share, "%.2f", cell.leading / cell.answers);
  return std::to_string(cell.exact) + " of " + std::to_string(cell.answers) + " (" + share + ")";
}

std::string code(const std::string& text) { return "`" + text + "`"; }

}  // namespace

std::string needle_table(const std::vector<std::string>& budgets, const std::vector<NeedleRow>& rows) {
  std::vector<std::string> header{"policy"};
  for (const std::string& budget : budgets) header.push_back("N = " + budget);
  std::string text = head(header);
  for (const NeedleRow& row : rows) {
    std::vector<std::string> cells{code(row.policy)};
    for (std::size_t i = 0; i < budgets.size(); ++i) {
      const bool repeated = i > 0 && row.cells.size() == 1;  // no budget: the same answer for all
      cells.push_back(repeated ? "" : cell_text(row.cells[i]));
    }
    text += line(cells);
  }
  return text;
}

std::string needle_depth_table(const std::vector<std::string>& budgets, const std::vector<NeedleRow>& rows,
                               int depths) {
  std::vector<std::string> header{"policy", "N"};
  for (int depth = 0; depth < depths; ++depth) {
    header.push_back(std::to_string(static_cast<int>(100 * (depth + 0.5) / depths)) + " %");
  }
  std::string text = head(header);
  for (const NeedleRow& row : rows) {
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      const NeedleCell& cell = row.cells[i];
      std::vector<std::string> cells{code(row.policy), row.cells.size() == 1 ? "all" : budgets[i]};
      for (int depth = 0; depth < depths; ++depth) {
        const auto exact = cell.exact_by_depth.find(depth);
        cells.push_back(exact == cell.exact_by_depth.end() ? "–" : std::to_string(exact->second));
      }
      text += line(cells);
    }
  }
  return text;
}

}  // namespace keynest::bench
