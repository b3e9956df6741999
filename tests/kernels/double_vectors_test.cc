// Vectors of doubles against scalar twins, on every SIMD target.
#include "kernels/double_vectors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/kernel_test.h"

namespace keynest {
namespace {

using Doubles = std::vector<double>;
using DoubleVectorsTest = EveryTarget;
KEYNEST_EVERY_TARGET(DoubleVectorsTest);

constexpr std::size_t kSizes[] = {1, 2, 7, 8, 9, 31, 64, 100, 1000};

Doubles random_doubles(std::mt19937& random, std::size_t n) {
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  Doubles x(n);
  for (double& value : x) value = uniform(random);
  return x;
}

TEST_P(DoubleVectorsTest, SumsAndProducts) {
  std::mt19937 random(1);
  for (const std::size_t n : kSizes) {
    const Doubles x = random_doubles(random, n), y = random_doubles(random, n);
    Doubles sum = y, difference = y, scaled(n);
    add_doubles(x.data(), n, sum.data());
    subtract_doubles(x.data(), n, difference.data());
    scale_doubles(x.data(), 0.3, n, scaled.data());
    double xx = 0, xy = 0, yy = 0;
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(sum[i], y[i] + x[i]);
      EXPECT_EQ(difference[i], y[i] - x[i]);
      EXPECT_EQ(scaled[i], x[i] * 0.3);
      xx += x[i] * x[i];
      xy += x[i] * y[i];
      yy += y[i] * y[i];
    }
    const DotProducts dots = dot_products(x.data(), y.data(), n);
    EXPECT_NEAR(dots.xx, xx, 1e-14 * xx);
    EXPECT_NEAR(dots.xy, xy, 1e-14 * xy);
    EXPECT_NEAR(dots.yy, yy, 1e-14 * yy);
    const auto count = static_cast<double>(n);
    EXPECT_NEAR(mean_of_doubles(x.data(), n), std::accumulate(x.begin(), x.end(), 0.0) / count, 1e-14);
  }
}

TEST_P(DoubleVectorsTest, StretchToUnit) {
  std::mt19937 random(2);
  for (const std::size_t n : kSizes) {
    const Doubles x = random_doubles(random, n);
    Doubles out(n, 9.0);
    stretch_to_unit(x.data(), 1e-12, n, out.data());
    const auto [low, high] = std::minmax_element(x.begin(), x.end());
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(out[i], n == 1 ? 0.0 : (x[i] - *low) / (*high - *low));
  }
  const Doubles flat = {0.5, 0.5 + 1e-13, 0.5};
  Doubles out(3, 9.0);
  stretch_to_unit(flat.data(), 1e-12, 3, out.data());
  EXPECT_EQ(out, (Doubles{0, 0, 0}));
}

/// Means of the ends of a sorted copy.
void expect_ends(const Doubles& x, std::size_t count) {
  Doubles sorted = x;
  std::sort(sorted.begin(), sorted.end());
  const auto part = static_cast<std::ptrdiff_t>(count);
  const double smallest = std::accumulate(sorted.begin(), sorted.begin() + part, 0.0);
  const double largest = std::accumulate(sorted.end() - part, sorted.end(), 0.0);
  const auto number = static_cast<double>(count);
  EXPECT_NEAR(mean_of_smallest(x.data(), count, x.size()), smallest / number, 1e-14) << count;
  EXPECT_NEAR(mean_of_largest(x.data(), count, x.size()), largest / number, 1e-14) << count;
}

TEST_P(DoubleVectorsTest, MeansOfEnds) {
  std::mt19937 random(3);
  for (const std::size_t n : kSizes) {
    Doubles x = random_doubles(random, n);
    for (int round = 0; round < 4; ++round) {
      for (const std::size_t count : {std::size_t{1}, std::max<std::size_t>(1, n / 10), n})
        expect_ends(x, count);
      // The next rounds: bent to one end, then ever more equal numbers.
      for (double& value : x) value = round == 0 ? std::pow(value, 9) : std::floor(value * 16 / round) / 16;
    }
  }
}

TEST_P(DoubleVectorsTest, MeansOfEqualAndNearlyEqualNumbers) {
  for (const double value : {0.0, 1e-300, 0.1, 1.0}) expect_ends(Doubles(100, value), 10);
  Doubles x(100, 1.0);
  std::fill(x.begin(), x.begin() + 50, 0.0);
  for (const std::size_t count : {1, 10, 50, 51, 100}) expect_ends(x, count);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1.0 - 1e-16 * static_cast<double>(i);
  expect_ends(x, 10);
  const Doubles nothing(100, std::numeric_limits<double>::quiet_NaN());
  mean_of_smallest(nothing.data(), 10, 100);  // comes to an end
  mean_of_largest(nothing.data(), 10, 100);
}

TEST_P(DoubleVectorsTest, MixedScales) {
  std::mt19937 random(4);
  const std::array<double, kMaxScales> weights = {0.5, 0.3, 0.2};
  for (const std::size_t n : kSizes) {
    const std::array<Doubles, kMaxScales> x = {random_doubles(random, n), random_doubles(random, n),
                                               random_doubles(random, n)};
    const std::array<const double*, kMaxScales> pointers = {x[0].data(), x[1].data(), x[2].data()};
    for (int scales = 1; scales <= kMaxScales; ++scales) {
      Doubles blend(n), strongest(n), deviation(n);
      mix_scales(pointers.data(), weights.data(), scales, n,
                 {blend.data(), strongest.data(), deviation.data()});
      for (std::size_t i = 0; i < n; ++i) {
        double mixed = 0, mean = 0, most = 0, square = 0;
        for (std::size_t k = 0; k < static_cast<std::size_t>(scales); ++k) {
          mixed += weights[k] * x[k][i];
          mean += x[k][i] / scales;
          most = std::max(most, x[k][i]);
        }
        for (std::size_t k = 0; k < static_cast<std::size_t>(scales); ++k)
          square += (x[k][i] - mean) * (x[k][i] - mean) / scales;
        EXPECT_NEAR(blend[i], mixed, 1e-15);
        EXPECT_EQ(strongest[i], most);
        EXPECT_NEAR(deviation[i], std::sqrt(square), 1e-8);  // the root of a rounding error of 1e-16
        EXPECT_NEAR(deviation[i] * deviation[i], square, 1e-15);
      }
    }
  }
}

TEST_P(DoubleVectorsTest, Gates) {
  std::mt19937 random(5);
  for (const std::size_t n : kSizes) {
    Doubles x = random_doubles(random, n);
    x[0] = 100;  // the exponential of -1000 and of 1000
    if (n > 1) x[1] = -100;
    const Doubles a = random_doubles(random, n), b = random_doubles(random, n);
    Doubles gate(n), out(n);
    open_gates(x.data(), 10.0, 0.6, n, gate.data());
    blend_by_gate(a.data(), b.data(), gate.data(), n, out.data());
    for (std::size_t i = 0; i < n; ++i) {
      const double expected = 1.0 / (1.0 + std::exp(-10.0 * (x[i] - 0.6)));
      EXPECT_NEAR(gate[i], expected, 1e-14);
      EXPECT_NEAR(out[i], (1 - expected) * a[i] + expected * b[i], 1e-14);
    }
  }
}

}  // namespace
}  // namespace keynest
