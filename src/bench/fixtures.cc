#include "bench/fixtures.h"

#include <cmath>
#include <random>

#include "kernels/rows.h"

namespace keynest::bench {
namespace {

std::size_t pages_of(int rows) { return size((rows + kPageRows - 1) / kPageRows); }

}  // namespace

std::vector<float> normal_numbers(std::size_t count) {
  constexpr std::size_t kDistinct = 40009;  // a prime, so that rows of any length differ
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (std::size_t i = 0; i < count; ++i)
    numbers[i] = i < kDistinct ? normal(random) : numbers[i - kDistinct];
  return numbers;
}

Aligned::Aligned(std::size_t bytes) : memory_(bytes + kPageAlignment), start_(memory_.data()) {
  std::size_t space = memory_.size();
  std::align(kPageAlignment, bytes, start_, space);
}

Heads::Heads(const PageLayout& layout, int heads, int rows)
    : layout_(layout), memory_(pages_of(rows) * layout.bytes * size(heads)), pages_(size(heads)) {
  const std::size_t d = size(layout.head_dim);
  const auto numbers = normal_numbers(size(rows) * d);
  std::vector<Position> positions;
  positions.reserve(size(rows));
  for (int i = 0; i < rows; ++i) positions.push_back(Position{i});
  std::byte* next = memory_.data();
  for (auto& list : pages_) {
    for (std::size_t i = 0; i < pages_of(rows); ++i, next += layout_.bytes) list.push_back(next);
    views_.push_back({&layout_, list.data(), rows});
    write_rows(views_.back(), Row{0}, rows, numbers.data(), d, numbers.data(), d, positions.data());
  }
}

double Heads::key_bytes() const {
  const double row = static_cast<double>(row_bytes(layout_.type, layout_.head_dim));
  return row * views_[0].rows * static_cast<double>(views_.size());
}

HeadQueries::HeadQueries(const Heads& heads, int tokens, int group) {
  const int head_dim = heads.layout().head_dim, rows = heads.views()[0].rows;
  const std::size_t per_head = size(tokens) * size(group), d = size(head_dim);
  queries_ = normal_numbers(per_head * heads.views().size() * d);
  out_.resize(queries_.size());
  row_max_.resize(per_head * heads.views().size());
  row_sum_.resize(row_max_.size());
  for (int t = 0; t < tokens; ++t) positions_.push_back(Position{rows - tokens + t});
  for (std::size_t h = 0; h < heads.views().size(); ++h) {
    QueryBlock block;
    block.queries = queries_.data() + h * per_head * d;
    block.out = out_.data() + h * per_head * d;
    block.token_stride = block.out_token_stride = size(group) * d;
    block.head_stride = block.out_head_stride = d;
    block.tokens = tokens;
    block.group = group;
    block.positions = positions_.data();
    block.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    block.row_max = row_max_.data() + h * per_head;
    block.row_sum = row_sum_.data() + h * per_head;
    blocks_.push_back(block);
  }
}

double attention_flops(int head_dim, int rows, int tokens, int group) {
  const double pairs = static_cast<double>(rows - tokens) * tokens + 0.5 * tokens * (tokens + 1);
  return 4.0 * head_dim * group * pairs;
}

}  // namespace keynest::bench
