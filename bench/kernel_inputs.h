// Heads and queries that kernels are measured with: normal numbers, the same at every run.
#pragma once

#include <cmath>
#include <cstddef>
#include <memory>
#include <random>
#include <vector>

#include "kernels/attention.h"
#include "kernels/rows.h"

namespace keynest::bench {

using Floats = std::vector<float>;

inline Floats normal_floats(std::size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Floats numbers(count);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

/// A head of `rows` entries at positions 0, 1, ... in pages of its own.
struct Head {
  PageLayout layout;
  std::vector<std::byte> memory;
  std::vector<std::byte*> pages;
  int rows;

  Head(KvType type, int head_dim, int count) : layout(PageLayout::make(type, head_dim, 0)), rows(count) {
    const auto page_count = static_cast<std::size_t>((rows + kPageRows - 1) / kPageRows);
    memory.resize(page_count * layout.bytes + kPageAlignment);
    void* start = memory.data();
    std::size_t space = memory.size();
    std::align(kPageAlignment, page_count * layout.bytes, start, space);
    for (std::size_t i = 0; i < page_count; ++i)
      pages.push_back(static_cast<std::byte*>(start) + i * layout.bytes);
    const auto d = static_cast<std::size_t>(head_dim);
    const Floats numbers = normal_floats(static_cast<std::size_t>(rows) * d);
    std::vector<Position> positions;
    for (int i = 0; i < rows; ++i) positions.push_back(Position{i});
    write_rows(view(), Row{0}, rows, numbers.data(), d, numbers.data(), d, positions.data());
  }
  HeadRows view() const { return {&layout, pages.data(), rows}; }
};

/// The last `tokens` tokens of a head as queries.
struct Queries {
  Floats queries, out;
  std::vector<Position> positions;
  QueryBlock block;

  Queries(const Head& head, int tokens, int group) {
    const auto d = static_cast<std::size_t>(head.layout.head_dim), heads = static_cast<std::size_t>(group);
    queries = normal_floats(static_cast<std::size_t>(tokens) * heads * d);
    out.resize(queries.size());
    for (int t = 0; t < tokens; ++t) positions.push_back(Position{head.rows - tokens + t});
    block.queries = queries.data();
    block.token_stride = block.out_token_stride = heads * d;
    block.head_stride = block.out_head_stride = d;
    block.tokens = tokens;
    block.group = group;
    block.positions = positions.data();
    block.scale = 1.0f / std::sqrt(static_cast<float>(head.layout.head_dim));
    block.out = out.data();
  }
};

}  // namespace keynest::bench
