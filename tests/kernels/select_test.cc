// Selection against sorting.
#include "kernels/select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <tuple>

namespace keynest {
namespace {

/// Scores, shuffled positions and candidates (shuffled rows, some left out) of one head.
struct Head {
  std::vector<float> scores;
  std::vector<Position> positions;
  std::vector<Row> candidates;

  HeadCandidates view() const { return {scores, positions, candidates}; }
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
    if (random() % 8 != 0) head.candidates.push_back(Row{row});
  }
  if (random() % 2 == 0) std::shuffle(head.candidates.begin(), head.candidates.end(), random);
  return head;
}

std::vector<std::vector<Row>> select_by_sorting(const std::vector<Head>& heads, std::size_t total) {
  std::vector<std::tuple<float, std::size_t, Position, Row>> all;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    for (const Row row : heads[h].candidates) {
      const auto r = static_cast<std::size_t>(to_int(row));
      all.emplace_back(-heads[h].scores[r], h, heads[h].positions[r], row);
    }
  }
  std::sort(all.begin(), all.end());
  std::vector<std::vector<Row>> kept(heads.size());
  for (std::size_t i = 0; i < total; ++i) kept[std::get<1>(all[i])].push_back(std::get<3>(all[i]));
  for (std::vector<Row>& rows : kept) std::sort(rows.begin(), rows.end());
  return kept;
}

TEST(Select, OneHeadAsSorted) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const int rows = 1 + static_cast<int>(random() % (round % 10 == 0 ? 3000 : 150));
    const Head head = random_head(random, rows, static_cast<int>(random() % 4) * 3);
    const auto k = static_cast<int>(random() % (head.candidates.size() + 1));
    std::vector<Row> kept = {Row{7}};
    select_top_k(head.scores, head.positions, head.candidates, k, kept);
    ASSERT_EQ(kept, select_by_sorting({head}, static_cast<std::size_t>(k))[0]) << "round " << round;
  }
}

TEST(Select, AcrossHeadsAsSorted) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    std::vector<Head> heads;
    std::vector<HeadCandidates> views;
    std::size_t candidates = 0;
    for (unsigned h = 0; h < 1 + random() % 5; ++h) {
      heads.push_back(
          random_head(random, 1 + static_cast<int>(random() % 400), static_cast<int>(random() % 4) * 2));
      candidates += heads.back().candidates.size();
    }
    for (const Head& head : heads) views.push_back(head.view());
    const std::size_t total = random() % (candidates + 1);
    std::vector<std::vector<Row>> kept(9, {Row{1}});
    select_across_heads(views, static_cast<std::int64_t>(total), kept);
    ASSERT_EQ(kept, select_by_sorting(heads, total)) << "round " << round;
  }
}

TEST(Select, EqualScoresGoByPosition) {
  const std::vector<float> scores(200, 0.5f);
  std::vector<Position> positions;
  std::vector<Row> candidates, kept;
  for (int row = 0; row < 200; ++row) {
    positions.push_back(Position{1000 - row});
    candidates.push_back(Row{row});
  }
  select_top_k(scores, positions, candidates, 2, kept);
  EXPECT_EQ(kept, (std::vector<Row>{Row{198}, Row{199}}));
}

}  // namespace
}  // namespace keynest
