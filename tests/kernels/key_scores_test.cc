// Passes over keys against a scalar twin in double, on every SIMD target.
#include "kernels/key_scores.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "kernels/kernel_test.h"
#include "kernels/key_distances.h"
#include "kernels/key_sums.h"
#include "kernels/rows.h"

namespace keynest {
namespace {

using KeyScoresTest = EveryTarget;
KEYNEST_EVERY_TARGET(KeyScoresTest);

double norm_of(const double* key, int d) {
  double square = 0;
  for (int i = 0; i < d; ++i) square += key[i] * key[i];
  return std::sqrt(square);
}

/// A filled head, its decoded keys and an anchor.
struct Problem {
  TestHead head;
  int d, rows;
  std::vector<double> keys;
  std::vector<float> anchor;

  Problem(std::mt19937& random, KvType type, int head_dim, int count)
      : head(type, head_dim, count), d(head_dim), rows(count) {
    head.fill(random, random_positions(random, count, 2 * count));
    keys = head.keys();
    anchor = normal_floats(random, static_cast<std::size_t>(d));
  }
  const double* key(int row) const { return keys.data() + static_cast<std::ptrdiff_t>(row) * d; }
};

void for_every_storage(const std::function<void(Problem&)>& check) {
  std::mt19937 random(1);
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    for (const int d : {16, 64, 72, 80, 96, 128, 256}) {
      if (type == KvType::kQ8_0 && d % 32 != 0) continue;
      for (const int rows : {1, 63, 64, 65, 200}) {
        SCOPED_TRACE(std::string(name_of(type)) + " d=" + std::to_string(d) +
                     " rows=" + std::to_string(rows));
        Problem p(random, type, d, rows);
        check(p);
      }
    }
  }
}

/// Sums over rows: error relative to the sum of the magnitudes.
void expect_sums(const Problem& p, const std::vector<double>& out, const std::function<double(int)>& factor) {
  for (int dim = 0; dim < p.d; ++dim) {
    double sum = 0, magnitude = 0;
    for (int row = 0; row < p.rows; ++row) {
      sum += p.key(row)[dim] * factor(row);
      magnitude += std::fabs(p.key(row)[dim] * factor(row));
    }
    ASSERT_NEAR(out[static_cast<std::size_t>(dim)], sum, 4e-7 * magnitude) << dim;
  }
}

TEST_P(KeyScoresTest, SumsOfKeys) {
  for_every_storage([](Problem& p) {
    std::vector<double> out(static_cast<std::size_t>(p.d), 99.0);
    sum_keys(p.head.view(), out.data());
    expect_sums(p, out, [](int) { return 1.0; });
  });
}

/// What one row adds to the sum of unit keys, as key_sums.h states it.
double unit_number(const Problem& p, int row, int dim) {
  const float inv_norm = p.head.view().inv_norms(row / kPageRows)[row % kPageRows];
  const float unit = static_cast<float>(p.key(row)[dim]) * inv_norm;
  return std::nearbyint(std::ldexp(static_cast<double>(unit), 26)) * std::ldexp(1.0, -26);
}

std::vector<double> unit_sum(const Problem& p, int first, int last) {
  std::vector<double> sum(static_cast<std::size_t>(p.d));
  for (int dim = 0; dim < p.d; ++dim) {
    for (int row = first; row < last; ++row) sum[static_cast<std::size_t>(dim)] += unit_number(p, row, dim);
  }
  return sum;
}

TEST_P(KeyScoresTest, SumsOfUnitKeysAreExact) {
  for_every_storage([](Problem& p) {
    std::vector<double> out(static_cast<std::size_t>(p.d) + 1, 99.0);
    sum_unit_keys(p.head.view(), out.data());
    EXPECT_EQ(out.back(), 99.0) << "overrun";
    out.pop_back();
    EXPECT_EQ(out, unit_sum(p, 0, p.rows));
    for (int dim = 0; dim < p.d; ++dim) {
      double exact = 0;
      for (int row = 0; row < p.rows; ++row) exact += p.key(row)[dim] / norm_of(p.key(row), p.d);
      EXPECT_NEAR(out[static_cast<std::size_t>(dim)], exact, 1.3e-7 * p.rows) << "of unit keys";
    }
  });
}

TEST_P(KeyScoresTest, SumsOfUnitKeysGoOnFromAnEarlierOne) {
  for_every_storage([](Problem& p) {
    const std::vector<double> whole = unit_sum(p, 0, p.rows);
    for (const int summed : {1, p.rows / 2, p.rows - 1, p.rows}) {
      if (summed == 0) continue;
      std::vector<double> sum = unit_sum(p, 0, summed);
      HeadRows rows = p.head.view();
      rows.unit_sum = sum.data();
      rows.summed_rows = summed;
      std::vector<double> out(sum.size());
      sum_unit_keys(rows, out.data());
      EXPECT_EQ(out, whole) << summed;
      sum_unit_keys(rows, sum.data());
      EXPECT_EQ(sum, whole) << "in place, " << summed;
    }
  });
}

TEST_P(KeyScoresTest, UnitKeysAreTakenOutExactly) {
  for_every_storage([](Problem& p) {
    std::vector<double> sum = unit_sum(p, 0, p.rows);
    std::vector<Row> gone;
    for (int row = p.rows - 1; row >= 0; row -= 3) gone.push_back(Row{row});
    subtract_unit_keys(p.head.view(), gone, sum.data());
    std::vector<double> left(sum.size());
    for (int row = 0; row < p.rows; ++row) {
      if ((p.rows - 1 - row) % 3 == 0) continue;
      for (int dim = 0; dim < p.d; ++dim) left[static_cast<std::size_t>(dim)] += unit_number(p, row, dim);
    }
    EXPECT_EQ(sum, left);
  });
}

// All keys alike fill the integers they are summed in.
TEST_P(KeyScoresTest, SumsOfLikeUnitKeysAreExact) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8_0}) {
    TestHead head(type, 32, 640);
    std::vector<float> keys(640 * 32, 0.0f);
    for (std::size_t i = 0; i < keys.size(); i += 32) keys[i + 7] = -0.7f;
    std::vector<Position> positions(640, Position{0});
    write_rows(head.view(), Row{0}, 640, keys.data(), 32, keys.data(), 32, positions.data());
    std::vector<double> out(32);
    sum_unit_keys(head.view(), out.data());
    EXPECT_NEAR(out[7], -640.0, 640 * 1e-7);
    EXPECT_EQ(out[6], 0.0);
    EXPECT_EQ(out[8], 0.0);
  }
}

