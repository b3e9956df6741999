// KeyDiff's scoring of a head takes no more floating-point operations than its paper states (arXiv
// 2504.15364): (12 d + 97) n + 3 d + 94 for n keys of d numbers. Counted, not timed: a scalar twin of what
// the policy runs, page by page and lane by lane, over numbers that count.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/replay.h"
#include "kernels/page.h"

namespace keynest {
namespace {

std::int64_t operations = 0;

/// A number that counts what is done with it; comparisons count as operations too.
template <typename T>
struct Counted {
  T value = 0;

  Counted() = default;
  Counted(T number) : value(number) {}
  template <typename Other>
  explicit Counted(Counted<Other> other) : value(static_cast<T>(other.value)) {}

  friend Counted operator+(Counted a, Counted b) { return ++operations, a.value + b.value; }
  friend Counted operator*(Counted a, Counted b) { return ++operations, a.value * b.value; }
  friend Counted operator/(Counted a, Counted b) { return ++operations, a.value / b.value; }
  friend Counted operator-(Counted a) { return ++operations, -a.value; }
  friend Counted sqrt(Counted a) { return ++operations, std::sqrt(a.value); }
  friend Counted max(Counted a, Counted b) { return ++operations, std::max(a.value, b.value); }
  friend Counted min(Counted a, Counted b) { return ++operations, std::min(a.value, b.value); }
};

using Float = Counted<float>;
using Double = Counted<double>;
using Integer = Counted<std::int64_t>;

// As kernels/key_chunks-inl.h has it.
constexpr int kChunkDims = 32;

std::size_t size(int n) { return static_cast<std::size_t>(n); }

/// A head's keys: whole pages, the rows beyond the last key zero. Key i's dimension j is at [i / 64][j][i %
/// 64].
struct Keys {
  int n, d, lanes;
  std::vector<float> numbers;  // [pages, d, 64]

  Keys(const std::vector<float>& rows, int count, int dim, int simd_lanes)
      : n(count), d(dim), lanes(simd_lanes), numbers(size(pages()) * size(d) * kPageRows, 0.0f) {
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < d; ++j) numbers[at(i, j)] = rows[static_cast<std::size_t>(i * d + j)];
    }
  }
  int pages() const { return (n + kPageRows - 1) / kPageRows; }
  std::size_t at(int row, int dim) const {
    return (size(row / kPageRows) * size(d) + size(dim)) * kPageRows + size(row % kPageRows);
  }
  Float key(int row, int dim) const { return numbers[at(row, dim)]; }
};

/// rows.cc: 1 / max(|key|, 1e-12) of every key, once per key when it arrives.
std::vector<Float> inverse_norms(const Keys& keys) {
  std::vector<Float> inverse(static_cast<std::size_t>(keys.pages() * kPageRows));
  for (int row = 0; row < keys.n; ++row) {
    Double square = 0;
    for (int dim = 0; dim < keys.d; ++dim) {
      const Double x(keys.key(row, dim));
      square = square + x * x;
    }
    inverse[static_cast<std::size_t>(row)] = Float(Double(1) / max(sqrt(square), Double(1e-12)));
  }
  return inverse;
}

/// The nearest integer.
Integer nearest(Float x) { return ++operations, static_cast<std::int64_t>(std::nearbyint(x.value)); }

/// sum_unit_keys of one dimension: products as integers into lanes, those of every few pages into wider ones.
/// scales: inverse norms in units of the sum.
Double sum_of_dimension(const Keys& keys, const std::vector<Float>& scales, int dim) {
  const auto lanes = static_cast<std::size_t>(keys.lanes);
  std::vector<Integer> narrow(lanes), wide(lanes / 2);
  for (int page = 0; page < keys.pages(); ++page) {
    for (int row = 0; row < kPageRows; ++row) {
      const int key = page * kPageRows + row;
      if (key - row % keys.lanes >= keys.n) break;  // whole vectors
      Integer& sum = narrow[static_cast<std::size_t>(row) % lanes];
      sum = sum + nearest(keys.key(key, dim) * scales[static_cast<std::size_t>(key)]);
    }
    if ((page + 1) % (keys.lanes / 4) != 0 && page + 1 < keys.pages()) continue;
    for (std::size_t i = 0; i < lanes; ++i) wide[i % wide.size()] = wide[i % wide.size()] + narrow[i];
    std::fill(narrow.begin(), narrow.end(), Integer());
  }
  Integer sum = 0;
  for (const Integer lane : wide) sum = sum + lane;
  return Double(sum) * Double(0x1p-26);
}

