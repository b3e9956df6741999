// Attention against a scalar twin in double, on every SIMD target.
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "kernels/attention_twin.h"
#include "kernels/kernel_test.h"

namespace keynest {
namespace {

constexpr double kTolerance = 4e-6, kFixedTolerance = 2e-4;

void expect_statistics(const Problem& p, const Expected& e, int token, int member,
                       double tolerance = kTolerance) {
  const auto row = static_cast<std::size_t>(token * p.c.group + member);
  EXPECT_NEAR(p.row_max[row], e.max, tolerance * std::max(1.0, std::fabs(e.max)));
  EXPECT_NEAR(p.row_sum[row] / e.sum, 1.0, 5 * tolerance);
}

void expect_attention(Problem& p, const std::string& what, double tolerance = kTolerance) {
  SCOPED_TRACE(what + ": " + describe(p.c));
  const std::vector<double> keys = p.head.keys(), values = p.head.values();
  for (int token = 0; token < p.c.tokens; ++token) {
    for (int member = 0; member < p.c.group; ++member) {
      const Expected e = attend_one(p, keys, values, token, member);
      double worst = 0;
      for (int dim = 0; dim < p.c.head_dim; ++dim) {
        const double error = std::fabs(p.out_at(token, member, dim) - e.out[static_cast<std::size_t>(dim)]);
        worst = std::isfinite(error) ? std::max(worst, error) : 1e30;
      }
      ASSERT_LT(worst, tolerance) << "token " << token << " member " << member;
      expect_statistics(p, e, token, member, tolerance);
      for (std::size_t i = 0; i < 3; ++i)
        ASSERT_EQ((&p.out_at(token, member, p.c.head_dim))[i], -7.0f) << "overrun";
    }
  }
}

void run_attend(const Case& c, std::mt19937& random) {
  Problem p(c, random);
  std::vector<std::byte> scratch = scratch_for(p);
  attend(p.head.view(), p.block, 0, c.tokens, scratch.data());
  const bool fixed = attends_in_fixed_point(p.head.layout(), p.block);
  expect_attention(p, "attend", fixed ? kFixedTolerance : kTolerance);
}

/// Decode form: pages split unevenly over three partial results, one of which may be empty.
void run_attend_pages(const Case& c, std::mt19937& random) {
  Problem p(c, random);
  std::vector<std::byte> scratch = scratch_for(p);
  const auto count = static_cast<std::size_t>(c.tokens) * c.group, d = static_cast<std::size_t>(c.head_dim);
  const int pages = p.head.view().page_count();
  const int ends[] = {0, pages / 3, pages / 3, pages};
  std::vector<std::vector<float>> storage;
  std::vector<PartialAttention> partials;
  for (int i = 0; i < 3; ++i) {
    storage.emplace_back(count * (d + 2));
    float* memory = storage.back().data();
    partials.push_back({memory, memory + count, memory + 2 * count});
    attend_pages(p.head.view(), p.block, ends[i], ends[i + 1], partials.back(), scratch.data());
  }
  merge_partials(p.block, c.head_dim, partials.data(), 3);
  expect_attention(p, "attend_pages");
}

const std::vector<KvType> kTypes = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0};

using AttentionTest = EveryTarget;
KEYNEST_EVERY_TARGET(AttentionTest);

TEST_P(AttentionTest, TypesAndHeadSizes) {
  std::mt19937 random(1);
  for (const KvType type : kTypes) {
    for (const int d : {16, 64, 72, 80, 96, 128, 256}) {
      if (type == KvType::kQ8_0 && d % 32 != 0) continue;
      run_attend({type, d, 200, 3, 5, 0}, random);
      run_attend_pages({type, d, 200, 3, 1, 0}, random);
      run_attend_pages({type, d, 200, 5, 3, 0}, random);
    }
  }
}

TEST_P(AttentionTest, Groups) {
  std::mt19937 random(2);
  for (int group = 1; group <= 8; ++group) {
    run_attend({KvType::kF16, 64, 150, group, 7, 0}, random);
    run_attend_pages({KvType::kF16, 64, 150, group, 1, 0}, random);
    run_attend_pages({KvType::kF16, 128, 150, group, 2, 0}, random);
  }
}

// The products over integers, in all the ways rows and blocks of dimensions are shared by strips, up to more
// rows than are read that way.
TEST_P(AttentionTest, GroupsOverQuants) {
  std::mt19937 random(13);
  for (int group = 1; group <= 8; ++group) {
    for (const int d : {32, 64, 96, 128, 160}) {
      run_attend_pages({KvType::kQ8_0, d, 150, group, 1, 0}, random);
      run_attend({KvType::kQ8_0, d, 100, group, 2, 0}, random);
    }
    run_attend_pages({KvType::kQ8_0, 64, 150, group, 3, 0}, random);
    run_attend({KvType::kQ8_0, 96, 150, group, 9, 0}, random);
  }
}

TEST_P(AttentionTest, RowCounts) {
  std::mt19937 random(3);
  for (const int rows : {1, 2, 63, 64, 65, 127, 128, 129, 400}) {
    run_attend({KvType::kF16, 32, rows, 2, std::min(rows, 3), 0}, random);
    run_attend_pages({KvType::kF16, 32, rows, 2, 1, 0}, random);
    run_attend_pages({KvType::kF32, 32, rows, 2, 1, 0}, random);
    run_attend_pages({KvType::kQ8_0, 32, rows, 2, 1, 0}, random);
  }
}

TEST_P(AttentionTest, SlidingWindows) {
  std::mt19937 random(4);
  for (const int window : {1, 2, 10, 64, 100, 100000}) {
    // One token, or a window that holds the first token for all queries: each sees at least one row.
    run_attend({KvType::kF16, 64, 300, 4, 1, window}, random);
    run_attend({KvType::kF16, 64, 300, 4, std::min(window, 40), window}, random);
    run_attend_pages({KvType::kF16, 64, 300, 7, 1, window}, random);
  }
}

TEST_P(AttentionTest, SeveralTiles) {
  std::mt19937 random(5);
  run_attend({KvType::kF16, 16, 500, 7, 128, 0}, random);
  run_attend({KvType::kBF16, 16, 500, 4, 70, 64}, random);
  run_attend({KvType::kF32, 16, 500, 1, 200, 0}, random);
}

// Laws of sessions rest on this: rollback and replay, blocks of other sizes, fewer threads.
TEST_P(AttentionTest, SharingTokensChangesNoBit) {
  std::mt19937 random(12);
  for (const KvType type : kTypes) {
    Problem p({type, 96, 300, 3, 50, 90}, random);
    std::vector<std::byte> scratch = scratch_for(p);
    attend(p.head.view(), p.block, 0, 50, scratch.data());
    const std::vector<float> out = p.out, max = p.row_max, sum = p.row_sum;
    for (int first = 0, count = 1; first < 50; first += count, ++count) {
      attend(p.head.view(), p.block, first, std::min(first + count, 50), scratch.data());
    }
    EXPECT_EQ(out, p.out) << name_of(type);
    EXPECT_EQ(max, p.row_max) << name_of(type);
    EXPECT_EQ(sum, p.row_sum) << name_of(type);
  }
}

// Large logits, and a page order in which the maximum grows and shrinks from page to page.
TEST_P(AttentionTest, LargeLogits) {
  std::mt19937 random(6);
  Problem p({KvType::kF32, 64, 300, 2, 4, 0}, random);
  p.block.scale = 8.0f;
  std::vector<std::byte> scratch = scratch_for(p);
  attend(p.head.view(), p.block, 0, p.c.tokens, scratch.data());
  const std::vector<double> keys = p.head.keys(), values = p.head.values();
  for (int token = 0; token < p.c.tokens; ++token) {
    const Expected e = attend_one(p, keys, values, token, 1);
    for (int dim = 0; dim < 64; ++dim)
      ASSERT_NEAR(p.out_at(token, 1, dim), e.out[static_cast<std::size_t>(dim)], 2e-4);
  }
}

TEST_P(AttentionTest, NothingVisibleInTheFirstPagesIsNotNan) {
  std::mt19937 random(7);
  Case c{KvType::kF16, 64, 192, 3, 2, 0};
  Problem p(c, random);
  // All of pages 0 and 1 lie after the first query, before the second; page 2 before both.
  for (int row = 0; row < 192; ++row)
    p.head.view().positions(row / 64)[row % 64] = Position{row < 128 ? 500 + row : row};
  p.query_positions = {Position{400}, Position{1000}};
  p.block.positions = p.query_positions.data();
  std::vector<std::byte> scratch = scratch_for(p);
  attend(p.head.view(), p.block, 0, 2, scratch.data());
  expect_attention(p, "attend");
}

TEST_P(AttentionTest, PartialResultWithoutVisibleRows) {
  std::mt19937 random(8);
  Problem p({KvType::kF16, 64, 64, 2, 1, 0}, random);
  for (int row = 0; row < 64; ++row) p.head.view().positions(0)[row] = Position{1000 + row};
  std::vector<std::byte> scratch = scratch_for(p);
  std::vector<float> max(2), sum(2), out(2 * 64, 5.0f);
  attend_pages(p.head.view(), p.block, 0, 1, {max.data(), sum.data(), out.data()}, scratch.data());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(max[static_cast<std::size_t>(i)], -std::numeric_limits<float>::infinity());
    EXPECT_EQ(sum[static_cast<std::size_t>(i)], 0.0f);
  }
  EXPECT_EQ(out, std::vector<float>(2 * 64, 0.0f));
}