TEST_P(KeyScoresTest, KeysThatAreNotFiniteSpoilTheWholeSum) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const int at : {0, 63, 64, 99}) {
      TestHead head(KvType::kF32, 16, 100);
      std::vector<float> keys(100 * 16, 1.0f);
      keys[static_cast<std::size_t>(at) * 16 + 3] = bad;
      const std::vector<Position> positions(100, Position{0});
      write_rows(head.view(), Row{0}, 100, keys.data(), 16, keys.data(), 16, positions.data());
      std::vector<double> out(16);
      sum_unit_keys(head.view(), out.data());
      for (const double sum : out) EXPECT_TRUE(std::isnan(sum)) << bad << " " << at;
    }
  }
}

TEST_P(KeyScoresTest, SumsOfManyRowsStayExact) {
  TestHead head(KvType::kF32, 8, 64 * 2000);
  const std::vector<float> ones(64 * 8, 0.1f);
  const std::vector<Position> positions(64, Position{0});
  for (int row = 0; row < head.rows(); row += 64) {
    write_rows(head.view(), Row{row}, 64, ones.data(), 8, ones.data(), 8, positions.data());
  }
  std::vector<double> out(8);
  sum_keys(head.view(), out.data());
  EXPECT_NEAR(out[3] / (64 * 2000 * static_cast<double>(0.1f)), 1.0, 1e-6);
}

/// Scores of rows: error relative to `scale`.
void expect_scores(const Problem& p, const std::vector<float>& out,
                   const std::function<double(int)>& expected, double scale) {
  for (int row = 0; row < p.rows; ++row)
    ASSERT_NEAR(out[static_cast<std::size_t>(row)], expected(row), 4e-7 * scale) << row;
  ASSERT_EQ(out.back(), -3.0f) << "overrun";
}

