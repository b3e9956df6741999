// Writing, moving and reading entries.
#include "kernels/rows.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/kernel_test.h"
#include "kernels/numbers.h"
#include "kernels/stored.h"

namespace keynest {
namespace {

using RowsTest = EveryTarget;
KEYNEST_EVERY_TARGET(RowsTest);

struct Storage {
  KvType type;
  int head_dim;
};
const std::vector<Storage> kStorages = {{KvType::kF32, 64},  {KvType::kF16, 64},  {KvType::kF16, 72},
                                        {KvType::kBF16, 80}, {KvType::kF16, 8},   {KvType::kQ8_0, 64},
                                        {KvType::kQ8_0, 96}, {KvType::kBF16, 256}};

/// Largest error a stored number may have: half a unit in the last place, or half a quantum of its block
/// of 32.
double allowed_error(KvType type, const float* vector, int dim) {
  const double magnitude = std::fabs(vector[dim]);
  switch (type) {
    case KvType::kF32:
      return 0;
    case KvType::kF16:
      return std::max(magnitude * 0x1p-11, 0x1p-25);
    case KvType::kBF16:
      return magnitude * 0x1p-8;
    case KvType::kQ8_0: {
      double largest = 0;
      for (int i = dim / 32 * 32; i < dim / 32 * 32 + 32; ++i)
        largest = std::max<double>(largest, std::fabs(vector[i]));
      return largest / 127 * (0.5 + 127 * 0x1p-11);  // the scale's own rounding may cost the largest more
    }
  }
  return 0;
}

/// Entries to write, with strides larger than the vectors.
struct Entries {
  std::size_t stride;
  std::vector<float> keys, values;
  std::vector<Position> positions;

  Entries(std::mt19937& random, int count, int head_dim)
      : stride(static_cast<std::size_t>(head_dim) + 5),
        keys(normal_floats(random, stride * static_cast<std::size_t>(count))),
        values(normal_floats(random, stride * static_cast<std::size_t>(count))),
        positions(random_positions(random, count, 10 * count)) {}
  const float* key(int i) const { return keys.data() + static_cast<std::size_t>(i) * stride; }
  const float* value(int i) const { return values.data() + static_cast<std::size_t>(i) * stride; }
  void write(const HeadRows& head, int first, int count) const {
    write_rows(head, Row{first}, count, keys.data(), stride, values.data(), stride, positions.data());
  }
};

void expect_entry(const HeadRows& head, int row, const Entries& entries, int i) {
  const int d = head.layout->head_dim;
  std::vector<float> key(static_cast<std::size_t>(d)), value(static_cast<std::size_t>(d));
  read_key(head, Row{row}, key.data());
  read_value(head, Row{row}, value.data());
  double square = 0;
  for (int dim = 0; dim < d; ++dim) {
    const auto at = static_cast<std::size_t>(dim);
    ASSERT_NEAR(key[at], entries.key(i)[dim], allowed_error(head.layout->type, entries.key(i), dim)) << dim;
    ASSERT_NEAR(value[at], entries.value(i)[dim], allowed_error(head.layout->type, entries.value(i), dim))
        << dim;
    square += static_cast<double>(key[at]) * key[at];
  }
  ASSERT_EQ(head.position(Row{row}), entries.positions[static_cast<std::size_t>(i)]);
  ASSERT_FLOAT_EQ(head.inv_norms(row / kPageRows)[row % kPageRows],
                  static_cast<float>(1 / std::sqrt(square)));
}

TEST_P(RowsTest, WrittenEntriesAreReadBack) {
  std::mt19937 random(1);
  for (const Storage& s : kStorages) {
    SCOPED_TRACE(std::string(name_of(s.type)) + " " + std::to_string(s.head_dim));
    TestHead head(s.type, s.head_dim, 150, 2);
    const Entries entries(random, 90, s.head_dim);
    entries.write(head.view(), 50, 90);
    for (int i = 0; i < 90; ++i) expect_entry(head.view(), 50 + i, entries, i);
    for (int row = 50; row < 140; ++row) {
      ASSERT_EQ(head.view().state(row / kPageRows, 0)[row % kPageRows], 0.0f);
      ASSERT_EQ(head.view().state(row / kPageRows, 1)[row % kPageRows], 0.0f);
    }
  }
}

/// Numbers at which rounding changes its ways, then any bits.
std::vector<float> awkward_numbers(std::size_t count) {
  std::vector<float> numbers;
  for (const std::uint32_t bits :
       {0x00000000u, 0x7f800000u, 0x7f800001u, 0x7fc12345u, 0x477fefffu, 0x477ff000u, 0x477fe000u,
        0x38800000u, 0x387fffffu, 0x387fe000u, 0x33000000u, 0x33000001u, 0x3f801000u, 0x3f803000u,
        0x3f808000u, 0x3f818000u, 0x7f7fffffu, 0x00000001u}) {
    numbers.push_back(std::bit_cast<float>(bits));
    numbers.push_back(std::bit_cast<float>(bits | 0x80000000u));
  }
  std::mt19937 random(3);
  while (numbers.size() < count)
    numbers.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  return numbers;
}

TEST_P(RowsTest, HalvesAreTheScalarConversionsToTheBit) {
  constexpr int kDim = 40, kRows = 60;  // whole vectors and a rest, of any target
  const std::vector<float> numbers = awkward_numbers(kDim * kRows);
  const std::vector<Position> positions(kRows);
  for (const KvType type : {KvType::kF16, KvType::kBF16}) {
    TestHead head(type, kDim, kRows);
    write_rows(head.view(), Row{0}, kRows, numbers.data(), kDim, numbers.data(), kDim, positions.data());
    const auto* keys = reinterpret_cast<const std::uint16_t*>(head.view().keys(0));
    const auto* values = reinterpret_cast<const std::uint16_t*>(head.view().values(0));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const std::uint16_t stored = type == KvType::kF16 ? to_f16(numbers[i]) : to_bf16(numbers[i]);
      ASSERT_EQ(values[i], stored) << name_of(type) << ' ' << numbers[i];
      ASSERT_EQ(keys[i % kDim * kPageRows + i / kDim], stored) << name_of(type) << ' ' << numbers[i];
    }
  }
}

/// Blocks of q8_0 one number at a time: quants [32]; returns the scale as stored.
std::uint16_t quantise(const float* in, std::int8_t* quants) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(in[i]));  // NaN is never the largest
  const std::uint16_t stored = to_f16(std::min(largest / 127.0f, 65504.0f));
  const float scale = from_f16(stored);
  for (int i = 0; i < 32; ++i) {
    const float quotient = scale > 0 ? std::nearbyint(in[i] / scale) : 0.0f;
    quants[i] = static_cast<std::int8_t>(std::max(-127.0f, std::min(127.0f, quotient)));  // NaN becomes 127
  }
  return stored;
}

