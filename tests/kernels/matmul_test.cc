// The panel products against sums in double over the very numbers they multiply.
#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/kernel_test.h"
#include "kernels/numbers.h"

namespace keynest {
namespace {

/// A stored matrix and the weights it stands for.
struct Stored {
  std::vector<std::byte> bytes;
  std::vector<float> values;  // [rows, columns]
  WeightMatrix matrix;
};

// 2^-6 and 2^-7 as half precision: exact, so that a weight is exactly scale times integer.
constexpr std::uint16_t kScales[] = {0x2400, 0x2000};
constexpr float kScaleValues[] = {1.0f / 64, 1.0f / 128};

Stored make(WeightFormat format, int rows, int columns, std::mt19937& random) {
  Stored stored;
  const std::size_t block_bytes = format == WeightFormat::kQ5_0   ? 22
                                  : format == WeightFormat::kQ8_0 ? 34
                                                                  : 128;
  stored.bytes.resize(static_cast<std::size_t>(rows * columns / 32) * block_bytes);
  std::byte* at = stored.bytes.data();
  for (int block = 0; block < rows * columns / 32; ++block, at += block_bytes) {
    const std::size_t scale = random() % 2;
    int integers[32];
    for (int& q : integers) {
      q = format == WeightFormat::kQ5_0 ? static_cast<int>(random() % 32) - 16
                                        : static_cast<int>(random() % 255) - 127;
      stored.values.push_back(static_cast<float>(q) * kScaleValues[scale]);
    }
    if (format == WeightFormat::kOther) {
      std::memcpy(at, stored.values.data() + stored.values.size() - 32, 128);
      continue;
    }
    std::memcpy(at, &kScales[scale], 2);
    if (format == WeightFormat::kQ8_0) {
      for (int i = 0; i < 32; ++i) at[2 + i] = static_cast<std::byte>(integers[i]);
      continue;
    }
    std::uint32_t fifth = 0;
    for (int i = 0; i < 32; ++i) fifth |= static_cast<std::uint32_t>((integers[i] + 16) >> 4) << i;
    std::memcpy(at + 2, &fifth, 4);
    for (int i = 0; i < 16; ++i) {
      at[6 + i] = static_cast<std::byte>(((integers[i] + 16) & 15) | ((integers[i + 16] + 16) & 15) << 4);
    }
  }
  stored.matrix = {stored.bytes.data(),
                   static_cast<std::size_t>(columns / 32) * block_bytes,
                   rows,
                   columns,
                   format,
                   [](const void* row, float* out, std::int64_t count) {
                     std::memcpy(out, row, static_cast<std::size_t>(count) * sizeof(float));
                   }};
  return stored;
}

class Panels : public testing::TestWithParam<WeightFormat> {};

TEST_P(Panels, EqualSumsInDouble) {
  if (!bf16_matmul_supported()) GTEST_SKIP() << "this CPU has no AVX-512 BF16";
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const int columns : {32, 64, 896, 1056, 2080}) {
    for (const int rows : {1, 15, 16, 17, 32, 47, 48, 100}) {
      for (const int tokens : {1, 2, 7, 8, 9, 23}) {
        const Stored stored = make(GetParam(), rows, columns, random);
        std::vector<std::uint16_t> x(static_cast<std::size_t>(tokens * columns));
        for (auto& value : x) value = to_bf16(normal(random));
        std::vector<float> out(static_cast<std::size_t>(tokens * rows), std::nanf(""));
        AlignedBytes scratch(bf16_matmul_scratch_bytes());
        for (int row = 0; row < rows; row += kPanelRows) {
          bf16_matmul_panel(stored.matrix, row, std::min(kPanelRows, rows - row), x.data(), tokens,
                            out.data(), static_cast<std::size_t>(rows), scratch.get());
        }
        for (int t = 0; t < tokens; ++t) {
          for (int row = 0; row < rows; ++row) {
            double sum = 0, size = 0;
            for (int c = 0; c < columns; ++c) {
              // Five bits, or seven and a sign, times a power of two are exact in BF16.
              const double product = double{stored.values[static_cast<std::size_t>(row * columns + c)]} *
                                     from_bf16(x[static_cast<std::size_t>(t * columns + c)]);
              sum += product;
              size += std::abs(product);
            }
            ASSERT_NEAR(out[static_cast<std::size_t>(t * rows + row)], sum, 1e-6 * size)
                << columns << " columns, row " << row << " of " << rows << ", token " << t << " of "
                << tokens;
          }
        }
      }
    }
  }
}

TEST_P(Panels, NothingBesideThemIsWritten) {
  if (!bf16_matmul_supported()) GTEST_SKIP() << "this CPU has no AVX-512 BF16";
  std::mt19937 random(4);
  const Stored stored = make(GetParam(), 60, 64, random);
  const std::vector<std::uint16_t> x(64 * 3, to_bf16(1.0f));
  std::vector<float> out(3 * 60, 7.0f);
  AlignedBytes scratch(bf16_matmul_scratch_bytes());
  bf16_matmul_panel(stored.matrix, 20, 13, x.data(), 3, out.data(), 60, scratch.get());
  for (int t = 0; t < 3; ++t) {
    for (int row = 0; row < 60; ++row) {
      const bool written = row >= 20 && row < 33;
      EXPECT_EQ(out[static_cast<std::size_t>(t * 60 + row)] == 7.0f, !written)
          << "token " << t << " row " << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Panels,
                         testing::Values(WeightFormat::kOther, WeightFormat::kQ5_0, WeightFormat::kQ8_0));

/// Panels in 8 bits. Activations are integers times a power of two, the largest of a block 127, so that
/// rounding leaves them as they are.
class BytePanels : public testing::TestWithParam<WeightFormat> {
 protected:
  static std::vector<float> activations(int tokens, int columns, std::mt19937& random) {
    std::vector<float> x(static_cast<std::size_t>(tokens * columns));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float integer = i % 32 == 5 ? 127.0f : static_cast<float>(random() % 255) - 127.0f;
      x[i] = std::ldexp(integer, static_cast<int>(i / 32 % 5) - 4);
    }
    return x;
  }

  /// out [tokens, rows], 7 where nothing was written.
  static std::vector<float> multiply(const WeightMatrix& matrix, int first, int last, int tokens,
                                     const std::vector<float>& x) {
    std::vector<float> out(static_cast<std::size_t>(tokens * matrix.rows), 7.0f);
    AlignedBytes rounded(int8_panel_rounded_bytes(matrix.columns, tokens)),
        scratch(int8_panel_scratch_bytes());
    for (int part = 0; part < 3; ++part) {
      int8_panel_round(x.data(), matrix.columns, tokens, part, 3, rounded.get());
    }
    for (int row = first; row < last; row += kPanelRows) {
      int8_matmul_panel(matrix, row, std::min(kPanelRows, last - row), rounded.get(), tokens, out.data(),
                        static_cast<std::size_t>(matrix.rows), scratch.get());
    }
    return out;
  }
};

TEST_P(BytePanels, EqualSumsInDouble) {
  if (!int8_matmul_supported(GetParam(), 64)) GTEST_SKIP() << "this CPU has no AVX-512 VNNI";
  std::mt19937 random(5);
  for (const int columns : {64, 896, 1088}) {
    for (const int rows : {1, 15, 16, 17, 32, 47, 48, 100}) {
      for (const int tokens : {1, 2, 3, 4, 5, 8, 9, 23}) {
        const Stored stored = make(GetParam(), rows, columns, random);
        const std::vector<float> x = activations(tokens, columns, random);
        const std::vector<float> out = multiply(stored.matrix, 0, rows, tokens, x);
        for (int t = 0; t < tokens; ++t) {
          for (int row = 0; row < rows; ++row) {
            double sum = 0, size = 0;
            for (int c = 0; c < columns; ++c) {
              const double product = double{stored.values[static_cast<std::size_t>(row * columns + c)]} *
                                     x[static_cast<std::size_t>(t * columns + c)];
              sum += product;
              size += std::abs(product);
            }
            ASSERT_NEAR(out[static_cast<std::size_t>(t * rows + row)], sum, 1e-6 * size)
                << columns << " columns, row " << row << " of " << rows << ", token " << t << " of "
                << tokens;
          }
        }
      }
    }
  }
}

TEST_P(BytePanels, NothingBesideThemIsWritten) {
  if (!int8_matmul_supported(GetParam(), 64)) GTEST_SKIP() << "this CPU has no AVX-512 VNNI";
  std::mt19937 random(6);
  const Stored stored = make(GetParam(), 60, 64, random);
  const std::vector<float> out = multiply(stored.matrix, 20, 33, 3, activations(3, 64, random));
  for (int t = 0; t < 3; ++t) {
    for (int row = 0; row < 60; ++row) {
      const bool written = row >= 20 && row < 33;
      EXPECT_EQ(out[static_cast<std::size_t>(t * 60 + row)] == 7.0f, !written)
          << "token " << t << " row " << row;
    }
  }
}

/// A token of zeros has no scale to be rounded with.
TEST_P(BytePanels, ZerosGiveZeros) {
  if (!int8_matmul_supported(GetParam(), 64)) GTEST_SKIP() << "this CPU has no AVX-512 VNNI";
  std::mt19937 random(7);
  const Stored stored = make(GetParam(), 20, 128, random);
  for (const float y : multiply(stored.matrix, 0, 20, 5, std::vector<float>(5 * 128))) EXPECT_EQ(y, 0.0f);
}

INSTANTIATE_TEST_SUITE_P(Formats, BytePanels, testing::Values(WeightFormat::kQ5_0, WeightFormat::kQ8_0));

/// Panels in F32, of numbers that F16 holds exactly.
class FloatPanels : public EveryTarget {
 protected:
  void check(WeightFormat format, int columns, int rows, int tokens) {
    const auto weights = normal_floats(random_, static_cast<std::size_t>(rows * columns)),
               x = normal_floats(random_, static_cast<std::size_t>(tokens * columns));
    std::vector<std::uint16_t> halves(weights.size());
    std::vector<float> values(weights.size()), out(static_cast<std::size_t>(tokens * rows), std::nanf(""));
    for (std::size_t i = 0; i < weights.size(); ++i) {
      halves[i] = to_f16(weights[i]);
      values[i] = from_f16(halves[i]);
    }
    const bool half = format == WeightFormat::kF16;
    const void* stored = half ? static_cast<const void*>(halves.data()) : values.data();
    const WeightMatrix matrix{static_cast<const std::byte*>(stored),
                              static_cast<std::size_t>(columns) * (half ? 2 : 4),
                              rows,
                              columns,
                              format,
                              [](const void* row, float* to, std::int64_t n) {
                                std::copy_n(static_cast<const float*>(row), n, to);
                              }};
    const AlignedBytes scratch(float_matmul_scratch_bytes());
    for (int row = 0; row < rows; row += kPanelRows) {
      float_matmul_panel(matrix, row, std::min(kPanelRows, rows - row), x.data(), tokens, out.data(),
                         static_cast<std::size_t>(rows), scratch.get());
    }
    for (int t = 0; t < tokens; ++t) {
      for (int row = 0; row < rows; ++row) {
        double sum = 0, size = 0;
        for (int c = 0; c < columns; ++c) {
          const double product = double{values[static_cast<std::size_t>(row * columns + c)]} *
                                 x[static_cast<std::size_t>(t * columns + c)];
          sum += product;
          size += std::abs(product);
        }
        ASSERT_NEAR(out[static_cast<std::size_t>(t * rows + row)], sum, 1e-6 * size)
            << columns << " columns, row " << row << " of " << rows << ", token " << t << " of " << tokens;
      }
    }
  }
  std::mt19937 random_{5};
};

TEST_P(FloatPanels, EqualSumsInDouble) {
  for (const WeightFormat format : {WeightFormat::kOther, WeightFormat::kF16}) {
    for (const int columns : {32, 896, 1056, 2080}) {
      for (const int rows : {1, 4, 7, 48, 53}) {
        for (const int tokens : {1, 2, 3, 5, 6, 13}) check(format, columns, rows, tokens);
      }
    }
  }
}

KEYNEST_EVERY_TARGET(FloatPanels);

}  // namespace
}  // namespace keynest
