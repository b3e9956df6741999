// Products with rows of F16 and BF16 against sums in double over the same numbers, on every SIMD target.
#include "kernels/half_dots.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/kernel_test.h"
#include "kernels/numbers.h"

namespace keynest {
namespace {

class HalfDots : public EveryTarget {};

struct Sum {
  double value = 0, of_sizes = 0;
};

Sum exact(const std::uint16_t* row, WeightFormat format, const float* x, int columns) {
  Sum sum;
  for (int i = 0; i < columns; ++i) {
    const double weight = format == WeightFormat::kF16 ? from_f16(row[i]) : from_bf16(row[i]);
    sum.value += weight * x[i];
    sum.of_sizes += std::abs(weight * x[i]);
  }
  return sum;
}

void expect_products(WeightFormat format, int columns, int tokens, std::mt19937& random) {
  constexpr int kRows = 7, kFirst = 2, kTaken = 4, kStride = 9;
  std::vector<std::uint16_t> stored;
  for (const float weight : normal_floats(random, static_cast<std::size_t>(kRows * columns))) {
    stored.push_back(format == WeightFormat::kF16 ? to_f16(weight) : to_bf16(weight));
  }
  const std::vector<float> x = normal_floats(random, static_cast<std::size_t>(tokens * columns));
  const WeightMatrix weights{reinterpret_cast<const std::byte*>(stored.data()),
                             static_cast<std::size_t>(columns) * 2,
                             kRows,
                             columns,
                             format,
                             nullptr};
  const float untouched = std::numeric_limits<float>::infinity();
  std::vector<float> out(static_cast<std::size_t>(tokens * kStride), untouched);
  half_dots(weights, kFirst, kTaken, x.data(), tokens, out.data(), kStride);
  for (int token = 0; token < tokens; ++token) {
    for (int row = 0; row < kStride; ++row) {
      const float got = out[static_cast<std::size_t>(token * kStride + row)];
      if (row < kFirst || row >= kFirst + kTaken) {
        ASSERT_EQ(got, untouched) << "row " << row;
        continue;
      }
      const Sum sum = exact(stored.data() + row * columns, format, x.data() + token * columns, columns);
      ASSERT_NEAR(got, sum.value, 3e-7 * sum.of_sizes) << columns << " columns, token " << token;
    }
  }
}

TEST_P(HalfDots, EqualSumsInDouble) {
  std::mt19937 random(5);
  for (const WeightFormat format : {WeightFormat::kF16, WeightFormat::kBF16}) {
    ASSERT_TRUE(half_dots_supported(format));
    for (const int columns : {32, 64, 96, 896, 1056}) {
      for (const int tokens : {1, 2, 3, 4, 5, 11}) expect_products(format, columns, tokens, random);
    }
  }
}

TEST(HalfDotsFormats, NothingElseIsTaken) {
  for (const WeightFormat format : {WeightFormat::kOther, WeightFormat::kQ8_0, WeightFormat::kQ4_K}) {
    EXPECT_FALSE(half_dots_supported(format));
  }
}

KEYNEST_EVERY_TARGET(HalfDots);

}  // namespace
}  // namespace keynest
