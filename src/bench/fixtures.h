// Data for the kernel benchmarks: numbers, aligned memory, one head in pages, a block of queries.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/attention.h"
#include "kernels/page.h"

namespace keynest::bench {

inline std::size_t size(int n) { return static_cast<std::size_t>(n); }

/// Normal numbers, the same every time.
std::vector<float> normal_numbers(std::size_t count);

/// Memory whose start is aligned as pages and scratch ask for.
class Aligned {
 public:
  explicit Aligned(std::size_t bytes);
  std::byte* data() const { return static_cast<std::byte*>(start_); }

 private:
  std::vector<std::byte> memory_;
  void* start_;
};

/// KV heads of `rows` entries each at positions 0, 1, ..., in pages of their own.
class Heads {
 public:
  Heads(const PageLayout& layout, int heads, int rows);
  Heads(const Heads&) = delete;
  Heads& operator=(const Heads&) = delete;

  const PageLayout& layout() const { return layout_; }
  const std::vector<HeadRows>& views() const { return views_; }
  /// Bytes of the keys of all heads.
  double key_bytes() const;

 private:
  PageLayout layout_;
  Aligned memory_;
  std::vector<std::vector<std::byte*>> pages_;
  std::vector<HeadRows> views_;
};

/// The last `tokens` tokens of every head as queries, with room for results and statistics.
class HeadQueries {
 public:
  HeadQueries(const Heads& heads, int tokens, int group);
  HeadQueries(const HeadQueries&) = delete;
  HeadQueries& operator=(const HeadQueries&) = delete;

  const std::vector<QueryBlock>& blocks() const { return blocks_; }  ///< [heads]

 private:
  std::vector<float> queries_, out_, row_max_, row_sum_;
  std::vector<Position> positions_;
  std::vector<QueryBlock> blocks_;
};

/// Operations of attention: 4 * head_dim for every (query, visible key).
double attention_flops(int head_dim, int rows, int tokens, int group);

}  // namespace keynest::bench
