// Selection against sorting, on every SIMD target.
#include "kernels/select.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <tuple>

#include "kernels/kernel_test.h"

namespace keynest {
namespace {

using SelectTest = EveryTarget;
KEYNEST_EVERY_TARGET(SelectTest);

/// Scores and shuffled positions of one head.
struct Head {
  std::vector<float> scores;
  std::vector<Position> positions;

  ScoredRows view() const { return {scores, positions}; }
};

/// `levels` distinct scores (0: continuous), and now and then an infinity or a zero of either sign.
Head random_head(std::mt19937& random, int rows, int levels) {
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  Head head;
  const auto count = static_cast<std::size_t>(rows);
  std::vector<std::int32_t> positions(count);
  std::iota(positions.begin(), positions.end(), 3);
  std::shuffle(positions.begin(), positions.end(), random);
  for (int row = 0; row < rows; ++row) {
    float score = uniform(random);
    if (levels > 0) score = std::round(score * static_cast<float>(levels)) / static_cast<float>(levels);
    if (random() % 50 == 0) score = std::numeric_limits<float>::infinity();
    if (random() % 50 == 0) score = random() % 2 == 0 ? 0.0f : -0.0f;
    head.scores.push_back(score);
    head.positions.push_back(Position{positions[static_cast<std::size_t>(row)]});
    if (random() % 200 == 0) head.scores.back() = -std::numeric_limits<float>::infinity();
  }
  return head;
}

/// Best first: (-score, head, position, row).
using Ranked = std::vector<std::tuple<float, std::size_t, Position, Row>>;

void add_rows(const Head& head, std::size_t index, Ranked& all) {
  for (std::size_t row = 0; row < head.scores.size(); ++row) {
    all.emplace_back(-head.scores[row], index, head.positions[row], Row{static_cast<std::int32_t>(row)});
  }
}

/// Each head's own best `secured`, then the best of what is left.
std::vector<std::vector<Row>> select_by_sorting(const std::vector<Head>& heads, std::size_t total,
                                                std::size_t secured) {
  std::vector<std::vector<Row>> kept(heads.size());
  Ranked rest;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    Ranked own;
    add_rows(heads[h], h, own);
    std::sort(own.begin(), own.end());
    const std::size_t safe = std::min(secured, own.size());
    for (std::size_t i = 0; i < safe; ++i) kept[h].push_back(std::get<3>(own[i]));
    rest.insert(rest.end(), own.begin() + static_cast<std::ptrdiff_t>(safe), own.end());
    total -= safe;
  }
  std::sort(rest.begin(), rest.end());
  for (std::size_t i = 0; i < total; ++i) kept[std::get<1>(rest[i])].push_back(std::get<3>(rest[i]));
  for (std::vector<Row>& rows : kept) std::sort(rows.begin(), rows.end());
  return kept;
}

TEST_P(SelectTest, OneHeadAsSorted) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const int rows = 1 + static_cast<int>(random() % (round % 10 == 0 ? 3000 : 150));
    const Head head = random_head(random, rows, static_cast<int>(random() % 4) * 3);
    const auto k = random() % (head.scores.size() + 1);
    std::vector<Row> kept = {Row{7}};
    select_top_k(head.view(), static_cast<std::int64_t>(k), kept);
    ASSERT_EQ(kept, select_by_sorting({head}, k, 0)[0]) << "round " << round;
  }
}

TEST_P(SelectTest, AcrossHeadsAsSorted) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    std::vector<Head> heads;
    std::size_t all = 0, safe = 0;
    const std::size_t secured = random() % 3 == 0 ? 0 : random() % 100;
    for (unsigned h = 0; h < 1 + random() % 5; ++h) {
      heads.push_back(
          random_head(random, static_cast<int>(random() % 400), static_cast<int>(random() % 4) * 2));
      all += heads.back().scores.size();
      safe += std::min(secured, heads.back().scores.size());
    }
    std::vector<ScoredRows> views;
    for (const Head& head : heads) views.push_back(head.view());
    const std::size_t total = safe + random() % (all - safe + 1);
    std::vector<std::vector<Row>> kept(9, {Row{1}});
    select_across_heads(views, static_cast<std::int64_t>(total), static_cast<std::int64_t>(secured), kept);
    ASSERT_EQ(kept, select_by_sorting(heads, total, secured)) << "round " << round;
  }
}

TEST_P(SelectTest, EqualScoresGoByPosition) {
  Head head;
  head.scores.assign(200, 0.5f);
  for (int row = 0; row < 200; ++row) head.positions.push_back(Position{1000 - row});
  std::vector<Row> kept;
  select_top_k(head.view(), 2, kept);
  EXPECT_EQ(kept, (std::vector<Row>{Row{198}, Row{199}}));
}

}  // namespace
}  // namespace keynest
