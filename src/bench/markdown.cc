#include "bench/markdown.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace keynest::bench {
namespace {

std::string number(double value) {
  const double size = std::abs(value);
  const int digits = size < 1 ? 3 : size < 10 ? 2 : size < 100 ? 1 : 0;
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string line(const std::vector<std::string>& cells, const std::vector<bool>& shown) {
  std::string text = "|";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (shown[i]) text += " " + cells[i] + " |";
  }
  return text + "\n";
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string spread(std::vector<double> values) {
  if (values.empty()) return {};
  if (values.size() == 1) return number(values[0]);
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return number(*least) + " / **" + number(median(values)) + "** / " + number(*most);
}

std::vector<double> ratios(const std::vector<double>& above, const std::vector<double>& below) {
  std::vector<double> values;
  for (std::size_t i = 0; i < std::min(above.size(), below.size()); ++i) {
    if (below[i] > 0) values.push_back(above[i] / below[i]);
  }
  return values;
}

std::vector<double> times(std::vector<double> values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

std::string Table::print() const {
  if (rows.empty()) return {};
  std::vector<bool> shown(header.size(), false);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) shown[i] = shown[i] || !row[i].empty();
  }
  std::string text = title + "\n\n" + line(header, shown);
  text += line(std::vector<std::string>(header.size(), "---"), shown);
  for (const auto& row : rows) text += line(row, shown);
  return text;
}

}  // namespace keynest::bench
