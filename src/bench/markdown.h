// Markdown tables of figures that were measured several times.
#pragma once

#include <string>
#include <vector>

namespace keynest::bench {

/// "min / **median** / max" with three significant digits, three decimals below 1; the figure alone where
/// there is one; "" for none.
std::string spread(std::vector<double> values);

double median(std::vector<double> values);

/// above[i] / below[i]: figures of the same rounds. Ends with the shorter of the two.
std::vector<double> ratios(const std::vector<double>& above, const std::vector<double>& below);

std::vector<double> times(std::vector<double> values, double factor);

struct Table {
  std::string title;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;

  /// With a title line before it; columns that are empty in every row are left out. "" without rows.
  std::string print() const;
};

}  // namespace keynest::bench