void expect_quants(const HeadRows& head, int row, const float* vector) {
  const int d = head.layout->head_dim;
  const QuantisedPage page(*head.layout, head.keys(0), head.values(0));
  for (int block = 0; block < d / 32; ++block) {
    std::int8_t quants[32];
    const std::uint16_t scale = quantise(vector + block * 32, quants);
    ASSERT_EQ(page.key_scales[block * kPageRows + row], scale) << "key " << row << " block " << block;
    ASSERT_EQ(page.value_scales[row * (d / 32) + block], scale) << "value " << row << " block " << block;
    for (int i = 0; i < 32; ++i) {
      const int dim = block * 32 + i;
      ASSERT_EQ(page.keys[dim * kPageRows + row], quants[i]) << "key " << row << ": " << vector[dim];
      ASSERT_EQ(page.values[row * d + dim], quants[i]) << "value " << row << ": " << vector[dim];
    }
  }
}

// Numbers as they come, with ties between two quants; any bits; and blocks of small numbers, whose scale is
// subnormal or zero.
TEST_P(RowsTest, QuantsAreTheScalarOnesToTheBit) {
  constexpr int kDim = 96, kRows = 61;
  std::mt19937 random(4);
  std::vector<float> normal = normal_floats(random, kDim * kRows), ties = normal, small = normal;
  for (std::size_t i = 0; i < ties.size(); ++i) {
    const float scale = from_f16(static_cast<std::uint16_t>(0x3801 + i / 32));
    ties[i] = scale * (i % 32 == 0 ? 127.0f : std::round(ties[i] * 30) + 0.5f);
    small[i] *= std::ldexp(1.0f, -14 - static_cast<int>(i / 32 % 16));
  }
  const std::vector<Position> positions(kRows);
  for (const auto& numbers : {normal, ties, small, awkward_numbers(kDim * kRows)}) {
    for (const int count : {1, 3, 16, 37, kRows}) {
      TestHead head(KvType::kQ8_0, kDim, 64);
      write_rows(head.view(), Row{3}, count, numbers.data(), kDim, numbers.data(), kDim, positions.data());
      for (int i = 0; i < count; ++i) expect_quants(head.view(), 3 + i, numbers.data() + i * kDim);
    }
  }
}

TEST_P(RowsTest, WritingLeavesTheOtherRowsAlone) {
  std::mt19937 random(2);
  for (const Storage& s : kStorages) {
    SCOPED_TRACE(name_of(s.type));
    TestHead head(s.type, s.head_dim, 128, 1);
    const Entries before(random, 128, s.head_dim), entries(random, 5, s.head_dim);
    before.write(head.view(), 0, 128);
    entries.write(head.view(), 62, 5);
    for (int row = 0; row < 128; ++row) {
      const bool written = row >= 62 && row < 67;
      expect_entry(head.view(), row, written ? entries : before, written ? row - 62 : row);
    }
  }
}

