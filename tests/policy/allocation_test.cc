// Budgets over layers and heads, and pins.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "policy/evictor.h"
#include "policy/golden_set.h"
#include "policy/head_allocation.h"
#include "policy/layer_allocation.h"

namespace keynest {
namespace {

std::shared_ptr<const Evictor> evictor(const std::string& spec, const CacheShape& shape = {30, 2, 3, 16}) {
  auto made = Evictor::create(*PolicySpec::parse(spec), shape);
  EXPECT_TRUE(made.ok());
  return *made;
}

TEST(Pyramid, GoldenBudgets) {
  for (const std::string& folder : golden::folders()) {
    const golden::PyramidTable table = golden::pyramid_table(folder);
    ASSERT_FALSE(table.budgets.empty()) << folder;
    std::size_t at = 0;
    for (const auto length : table.lengths) {
      for (const double ratio : table.ratios) {
        const double budget = static_cast<double>(length) * (1.0 - ratio);
        for (std::int32_t layer = 0; layer < table.layers; ++layer, ++at) {
          const PyramidShape shape{table.layers, static_cast<double>(length), budget, table.window,
                                   table.beta};
          EXPECT_EQ(pyramid_budget(shape, layer), table.budgets.data[at])
              << length << " " << ratio << " " << layer;
        }
      }
    }
  }
}

TEST(Pyramid, EvictorGivesSnapKVTheGoldenBudgets) {
  const golden::PyramidTable table = golden::pyramid_table(golden::folders()[0]);
  const auto snapkv = evictor("snapkv:layers=pyramid");
  std::size_t at = 0;
  for (const auto length : table.lengths) {
    for (const double ratio : table.ratios) {
      const double exact = static_cast<double>(length) * (1.0 - ratio);
      if (exact == std::floor(exact)) {
        const auto budgets =
            snapkv->layer_budgets(static_cast<std::int32_t>(exact), static_cast<std::int32_t>(length));
        ASSERT_TRUE(budgets.ok());
        for (std::size_t layer = 0; layer < 30; ++layer)
          EXPECT_EQ((*budgets)[layer], table.budgets.data[at + layer]);
      }
      at += 30;
    }
  }
}

TEST(Pyramid, SumsToTheWholeAndFallsWithDepth) {
  std::mt19937 rng(3);
  for (int i = 0; i < 300; ++i) {
    const int layers = 1 + static_cast<int>(rng() % 48);
    const std::int32_t n = 32 + static_cast<std::int32_t>(rng() % 4000);
    const std::int32_t length = rng() % 2 == 0 ? 0 : n + static_cast<std::int32_t>(rng() % 20000);
    const auto budgets = evictor("keydiff:layers=pyramid", {layers, 2, 3, 16})->layer_budgets(n, length);
    ASSERT_TRUE(budgets.ok());
    const double sum = std::accumulate(budgets->begin(), budgets->end(), 0.0);
    EXPECT_NEAR(sum, static_cast<double>(n) * layers, layers == 1 ? n : 0.5 * layers + 1)
        << layers << " " << n << " " << length;
    EXPECT_TRUE(std::is_sorted(budgets->rbegin(), budgets->rend()));
    EXPECT_GE(budgets->back(), 1);
    EXPECT_TRUE(length == 0 || budgets->front() <= length);
  }
}

TEST(Pyramid, IsSteepWherePossible) {
  const auto budgets = evictor("keydiff:layers=pyramid")->layer_budgets(1024, 8192);
  EXPECT_EQ(budgets->back(), 51);  // 1024 / 20
  EXPECT_EQ(budgets->front(), 1997);
  EXPECT_EQ(evictor("keydiff:layers=pyramid,beta=2")->layer_budgets(1024, 8192)->back(), 512);
  EXPECT_EQ(evictor("keydiff")->layer_budgets(1024, 8192)->front(), 1024);
}

TEST(Pins, BudgetsThatCannotHoldThemAreRefused) {
  const struct {
    const char* spec;
    std::int32_t budget;
    const char* said;
  } cases[] = {
      {"keydiff", 0, "a budget of 0 entries keeps nothing"},
      {"keydiff:keep_first=6,keep_last=5", 10,
       "cannot hold 11 pinned ones (first 6, most recent 5, protected 0)"},
      {"snapkv", 63, "most recent 64"},
      {"sink:first=8", 7, "first 8"},
      {"nestedkv", 3, "first 4"},
      {"keydiff:keep_first=60%,keep_last=60%", 100, "first 60, most recent 60"},
      {"snapkv:layers=pyramid,keep_first=80", 1400, "a budget of 70 entries cannot hold 144"},
  };
  for (const auto& c : cases) {
    const auto budgets = evictor(c.spec)->layer_budgets(c.budget, 4096);
    ASSERT_FALSE(budgets.ok()) << c.spec;
    EXPECT_EQ(budgets.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(budgets.error().message.find(c.said), std::string::npos) << budgets.error().message;
  }
  EXPECT_TRUE(evictor("snapkv")->layer_budgets(64, 4096).ok());
  EXPECT_TRUE(evictor("full")->layer_budgets(0, 4096).ok());
}

PositionRange range(std::int32_t first, std::int32_t last) { return {Position{first}, Position{last}}; }

TEST(Pins, ProtectedRangesAreChecked) {
  const auto keydiff = evictor("keydiff:keep_first=4");
  const auto said = [&](std::vector<PositionRange> ranges, std::int32_t budget) {
    const Status status = keydiff->check_pins(budget, ranges, 100);
    return status.ok() ? std::string("ok") : status.error().message;
  };
  EXPECT_EQ(said({range(0, 10), range(20, 30)}, 20), "ok");  // the first four are inside
  EXPECT_NE(said({range(2, 10), range(20, 30)}, 19).find("cannot hold 20 pinned"), std::string::npos);
  EXPECT_NE(said({range(5, 5)}, 50).find("[5, 5) is empty"), std::string::npos);
  EXPECT_NE(said({range(-3, 5)}, 50).find("empty"), std::string::npos);
  EXPECT_NE(said({range(20, 30), range(10, 21)}, 50).find("[10, 21) and [20, 30) overlap"),
            std::string::npos);
  EXPECT_NE(said({range(90, 101)}, 50).find("ends after the prompt of 100 tokens"), std::string::npos);
  EXPECT_FALSE(evictor("full")->check_pins(0, std::vector{range(3, 2)}, 0).ok());
  EXPECT_TRUE(evictor("full")->check_pins(0, std::vector{range(0, 500)}, 0).ok());
}

struct HeadScores {
  std::vector<float> scores;
  std::vector<Position> positions;
};

// Direct form of the competition, to compare with.
std::vector<std::vector<Row>> compete_slowly(const std::vector<HeadScores>& heads, int budget, int secured) {
  struct Entry {
    float score;
    std::size_t head;
    std::int32_t position, row;
  };
  const auto better = [](const Entry& a, const Entry& b) {
    if (a.score != b.score) return a.score > b.score;
    return a.head != b.head ? a.head < b.head : a.position < b.position;
  };
  std::vector<std::vector<Row>> kept(heads.size());
  std::vector<Entry> rest;
  std::size_t left = heads.size() * static_cast<std::size_t>(budget);
  for (std::size_t h = 0; h < heads.size(); ++h) {
    std::vector<Entry> own;
    for (std::size_t i = 0; i < heads[h].scores.size(); ++i) {
      own.push_back({heads[h].scores[i], h, to_int(heads[h].positions[i]), static_cast<std::int32_t>(i)});
    }
    std::sort(own.begin(), own.end(), better);
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (i >= static_cast<std::size_t>(secured)) rest.push_back(own[i]);
      if (i < static_cast<std::size_t>(secured)) kept[h].push_back(Row{own[i].row});
    }
    left -= kept[h].size();
  }
  std::sort(rest.begin(), rest.end(), better);
  for (std::size_t i = 0; i < std::min(left, rest.size()); ++i)
    kept[rest[i].head].push_back(Row{rest[i].row});
  for (auto& rows : kept) std::sort(rows.begin(), rows.end());
  return kept;
}

TEST(Heads, CompetitionEqualsItsDirectForm) {
  std::mt19937 rng(4);
  for (int round = 0; round < 300; ++round) {
    std::vector<HeadScores> heads(1 + rng() % 5);
    std::size_t total = 0;
    for (HeadScores& head : heads) {
      const std::size_t count = rng() % 60;
      for (std::size_t i = 0; i < count; ++i) {
        head.scores.push_back(static_cast<float>(rng() % 7));  // many ties
        head.positions.push_back(Position{static_cast<std::int32_t>(i)});
      }
      std::shuffle(head.positions.begin(), head.positions.end(), rng);
      total += count;
    }
    const int most = static_cast<int>(total / heads.size());
    if (most == 0) continue;
    const int budget = 1 + static_cast<int>(rng() % static_cast<std::size_t>(most));
    const int secured = static_cast<int>(rng() % static_cast<std::size_t>(budget + 1));
    std::vector<ScoredRows> views;
    for (const HeadScores& head : heads) views.push_back({head.scores, head.positions});
    std::vector<std::vector<Row>> kept;
    keep_across_heads(views, budget, secured, kept);
    ASSERT_EQ(kept, compete_slowly(heads, budget, secured)) << "round " << round;
  }
}

}  // namespace
}  // namespace keynest
