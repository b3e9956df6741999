// Golden data: cases of a folder with their parameters and arrays. Layout in the folder's README.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace keynest::golden {

/// Any stored array, as double.
struct Array {
  std::vector<std::int64_t> shape;
  std::vector<double> data;

  /// The part at `index` of the first axis.
  Array at(std::size_t index) const;
  std::vector<float> floats() const { return {data.begin(), data.end()}; }
  bool empty() const { return data.empty(); }
};

struct Stream {
  std::string name;
  std::int32_t budget = 0, window = 0, announced = 0, episode = 0;
  std::vector<std::int32_t> lengths;
};

struct Case {
  std::string folder, name;
  bool degenerate = false;
  std::int32_t tokens = 0, head_dim = 0, kv_heads = 0, query_heads = 0;
  std::vector<double> ratios;
  std::vector<std::int32_t> budgets;  ///< of each ratio
  std::int32_t snapkv_window = 0, snapkv_kernel = 0, layer = 0, layers = 1;
  std::vector<Stream> streams;

  bool has(const std::string& array) const;
  /// Fails the running test when the file is missing or damaged.
  Array load(const std::string& array) const;
};

inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

struct PyramidTable {
  std::vector<std::int64_t> lengths;
  std::vector<double> ratios;
  std::int32_t layers = 0;
  double window = 0, beta = 0;
  Array budgets;  ///< [length, ratio, layer]
};

/// Folders with a manifest: the fixture in the repository, and the whole set where it is
/// (KEYNEST_GOLDEN_DIR).
std::vector<std::string> folders();
/// The folder of the whole set, present or not.
std::string whole_set();

std::vector<Case> cases();
PyramidTable pyramid_table(const std::string& folder);

}  // namespace keynest::golden