TEST(Rows, MovedEntriesArriveWhole) {
  std::mt19937 random(3);
  for (const Storage& s : kStorages) {
    SCOPED_TRACE(name_of(s.type));
    TestHead head(s.type, s.head_dim, 128, 3);
    const Entries entries(random, 128, s.head_dim);
    entries.write(head.view(), 0, 128);
    for (int state = 0; state < 3; ++state)
      head.view().state(1, state)[36] = 10.0f + static_cast<float>(state);
    move_row(head.view(), Row{100}, Row{7});
    move_row(head.view(), Row{20}, Row{21});
    for (int row = 0; row < 128; ++row)
      expect_entry(head.view(), row, entries, row == 7 ? 100 : row == 21 ? 20 : row);
    for (int state = 0; state < 3; ++state) {
      EXPECT_EQ(head.view().state(0, state)[7], 10.0f + static_cast<float>(state));
      EXPECT_EQ(head.view().state(0, state)[21], 0.0f);
    }
  }
}

TEST(Rows, ExchangedEntriesArriveWhole) {
  std::mt19937 random(4);
  for (const Storage& s : kStorages) {
    SCOPED_TRACE(name_of(s.type));
    TestHead head(s.type, s.head_dim, 128, 2);
    const Entries entries(random, 128, s.head_dim);
    entries.write(head.view(), 0, 128);
    for (int state = 0; state < 2; ++state) {
      head.view().state(1, state)[36] = 10.0f + static_cast<float>(state);
      head.view().state(0, state)[7] = 20.0f + static_cast<float>(state);
    }
    swap_rows(head.view(), Row{100}, Row{7});
    swap_rows(head.view(), Row{20}, Row{21});
    swap_rows(head.view(), Row{5}, Row{5});
    const auto origin = [](int row) {
      return row == 7 ? 100 : row == 100 ? 7 : row == 20 ? 21 : row == 21 ? 20 : row;
    };
    for (int row = 0; row < 128; ++row) expect_entry(head.view(), row, entries, origin(row));
    for (int state = 0; state < 2; ++state) {
      EXPECT_EQ(head.view().state(0, state)[7], 10.0f + static_cast<float>(state));
      EXPECT_EQ(head.view().state(1, state)[36], 20.0f + static_cast<float>(state));
    }
  }
}

TEST_P(RowsTest, ZeroKeysHaveAFiniteInverseNorm) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    TestHead head(type, 32, 1);
    const std::vector<float> zeros(32, 0.0f);
    const Position position{0};
    write_rows(head.view(), Row{0}, 1, zeros.data(), 32, zeros.data(), 32, &position);
    EXPECT_FLOAT_EQ(head.view().inv_norms(0)[0], 1e12f);
    EXPECT_EQ(head.keys(), std::vector<double>(32, 0.0));
    EXPECT_EQ(head.values(), std::vector<double>(32, 0.0));
  }
}

// The bits of q8_0, which saved caches depend on.
TEST_P(RowsTest, QuantisedBlocksAsDocumented) {
  TestHead head(KvType::kQ8_0, 32, 1);
  std::vector<float> vector(32, 0.0f);
  vector[0] = 127.05f, vector[4] = 63.51f, vector[1] = -1.4f, vector[2] = 2.5f, vector[3] = -127.0f,
  vector[31] = 64.6f;
  const Position position{3};
  write_rows(head.view(), Row{0}, 1, vector.data(), 32, vector.data(), 32, &position);
  const auto* keys = reinterpret_cast<const std::int8_t*>(head.view().keys(0));
  const auto* values = reinterpret_cast<const std::int8_t*>(head.view().values(0));
  const int expected[] = {127, -1, 2, -127};
  for (int dim = 0; dim < 4; ++dim) {
    EXPECT_EQ(keys[dim * kPageRows], expected[dim]);
    EXPECT_EQ(values[dim], expected[dim]);
  }
  EXPECT_EQ(values[31], 65);
  EXPECT_EQ(values[4], 64) << "63.51 by the scale as stored, 1.0; by 127.05 / 127 it would be 63";
  EXPECT_EQ(reinterpret_cast<const std::uint16_t*>(keys + 32 * kPageRows)[0], 0x3c00u) << "1.0";
  EXPECT_EQ(reinterpret_cast<const std::uint16_t*>(values + 32 * kPageRows)[0], 0x3c00u) << "1.0";
}

TEST(PageLayout, SectionsAreAlignedAndDisjoint) {
  for (const Storage& s : kStorages) {
    const PageLayout layout = PageLayout::make(s.type, s.head_dim, 3);
    const std::size_t matrix = kPageRows * row_bytes(s.type, s.head_dim);
    for (const std::size_t at :
         {layout.keys, layout.values, layout.positions, layout.inv_norms, layout.state}) {
      EXPECT_EQ(at % kPageAlignment, 0u);
    }
    EXPECT_GE(layout.values, layout.keys + matrix);
    EXPECT_GE(layout.positions, layout.values + matrix);
    EXPECT_EQ(layout.inv_norms, layout.positions + 256);
    EXPECT_EQ(layout.state, layout.inv_norms + 256);
    EXPECT_EQ(layout.bytes, layout.state + 3 * 256);
  }
}

}  // namespace
}  // namespace keynest
