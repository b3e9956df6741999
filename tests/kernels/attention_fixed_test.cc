// Attention of blocks of 16 rows and more, which on CPUs with AVX-512 VNNI is computed in 16-bit integers
// unless the cache is float. The bounds hold for float too; rounding to BF16 once would break them ten times
// over.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/attention_twin.h"
#include "kernels/kernel_test.h"
#include "kernels/numbers.h"
#include "kernels/simd_targets.h"

namespace keynest {
namespace {

using Floats = std::vector<float>;

/// Root mean square of the outputs' errors by that of the exact outputs; NaN where an output is not finite.
double relative_error(Problem& p) {
  const std::vector<double> keys = p.head.keys(), values = p.head.values();
  double errors = 0, exact = 0;
  for (int token = 0; token < p.c.tokens; ++token) {
    for (int member = 0; member < p.c.group; ++member) {
      const Expected e = attend_one(p, keys, values, token, member);
      for (int dim = 0; dim < p.c.head_dim; ++dim) {
        const double out = e.out[static_cast<std::size_t>(dim)], error = p.out_at(token, member, dim) - out;
        errors += error * error;
        exact += out * out;
      }
    }
  }
  return exact > 0 ? std::sqrt(errors / exact) : std::sqrt(errors);
}

constexpr double kBound = 2e-4;

void expect_close(Problem& p, double bound = kBound) {
  p.attend(0, p.c.tokens);
  EXPECT_LT(relative_error(p), bound) << describe(p.c);
}

Floats normal_numbers(const Problem& p, std::mt19937& random) {
  return normal_floats(random, static_cast<std::size_t>(p.c.rows) * static_cast<std::size_t>(p.c.head_dim));
}

/// Dimension `dim` of all rows = mean + spread times what it was.
void move_dimension(const Problem& p, int dim, float mean, float spread, Floats& numbers) {
  for (int row = 0; row < p.c.rows; ++row) {
    float& x = numbers[static_cast<std::size_t>(row * p.c.head_dim + dim)];
    x = mean + spread * x;
  }
}

using FixedAttention = EveryTarget;
KEYNEST_EVERY_TARGET(FixedAttention);

TEST_P(FixedAttention, TypesAndHeadSizes) {
  std::mt19937 random(1);
  for (const KvType type : {KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    for (const int d : {8, 16, 64, 72, 80, 96, 128, 256}) {
      if (type == KvType::kQ8_0 && d % 32 != 0) continue;
      Problem p({type, d, 200, 3, 17, 0}, random);
      expect_close(p);
    }
  }
}

TEST_P(FixedAttention, GroupsAndTiles) {
  std::mt19937 random(2);
  for (int group = 1; group <= 8; ++group) {
    for (const int tokens : {16, 70}) {
      Problem p({KvType::kF16, 64, 400, group, tokens, 0}, random);
      expect_close(p);
    }
  }
}

TEST_P(FixedAttention, PartialPagesAndWindows) {
  std::mt19937 random(3);
  for (const int rows : {20, 63, 64, 65, 81, 97, 120, 300}) {
    for (const int window : {0, 20, 100}) {
      Problem p({KvType::kF16, 64, rows, 2, 20, window}, random);
      expect_close(p);
    }
  }
}

TEST_P(FixedAttention, FlatAndPeaked) {
  std::mt19937 random(4);
  for (const float logits : {0.0f, 0.1f, 1.0f, 4.0f, 12.0f}) {
    Problem p({KvType::kF16, 64, 700, 2, 30, 0}, random);
    p.block.scale *= logits;
    expect_close(p, 3e-4);
  }
}

// Qwen2.5 has them. What a key of 300 is rounded by when it is stored as f16 moves its logits 5 times as far
// as is allowed here.
TEST_P(FixedAttention, LargeDimensionsOfKeys) {
  std::mt19937 random(5);
  Problem p({KvType::kF16, 64, 500, 4, 30, 0}, random);
  Floats keys = normal_numbers(p, random);
  move_dimension(p, 3, 300, 5, keys);
  move_dimension(p, 40, -90, 2, keys);
  p.rewrite(keys, normal_numbers(p, random));
  expect_close(p, 1.5e-3);
}

// A dimension's error follows its own size.
TEST_P(FixedAttention, LargeAndSmallDimensionsOfValues) {
  std::mt19937 random(6);
  Problem p({KvType::kF16, 64, 500, 4, 30, 0}, random);
  Floats values = normal_numbers(p, random);
  move_dimension(p, 0, 0, 1e-4f, values);
  move_dimension(p, 1, 0, 1000, values);
  move_dimension(p, 2, 500, 0, values);
  p.rewrite(normal_numbers(p, random), values);
  p.attend(0, p.c.tokens);
  const std::vector<double> decoded_keys = p.head.keys(), decoded_values = p.head.values();
  for (int token = 0; token < p.c.tokens; ++token) {
    const Expected e = attend_one(p, decoded_keys, decoded_values, token, 1);
    ASSERT_NEAR(p.out_at(token, 1, 0), e.out[0], 1e-4 * 2e-4);
    ASSERT_NEAR(p.out_at(token, 1, 1), e.out[1], 1000 * 2e-4);
    ASSERT_NEAR(p.out_at(token, 1, 2), 500, 500 * 1e-6) << "weights do not sum to one";
  }
}

// Sums as large as they can be: every number is the largest, all signs agree.
TEST_P(FixedAttention, SumsDoNotOverflow) {
  std::mt19937 random(7);
  for (const int d : {64, 128}) {
    for (const float key : {1.0f, 1.9990234f, -1.9990234f}) {
      Problem p({KvType::kF16, d, 256, 2, 16, 0}, random);
      const Floats keys(static_cast<std::size_t>(256 * d), key);
      p.rewrite(keys, keys);
      std::fill(p.queries.begin(), p.queries.end(), key);
      expect_close(p, 1e-6);
      EXPECT_NEAR(p.row_max[0], key * key * std::sqrt(static_cast<float>(d)), 1e-3);
      p.queries[0] = 1e6f;  // one number that is most of its query
      expect_close(p, 1e-6);
    }
  }
}

TEST_P(FixedAttention, HugeAndTinyNumbers) {
  std::mt19937 random(8);
  for (const float huge : {1e4f, 1e15f, 1e30f}) {
    for (const float key : {huge, 1 / huge}) {
      for (const float value : {huge, 1 / huge}) {
        Problem p({KvType::kBF16, 64, 200, 2, 20, 0}, random);
        Floats keys = normal_numbers(p, random), values = normal_numbers(p, random);
        for (float& x : keys) x *= key;
        for (float& x : values) x *= value;
        p.rewrite(keys, values);
        for (float& x : p.queries) x /= key;
        expect_close(p);
      }
    }
  }
}

TEST_P(FixedAttention, Zeros) {
  std::mt19937 random(9);
  Problem p({KvType::kF16, 64, 200, 2, 20, 0}, random);
  const Floats zeros(200 * 64, 0.0f), numbers = normal_numbers(p, random);
  p.rewrite(zeros, numbers);
  expect_close(p);
  p.rewrite(numbers, zeros);
  expect_close(p, 1e-30);
  p.rewrite(numbers, numbers);
  std::fill(p.queries.begin(), p.queries.end(), 0.0f);
  expect_close(p);
}

TEST_P(FixedAttention, RowsThatSeeNothing) {
  std::mt19937 random(10);
  Problem p({KvType::kF16, 64, 192, 2, 20, 0}, random);
  // The first queries see nothing, the others one page, which is not the first.
  for (int row = 0; row < 192; ++row)
    p.head.view().positions(row / 64)[row % 64] = Position{row / 64 == 1 ? 1000 + row : 5000 + row};
  for (int t = 0; t < 20; ++t)
    p.query_positions[static_cast<std::size_t>(t)] = Position{(t < 10 ? 500 : 2000) + t};
  p.attend(0, 20);
  for (int dim = 0; dim < 64; ++dim) ASSERT_EQ(p.out_at(9, 1, dim), 0.0f);
  EXPECT_EQ(p.row_max[19], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(p.row_sum[19], 0.0f);
  const Expected e = attend_one(p, p.head.keys(), p.head.values(), 10, 0);
  for (int dim = 0; dim < 64; ++dim)
    ASSERT_NEAR(p.out_at(10, 0, dim), e.out[static_cast<std::size_t>(dim)], 2e-4);
}

TEST_P(FixedAttention, NumbersThatAreNotFiniteSpoilNoOthers) {
  std::mt19937 random(11);
  const float infinite = std::numeric_limits<float>::infinity();
  for (const float bad : {infinite, -infinite, std::numeric_limits<float>::quiet_NaN()}) {
    Problem p({KvType::kF16, 64, 200, 1, 20, 0}, random);
    const float good = std::exchange(p.queries[5 * 64 + 7], bad);
    const auto attend_without_that_one = [&p] {
      p.attend(0, 20);
      for (int dim = 0; dim < 64; ++dim) p.out_at(5, 0, dim) = 0;
      return p.out;
    };
    const Floats spoilt = attend_without_that_one();
    p.queries[5 * 64 + 7] = good;
    EXPECT_EQ(spoilt, attend_without_that_one()) << bad;

    // A dimension of the values, and the queries that see a key.
    Floats keys = normal_numbers(p, random), values = normal_numbers(p, random);
    values[100 * 64 + 7] = bad;
    p.rewrite(keys, values);
    p.attend(0, 20);
    EXPECT_TRUE(std::isfinite(p.out_at(19, 0, 6)) && std::isfinite(p.out_at(19, 0, 8))) << bad;
    values[100 * 64 + 7] = 0;
    keys[100 * 64 + 7] = bad;
    p.rewrite(keys, values);
    p.head.view().positions(1)[100 % 64] = p.query_positions[10];
    p.attend(0, 20);
    EXPECT_TRUE(std::isfinite(p.out_at(9, 0, 8))) << bad;
  }
}

// Units follow what is held, nothing else.
TEST_P(FixedAttention, MemoryOfRowsNotWrittenDoesNotMatter) {
  std::mt19937 random(13);
  const int d = 72, held = 100 - kPageRows;
  Problem p({KvType::kF16, d, 100, 2, 20, 0}, random);
  // The vectors that hold a row's last dimensions hold the first of the next row too.
  Floats values = normal_numbers(p, random);
  for (int dim = 0; dim < 8; ++dim) move_dimension(p, dim, 1.5f, 0, values);
  p.rewrite(normal_numbers(p, random), values);
  p.attend(0, 20);
  const Floats before = p.out;
  auto* keys = reinterpret_cast<std::uint16_t*>(p.head.view().keys(1));
  auto* stored = reinterpret_cast<std::uint16_t*>(p.head.view().values(1));
  for (int row = held; row < kPageRows; ++row) {
    for (int dim = 0; dim < d; ++dim) {
      keys[dim * kPageRows + row] = to_f16(1000);
      stored[row * d + dim] = to_f16(1.9f);
    }
  }
  p.attend(0, 20);
  EXPECT_EQ(before, p.out);
}

bool multiplies_pairs_of_integers(std::int64_t target) {
#if defined(__x86_64__)
  return target <= HWY_AVX3 && __builtin_cpu_supports("avx512vnni") != 0;
#else
  return target < 0;
#endif
}

TEST_P(FixedAttention, IsForManyRowsOfNumbersStoredInFewBits) {
  std::mt19937 random(12);
  const bool has_it = multiplies_pairs_of_integers(GetParam());
  const auto takes = [&](KvType type, int tokens, int group) {
    const Problem p({type, 64, 100, group, tokens, 0}, random);
    return attends_in_fixed_point(p.head.layout(), p.block);
  };
  for (const KvType type : {KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    EXPECT_EQ(takes(type, 8, 2), has_it);
    EXPECT_FALSE(takes(type, 5, 3));
  }
  EXPECT_FALSE(takes(KvType::kF32, 8, 2));
}

}  // namespace
}  // namespace keynest