TEST_P(AttentionTest, MergeOfNothingIsZero) {
  std::mt19937 random(11);
  Problem p({KvType::kF16, 16, 64, 1, 1, 0}, random);
  std::vector<float> statistics = {-std::numeric_limits<float>::infinity(), 0.0f}, garbage(16, 3.0f);
  const std::vector<PartialAttention> empty(2, {&statistics[0], &statistics[1], garbage.data()});
  merge_partials(p.block, 16, empty.data(), 2);
  for (int dim = 0; dim < 16; ++dim) EXPECT_EQ(p.out_at(0, 0, dim), 0.0f);
  EXPECT_EQ(p.row_max[0], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(p.row_sum[0], 0.0f);
}

TEST_P(AttentionTest, StatisticsWithoutValues) {
  std::mt19937 random(9);
  for (const KvType type : kTypes) {
    Problem p({type, 64, 200, 3, 9, 150}, random);
    std::vector<std::byte> scratch = scratch_for(p);
    attention_statistics(p.head.view(), p.block, 0, p.c.tokens, scratch.data());
    const std::vector<double> keys = p.head.keys(), values = p.head.values();
    for (int token = 0; token < p.c.tokens; ++token) {
      for (int member = 0; member < 3; ++member) {
        expect_statistics(p, attend_one(p, keys, values, token, member), token, member);
      }
    }
  }
}

TEST_P(AttentionTest, ColumnSums) {
  std::mt19937 random(10);
  for (const KvType type : kTypes) {
    for (const int window : {0, 120}) {
      Problem p({type, 64, 201, 3, 50, window}, random);
      std::vector<std::byte> scratch = scratch_for(p);
      attention_statistics(p.head.view(), p.block, 0, p.c.tokens, scratch.data());
      std::vector<float> columns(201, 1.0f);  // added to, not overwritten
      add_attention_columns(p.head.view(), p.block, 2, 45, columns.data(), scratch.data());
      const std::vector<double> keys = p.head.keys(), values = p.head.values();
      std::vector<double> expected(201, 1.0);
      for (int token = 2; token < 45; ++token) {
        for (int member = 0; member < 3; ++member) {
          const Expected e = attend_one(p, keys, values, token, member);
          for (std::size_t row = 0; row < expected.size(); ++row) expected[row] += e.weights[row];
        }
      }
      for (std::size_t row = 0; row < expected.size(); ++row)
        ASSERT_NEAR(columns[row], expected[row], 2e-5) << row;
    }
  }
}

// However few the queries, what policies look at is what it is over the same numbers in float.
TEST_P(AttentionTest, StatisticsOverQuantsAreThoseOfTheirNumbersToTheBit) {
  for (const int tokens : {1, 2, 30}) {
    const auto of = [tokens](KvType type, auto prepare) {
      std::mt19937 random(14);
      Problem p({type, 96, 201, 3, tokens, 0}, random);
      prepare(p);
      std::vector<std::byte> scratch = scratch_for(p);
      attention_statistics(p.head.view(), p.block, 0, tokens, scratch.data());
      std::vector<float> columns(201, 0.0f);
      add_attention_columns(p.head.view(), p.block, 0, tokens, columns.data(), scratch.data());
      return std::make_tuple(p.row_max, p.row_sum, columns);
    };
    std::vector<double> keys, values;
    const auto quants =
        of(KvType::kQ8_0, [&](Problem& p) { keys = p.head.keys(), values = p.head.values(); });
    const auto floats = of(KvType::kF32, [&](Problem& p) {
      p.rewrite({keys.begin(), keys.end()}, {values.begin(), values.end()});
    });
    EXPECT_EQ(quants, floats) << tokens;
  }
}

TEST(SimdTarget, IsTheBestOfTheMachine) {
  const std::string name = simd_target();
  if (machine_targets().size() > 1) {
    EXPECT_NE(name, "SCALAR");
    EXPECT_NE(name, "EMU128");
  }
  EXPECT_EQ(name, target_name({machine_targets().front(), 0}));
}

}  // namespace
}  // namespace keynest
