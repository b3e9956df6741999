// Keys turned in place against a double reference that never rounds: the un-rotated key, rotated once.
#include "kernels/rotate.h"

#include <algorithm>
#include <cmath>

#include "kernels/kernel_test.h"
#include "kernels/rows.h"

namespace keynest {
namespace {

using RotateTest = EveryTarget;
KEYNEST_EVERY_TARGET(RotateTest);

constexpr int kDim = 64, kRows = 100, kStart = 5000;

std::vector<float> frequencies() {
  std::vector<float> f;
  for (int i = 0; i < kDim / 2; ++i) f.push_back(static_cast<float>(std::pow(10000.0, -2.0 * i / kDim)));
  return f;
}

/// The two dimensions of pair i.
std::pair<std::size_t, std::size_t> pair_of(int i, bool adjacent) {
  const auto p = static_cast<std::size_t>(i);
  return adjacent ? std::pair{2 * p, 2 * p + 1} : std::pair{p, p + kDim / 2};
}

/// `key` [kDim] rotated to `position`, in double.
std::vector<double> rotated(const double* key, std::int32_t position, bool adjacent) {
  std::vector<double> out(kDim);
  const std::vector<float> f = frequencies();
  for (int i = 0; i < kDim / 2; ++i) {
    const auto [a, b] = pair_of(i, adjacent);
    const double angle = static_cast<double>(f[static_cast<std::size_t>(i)]) * position;
    out[a] = key[a] * std::cos(angle) - key[b] * std::sin(angle);
    out[b] = key[a] * std::sin(angle) + key[b] * std::cos(angle);
  }
  return out;
}

/// What storing a number may change it by, as a share of the largest number of its block of 32.
double rounding(KvType type) {
  switch (type) {
    case KvType::kF32:
      return 0x1p-24;
    case KvType::kF16:
      return 0x1p-11;
    case KvType::kBF16:
      return 0x1p-8;
    case KvType::kQ8_0:
      return 0.5 / 127 * 1.01;
  }
  return 0;
}

/// Random un-rotated keys, and a head that holds them rotated to kStart.
struct Turned {
  std::vector<double> keys;  // [kRows, kDim]
  TestHead head;
  bool adjacent;

  Turned(KvType type, bool adjacent_pairs, std::uint32_t seed)
      : head(type, kDim, kRows, 1), adjacent(adjacent_pairs) {
    std::mt19937 random(seed);
    std::vector<Position> positions;
    std::vector<float> stored;
    for (const float x : normal_floats(random, kRows * kDim)) keys.push_back(x);
    for (int row = 0; row < kRows; ++row) {
      positions.push_back(Position{row});
      for (const double x : rotated(key(row), kStart, adjacent)) stored.push_back(static_cast<float>(x));
    }
    write_rows(head.view(), Row{0}, kRows, stored.data(), kDim, stored.data(), kDim, positions.data());
  }
  const double* key(int row) const { return keys.data() + static_cast<std::ptrdiff_t>(row) * kDim; }
  double longest_pair(int row) const {
    double longest = 0;
    for (int i = 0; i < kDim / 2; ++i) {
      const auto [a, b] = pair_of(i, adjacent);
      longest = std::max(longest, std::hypot(key(row)[a], key(row)[b]));
    }
    return longest;
  }
};

// Turning keeps a pair's length, so that roundings add up and never grow: after n evictions a pair is off by
// at most n + 1 roundings of two numbers, none larger than the longest pair.
TEST_P(RotateTest, ManyTurnsEqualOneRotationOfTheUnrotatedKey) {
  constexpr int kEvictions = 60;
  const std::vector<float> f = frequencies();
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    for (const bool adjacent : {false, true}) {
      SCOPED_TRACE(std::string(name_of(type)) + (adjacent ? " adjacent" : " halves"));
      Turned t(type, adjacent, 7);
      const std::vector<double> values = t.head.values();
      std::mt19937 random(11);
      std::vector<std::int32_t> at(kRows, kStart);
      for (int n = 0; n < kEvictions; ++n) {
        std::vector<RowTurn> turns;
        for (int row = 0; row < kRows; ++row) {
          const auto by = -static_cast<std::int32_t>(random() % 64);
          turns.push_back({Row{row}, by});
          at[static_cast<std::size_t>(row)] += by;
        }
        rotate_keys(t.head.view(), turns, {f, adjacent});
      }
      const std::vector<double> keys = t.head.keys();
      for (int row = 0; row < kRows; ++row) {
        const std::vector<double> want = rotated(t.key(row), at[static_cast<std::size_t>(row)], adjacent);
        const double allowed = (kEvictions + 1) * std::sqrt(2.0) * rounding(type) * t.longest_pair(row);
        for (std::size_t i = 0; i < kDim; ++i) {
          ASSERT_NEAR(keys[static_cast<std::size_t>(row) * kDim + i], want[i], allowed) << row << ", " << i;
        }
      }
      EXPECT_EQ(t.head.values(), values);
    }
  }
}

TEST_P(RotateTest, OneTurnIsExactToTheRounding) {
  const std::vector<float> f = frequencies();
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    for (const bool adjacent : {false, true}) {
      SCOPED_TRACE(std::string(name_of(type)) + (adjacent ? " adjacent" : " halves"));
      Turned t(type, adjacent, 3);
      const std::vector<double> before = t.head.keys();
      const std::vector<RowTurn> turns{{Row{70}, -9}, {Row{3}, -9}, {Row{64}, 0}, {Row{5}, 12}};
      t.head.view().state(0, 0)[3] = 4.0f;
      rotate_keys(t.head.view(), turns, {f, adjacent});
      const std::vector<double> after = t.head.keys();
      for (int row = 0; row < kRows; ++row) {
        const double* old = before.data() + static_cast<std::ptrdiff_t>(row) * kDim;
        const std::int32_t by = row == 70 || row == 3 ? -9 : row == 5 ? 12 : 0;
        const std::vector<double> want = rotated(old, by, adjacent);
        double square = 0;
        for (std::size_t i = 0; i < kDim; ++i) {
          const double got = after[static_cast<std::size_t>(row) * kDim + i];
          ASSERT_NEAR(got, want[i], by == 0 ? 0 : 1.01 * rounding(type) * t.longest_pair(row)) << row;
          square += got * got;
        }
        ASSERT_FLOAT_EQ(t.head.view().inv_norms(row / kPageRows)[row % kPageRows],
                        static_cast<float>(1 / std::sqrt(square)));
        ASSERT_EQ(t.head.view().position(Row{row}), Position{row}) << "positions stay true";
      }
      EXPECT_EQ(t.head.view().state(0, 0)[3], 4.0f);
    }
  }
}

}  // namespace
}  // namespace keynest