TEST_P(KeyScoresTest, ScoresOfRows) {
  for_every_storage([](Problem& p) {
    std::vector<float> out(static_cast<std::size_t>(p.rows) + 1, -3.0f);
    const std::vector<double> anchor(p.anchor.begin(), p.anchor.end());
    const double anchor_norm = norm_of(anchor.data(), p.d);
    const auto dot = [&](int row) {
      double sum = 0;
      for (int i = 0; i < p.d; ++i) sum += p.key(row)[i] * anchor[static_cast<std::size_t>(i)];
      return sum;
    };
    const auto distance = [&](int row) {
      double sum = 0;
      for (int i = 0; i < p.d; ++i) sum += std::pow(p.key(row)[i] - anchor[static_cast<std::size_t>(i)], 2);
      return std::sqrt(sum);
    };
    const auto norm = [&](int row) { return norm_of(p.key(row), p.d); };
    dot_keys(p.head.view(), p.anchor.data(), out.data());
    expect_scores(p, out, dot, 4 * anchor_norm);
    cosine_keys(p.head.view(), p.anchor.data(), out.data());
    expect_scores(
        p, out, [&](int row) { return dot(row) / (norm(row) * anchor_norm); }, 1);
    distance_keys(p.head.view(), p.anchor.data(), out.data());
    expect_scores(p, out, distance, 2 * anchor_norm);
    norm_keys(p.head.view(), out.data());
    expect_scores(p, out, norm, 2 * std::sqrt(p.d));
  });
}

TEST_P(KeyScoresTest, DistancesInDouble) {
  for_every_storage([](Problem& p) {
    const std::vector<double> anchor(p.anchor.begin(), p.anchor.end());
    std::vector<double> out(static_cast<std::size_t>(p.rows));
    key_distances(p.head.view(), anchor.data(), out.data());
    for (int row = 0; row < p.rows; ++row) {
      double dot = 0;
      for (int i = 0; i < p.d; ++i) dot += p.key(row)[i] * anchor[static_cast<std::size_t>(i)];
      const double cosine = dot / (norm_of(p.key(row), p.d) * norm_of(anchor.data(), p.d));
      ASSERT_NEAR(out[static_cast<std::size_t>(row)], 1 - cosine, 1e-13) << row;
    }
  });
}

TEST_P(KeyScoresTest, DistancesOfOnePage) {
  std::mt19937 random(5);
  const Problem p(random, KvType::kF16, 72, 150);
  const std::vector<double> anchor(p.anchor.begin(), p.anchor.end());
  std::vector<double> all(150), page(kPageRows);
  key_distances(p.head.view(), anchor.data(), all.data());
  for (const int index : {0, 2}) {
    key_distances_of_page(p.head.view(), index, anchor.data(), page.data());
    for (int row = 0; row < p.head.view().rows_in_page(index); ++row) {
      ASSERT_EQ(page[static_cast<std::size_t>(row)], all[static_cast<std::size_t>(index * kPageRows + row)]);
    }
  }
}

TEST_P(KeyScoresTest, UnitKeys) {
  for_every_storage([](Problem& p) {
    const int first = p.rows / 3, count = p.rows - first;
    std::vector<double> out(static_cast<std::size_t>(count * p.d) + 1, -3.0);
    read_unit_keys(p.head.view(), Row{first}, count, out.data());
    for (int i = 0; i < count; ++i) {
      const double* key = p.key(first + i);
      for (int dim = 0; dim < p.d; ++dim) {
        ASSERT_NEAR(out[static_cast<std::size_t>(i * p.d + dim)], key[dim] / norm_of(key, p.d), 1e-15) << i;
      }
    }
    ASSERT_EQ(out.back(), -3.0) << "overrun";
  });
}

TEST_P(KeyScoresTest, ZeroKeysAndAnchors) {
  TestHead head(KvType::kF16, 16, 2);
  std::vector<float> keys(32, 0.0f), out(2);
  keys[16] = 3.0f;
  const Position positions[] = {Position{0}, Position{1}};
  write_rows(head.view(), Row{0}, 2, keys.data(), 16, keys.data(), 16, positions);
  std::vector<float> anchor(16, 0.0f);
  cosine_keys(head.view(), anchor.data(), out.data());
  EXPECT_EQ(out, (std::vector<float>{0.0f, 0.0f}));
  anchor[0] = -2.0f;
  cosine_keys(head.view(), anchor.data(), out.data());
  EXPECT_FLOAT_EQ(out[0], 0.0f);
  EXPECT_FLOAT_EQ(out[1], -1.0f);
  std::vector<double> sums(16);
  sum_unit_keys(head.view(), sums.data());
  EXPECT_EQ(sums[0], 1.0);
  EXPECT_EQ(sums[1], 0.0);
  std::vector<double> units(32, 9.0);
  read_unit_keys(head.view(), Row{0}, 2, units.data());
  EXPECT_EQ(units[0], 0.0);
  EXPECT_EQ(units[16], 1.0);
}

}  // namespace
}  // namespace keynest
