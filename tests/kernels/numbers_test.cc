// Conversions of the stored number types, against the definition of the formats.
#include "kernels/numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace keynest {
namespace {

/// A binary16 number from its fields.
double half_value(std::uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 10 & 31u);
  const double fraction = (bits & 1023u) / 1024.0;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1.0 + fraction, exponent - 15);
  return (bits & 0x8000u) != 0 ? -magnitude : magnitude;
}

TEST(Numbers, EveryHalfIsReadAndWrittenBack) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const bool finite = (bits & 0x7c00u) != 0x7c00u;
    if (finite) {
      ASSERT_EQ(from_f16(half), half_value(bits)) << bits;
    }
    const bool nan = !finite && (bits & 1023u) != 0;
    ASSERT_EQ(std::isnan(from_f16(half)), nan) << bits;
    if (!nan) {
      ASSERT_EQ(to_f16(from_f16(half)), half) << bits;
    }
    if (nan) {
      ASSERT_TRUE(std::isnan(from_f16(to_f16(from_f16(half))))) << bits;
    }
  }
}

TEST(Numbers, HalvesRoundToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7bffu; ++bits) {
    const auto middle = static_cast<float>((half_value(bits) + half_value(bits + 1)) / 2);
    const auto lower = static_cast<std::uint16_t>(bits), upper = static_cast<std::uint16_t>(bits + 1);
    ASSERT_EQ(to_f16(middle), bits % 2 == 0 ? lower : upper) << bits;
    ASSERT_EQ(to_f16(std::nextafter(middle, 0.0f)), lower) << bits;
    ASSERT_EQ(to_f16(std::nextafter(middle, 1e30f)), upper) << bits;
    ASSERT_EQ(to_f16(-std::nextafter(middle, 1e30f)), upper | 0x8000u) << bits;
  }
  EXPECT_EQ(to_f16(65519.996f), 0x7bffu);
  EXPECT_EQ(to_f16(65520.0f), 0x7c00u);
  EXPECT_EQ(to_f16(1e30f), 0x7c00u);
  EXPECT_EQ(to_f16(-std::numeric_limits<float>::infinity()), 0xfc00u);
}

TEST(Numbers, BrainFloats) {
  EXPECT_EQ(to_bf16(1.0f), 0x3f80u);
  EXPECT_EQ(from_bf16(0x3f80u), 1.0f);
  EXPECT_EQ(to_bf16(1.00390625f), 0x3f80u) << "half-way, to even";
  EXPECT_EQ(to_bf16(1.01171875f), 0x3f82u) << "half-way, to even";
  EXPECT_EQ(to_bf16(1.004f), 0x3f81u);
  EXPECT_EQ(to_bf16(-1.004f), 0xbf81u);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::infinity()), 0x7f80u);
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace keynest