/// cosine_keys of one row: dot product in float over 32 dimensions at a time, those added in double.
Float cosine(const Keys& keys, const std::vector<Float>& inverse, const std::vector<Float>& anchor, int row,
             Double anchor_factor) {
  Double sum = 0;
  for (int first = 0; first < keys.d; first += kChunkDims) {
    Float part = 0;
    for (int dim = first; dim < std::min(first + kChunkDims, keys.d); ++dim) {
      part = part + keys.key(row, dim) * anchor[static_cast<std::size_t>(dim)];
    }
    sum = sum + Double(part);
  }
  const Double key_factor = min(Double(inverse[static_cast<std::size_t>(row)]), Double(1e8));
  return Float(sum * key_factor * anchor_factor);
}

/// The whole of it: norms, anchor, scores. [n]
std::vector<float> counted_scores(const Keys& keys) {
  const std::vector<Float> inverse = inverse_norms(keys);
  std::vector<Float> anchor;
  std::vector<Float> scales(inverse.size());
  for (int dim = 0; dim < keys.d; ++dim) {
    for (std::size_t i = 0; i < scales.size() && dim % kChunkDims == 0; ++i)
      scales[i] = inverse[i] * Float(0x1p26f);
    const Double mean = sum_of_dimension(keys, scales, dim) / Double(keys.n);
    anchor.push_back(-Float(mean));
  }
  Double square = 0;
  for (const Float x : anchor) square = square + Double(x) * Double(x);
  const Double anchor_factor = Double(1) / max(sqrt(square), Double(1e-8));
  std::vector<float> scores;
  for (int row = 0; row < keys.pages() * kPageRows; ++row) {
    const Float score = cosine(keys, inverse, anchor, row, anchor_factor);
    if (row < keys.n) scores.push_back(score.value);
  }
  return scores;
}

std::int64_t paper_bound(std::int64_t n, std::int64_t d) { return (12 * d + 97) * n + 3 * d + 94; }

std::vector<float> random_keys(int n, int d) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.3f);
  std::vector<float> keys(static_cast<std::size_t>(n * d));
  for (float& x : keys) x = normal(random);
  return keys;
}

// From a page on: below that, lanes that hold no key would be counted for nothing.
TEST(KeyDiffOperations, AreWithinThePapersCount) {
  for (const int n : {64, 65, 200, 1152, 2176}) {
    for (const int d : {64, 72, 80, 128, 256}) {
      for (const int lanes : {4, 8, 16}) {
        SCOPED_TRACE("n=" + std::to_string(n) + " d=" + std::to_string(d) +
                     " lanes=" + std::to_string(lanes));
        const Keys keys(random_keys(n, d), n, d, lanes);
        operations = 0;
        counted_scores(keys);
        EXPECT_LE(operations, paper_bound(n, d));
        EXPECT_GE(operations, 4 * static_cast<std::int64_t>(n) * d);  // two passes at least: it does count
      }
    }
  }
}

TEST(KeyDiffOperations, AreThoseOfThePolicy) {
  for (const int n : {64, 200, 300}) {
    const int d = 80;
    const std::vector<float> keys = random_keys(n, d);
    LayerTensors tensors;
    tensors.keys = keys;
    tensors.kv_heads = 1;
    tensors.tokens = n;
    tensors.head_dim = d;
    const auto scores = one_shot_scores(*PolicySpec::parse("keydiff"), tensors, {});
    ASSERT_TRUE(scores.ok()) << scores.error().message;
    const std::vector<float> twin = counted_scores(Keys(keys, n, d, 16));
    for (std::size_t i = 0; i < twin.size(); ++i) EXPECT_NEAR(scores->front()[i], twin[i], 2e-6) << i;
  }
}

}  // namespace
}  // namespace keynest
