#include "cache/sequence_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "kernels/key_sums.h"
#include "kernels/rows.h"
#include "support/resident.h"

namespace keynest {
namespace {

constexpr int kHeadDim = 16;
constexpr int kLayers = 2;
constexpr int kHeads = 3;

std::shared_ptr<PagePool> make_pool(std::size_t pages = 1000) {
  const PageLayout layout = PageLayout::make(KvType::kF32, kHeadDim, 1);
  return std::make_shared<PagePool>(layout, pages * layout.bytes);
}

/// Entries are recognisable: every number of key and value follows from layer, head and position.
float key_of(int layer, int head, int position, int dim) {
  return static_cast<float>(position * 100 + layer * 40 + head * 10) + static_cast<float>(dim) / 64;
}

void write_block(SequenceCache& cache, int first_position, int count) {
  for (int layer = 0; layer < cache.layers(); ++layer) {
    for (int head = 0; head < cache.kv_heads(); ++head) {
      std::vector<float> keys, values;
      std::vector<Position> positions;
      for (int i = 0; i < count; ++i) {
        for (int d = 0; d < kHeadDim; ++d) keys.push_back(key_of(layer, head, first_position + i, d));
        for (int d = 0; d < kHeadDim; ++d) values.push_back(-key_of(layer, head, first_position + i, d));
        positions.push_back(Position{first_position + i});
      }
      write_rows(cache.rows(layer, head), Row{cache.head(layer, head).rows()}, count, keys.data(), kHeadDim,
                 values.data(), kHeadDim, positions.data());
    }
  }
}

void append(SequenceCache& cache, int first_position, int count) {
  ASSERT_TRUE(cache.reserve(count));
  write_block(cache, first_position, count);
  cache.commit();
}

/// Every entry of a head is whole: key, value and position belong together. Returns its positions.
std::set<int> check_head(const SequenceCache& cache, int layer, int head) {
  std::set<int> positions;
  const HeadRows rows = cache.rows(layer, head);
  for (int r = 0; r < rows.rows; ++r) {
    std::vector<float> key(kHeadDim), value(kHeadDim);
    read_key(rows, Row{r}, key.data());
    read_value(rows, Row{r}, value.data());
    const int position = to_int(rows.position(Row{r}));
    for (int d = 0; d < kHeadDim; ++d) {
      EXPECT_EQ(key[static_cast<std::size_t>(d)], key_of(layer, head, position, d));
      EXPECT_EQ(value[static_cast<std::size_t>(d)], -key_of(layer, head, position, d));
    }
    EXPECT_TRUE(positions.insert(position).second);
  }
  return positions;
}

/// Keeps a random subset in every head of a layer; returns the positions that must be left.
std::vector<std::set<int>> evict_randomly(SequenceCache& cache, int layer, std::mt19937& random) {
  std::vector<std::vector<Row>> kept(kHeads);
  std::vector<std::set<int>> expected(kHeads);
  for (int head = 0; head < kHeads; ++head) {
    const auto h = static_cast<std::size_t>(head);
    const unsigned share = random() % 101;
    const HeadRows rows = cache.rows(layer, head);
    for (int r = 0; r < rows.rows; ++r) {
      if (random() % 100 < share) {
        kept[h].push_back(Row{r});
        expected[h].insert(to_int(rows.position(Row{r})));
      }
    }
  }
  LayerEviction eviction;
  cache.plan(layer, kept, eviction);
  std::vector<LayerEviction*> all{&eviction};
  EXPECT_TRUE(cache.prepare(all));
  for (int head = 0; head < kHeads; ++head) cache.apply(eviction, head);
  return expected;
}

TEST(MovesToKeep, FillsHolesFromTheTail) {
  const std::vector<Row> kept{Row{0}, Row{2}, Row{5}, Row{7}};
  std::vector<RowMove> moves{{Row{9}, Row{9}}};
  moves_to_keep(kept, moves);
  ASSERT_EQ(moves.size(), 2u);
  EXPECT_EQ(moves[0].from, Row{5});
  EXPECT_EQ(moves[0].to, Row{1});
  EXPECT_EQ(moves[1].from, Row{7});
  EXPECT_EQ(moves[1].to, Row{3});
  moves_to_keep({}, moves);
  EXPECT_TRUE(moves.empty());
}

TEST(SequenceCache, RandomAppendsAndEvictionsKeepEntriesWhole) {
  std::mt19937 random(1);
  auto pool = make_pool();
  {
    SequenceCache cache(pool, kLayers, kHeads);
    int position = 0;
    for (int round = 0; round < 60; ++round) {
      const int count = 1 + static_cast<int>(random() % 150);
      append(cache, position, count);
      position += count;
      for (int layer = 0; layer < kLayers; ++layer) {
        const auto expected = evict_randomly(cache, layer, random);
        for (int head = 0; head < kHeads; ++head) {
          EXPECT_EQ(check_head(cache, layer, head), expected[static_cast<std::size_t>(head)]);
        }
      }
    }
    std::size_t pages = 0;
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int head = 0; head < kHeads; ++head) {
        pages += static_cast<std::size_t>((cache.head(layer, head).rows() + kPageRows - 1) / kPageRows);
      }
    }
    EXPECT_EQ(pool->pages_in_use(), pages) << "at most one page of a head is partly empty";
  }
  EXPECT_EQ(pool->pages_in_use(), 0u);
}

TEST(SequenceCache, CancelledAndRefusedStepsLeaveNoTrace) {
  auto pool = make_pool(kLayers * kHeads * 3);
  SequenceCache cache(pool, kLayers, kHeads);
  append(cache, 0, 100);
  const std::size_t before = pool->bytes();
  ASSERT_TRUE(cache.reserve(90));
  write_block(cache, 100, 90);
  cache.cancel();
  EXPECT_EQ(pool->bytes(), before);
  const Status refused = cache.reserve(200);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(pool->bytes(), before);
  EXPECT_EQ(check_head(cache, 1, 2).size(), 100u);
  append(cache, 100, 80);
  EXPECT_EQ(check_head(cache, 1, 2).size(), 180u);
}

/// Random rows of every head of layer 1 that stay, and their positions.
struct Choice {
  std::vector<std::vector<Row>> kept{kHeads};
  std::vector<std::set<int>> positions{kHeads};

  Choice(const SequenceCache& cache, std::mt19937& random) {
    for (int head = 0; head < kHeads; ++head) {
      const HeadRows rows = cache.rows(1, head);
      for (int r = 0; r < rows.rows; ++r) {
        if (random() % 2 == 0) continue;
        kept[static_cast<std::size_t>(head)].push_back(Row{r});
        positions[static_cast<std::size_t>(head)].insert(to_int(rows.position(Row{r})));
      }
    }
  }
};

std::vector<int> positions_by_row(const SequenceCache& cache, int layer, int head) {
  std::vector<int> positions;
  const HeadRows rows = cache.rows(layer, head);
  for (int r = 0; r < rows.rows; ++r) positions.push_back(to_int(rows.position(Row{r})));
  return positions;
}

TEST(SequenceCache, MovesMadeAheadAreTakenBackOrApplied) {
  std::mt19937 random(5);
  auto pool = make_pool();
  SequenceCache cache(pool, kLayers, kHeads);
  append(cache, 0, 100);
  LayerEviction eviction;
  for (const bool goes_through : {false, true}) {
    ASSERT_TRUE(cache.reserve(90));
    write_block(cache, 100, 90);
    const Choice choice(cache, random);
    const std::vector<int> before = positions_by_row(cache, 1, 2);
    cache.plan(1, choice.kept, eviction);
    for (int head = 0; head < kHeads; ++head) cache.arrange(eviction, head);
    EXPECT_NE(positions_by_row(cache, 1, 2), before) << "nothing was arranged";
    EXPECT_EQ(check_head(cache, 1, 2).size(), 190u) << "an entry was lost";
    if (goes_through) {
      std::vector<LayerEviction*> all{&eviction};
      ASSERT_TRUE(cache.prepare(all));
      cache.commit();
      for (int head = 0; head < kHeads; ++head) cache.apply(eviction, head);
      for (int head = 0; head < kHeads; ++head) {
        EXPECT_EQ(check_head(cache, 1, head), choice.positions[static_cast<std::size_t>(head)]);
      }
    }
    cache.take_back(eviction);  // after apply() without effect
    if (!goes_through) {
      EXPECT_EQ(positions_by_row(cache, 1, 2), before);
      cache.cancel();
      EXPECT_EQ(*check_head(cache, 1, 2).rbegin(), 99);
    }
  }
  EXPECT_EQ(check_head(cache, 0, 0).size(), 190u) << "another layer was touched";
}

TEST(SequenceCache, SharedPagesAreNotArranged) {
  std::mt19937 random(6);
  auto pool = make_pool();
  SequenceCache cache(pool, kLayers, kHeads);
  append(cache, 0, 150);
  const SequenceCache fork = cache.fork();
  const Choice choice(cache, random);
  const std::vector<int> before = positions_by_row(cache, 1, 0);
  LayerEviction eviction;
  cache.plan(1, choice.kept, eviction);
  for (int head = 0; head < kHeads; ++head) cache.arrange(eviction, head);
  EXPECT_EQ(positions_by_row(cache, 1, 0), before);
  std::vector<LayerEviction*> all{&eviction};
  ASSERT_TRUE(cache.prepare(all));
  for (int head = 0; head < kHeads; ++head) cache.apply(eviction, head);
  EXPECT_EQ(check_head(cache, 1, 0), choice.positions[0]);
  EXPECT_EQ(positions_by_row(fork, 1, 0), before);
}

/// |resident memory - what the pool says| since `before`, as a share of `scale` bytes.
double disagreement(std::size_t before, const PagePool& pool, std::size_t scale) {
  const double grown = static_cast<double>(test::resident_bytes()) - static_cast<double>(before);
  return std::abs(grown - static_cast<double>(pool.bytes())) / static_cast<double>(scale);
}

TEST(SequenceCache, ResidentMemoryAgreesWithThePool) {
  if (!test::kResidentIsTelling) GTEST_SKIP() << "resident memory holds the sanitizer's own";
  auto pool = make_pool(20'000);
  SequenceCache cache(pool, kLayers, kHeads);
  const std::size_t before = test::resident_bytes();
  for (int block = 0; block < 100; ++block) append(cache, block * 400, 400);  // 40,000 entries a head
  const std::size_t full = pool->bytes();
  ASSERT_GT(full, std::size_t{30'000'000});
  EXPECT_LE(disagreement(before, *pool, full), 0.05);

  // Heads that keep different amounts really free memory.
  for (int layer = 0; layer < kLayers; ++layer) {
    std::vector<std::vector<Row>> kept(kHeads);
    for (int head = 0; head < kHeads; ++head) {
      for (int r = 0; r < 40'000; r += 10 * (head + 1))
        kept[static_cast<std::size_t>(head)].push_back(Row{r});
    }
    LayerEviction eviction;
    cache.plan(layer, kept, eviction);
    std::vector<LayerEviction*> all{&eviction};
    ASSERT_TRUE(cache.prepare(all));
    for (int head = 0; head < kHeads; ++head) cache.apply(eviction, head);
  }
  pool->trim();
  EXPECT_LT(pool->bytes(), full / 10);
  EXPECT_LE(disagreement(before, *pool, full), 0.05);
}

TEST(SequenceCache, ForksShareUntilWritten) {
  std::mt19937 random(2);
  auto pool = make_pool();
  SequenceCache original(pool, kLayers, kHeads);
  append(original, 0, 200);
  const std::size_t alone = pool->bytes();
  {
    SequenceCache copy = original.fork();
    EXPECT_EQ(pool->bytes(), alone) << "a fork shares every page";
    append(copy, 200, 10);
    EXPECT_EQ(pool->bytes(), alone + kLayers * kHeads * pool->layout().bytes)
        << "only the last pages are copied";
    append(original, 200, 70);
    for (int layer = 0; layer < kLayers; ++layer) evict_randomly(copy, layer, random);
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int head = 0; head < kHeads; ++head) {
        EXPECT_EQ(check_head(original, layer, head).size(), 270u);
        check_head(copy, layer, head);
      }
    }
  }
  EXPECT_EQ(pool->bytes(), alone + kLayers * kHeads * pool->layout().bytes)
      << "270 rows take 5 pages instead of 4";
}

TEST(SequenceCache, ExclusiveReserveCopiesEverySharedPage) {
  auto pool = make_pool();
  SequenceCache original(pool, kLayers, kHeads);
  append(original, 0, 128);
  SequenceCache copy = original.fork();
  ASSERT_TRUE(copy.reserve(1, true));
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int head = 0; head < kHeads; ++head) {
      const HeadRows rows = copy.rows(layer, head);
      rows.state(0, 0)[5] = 7.0f;
      EXPECT_NE(original.rows(layer, head).state(0, 0)[5], 7.0f);
    }
  }
  copy.cancel();
}

// ------------------------------------------------------------------------------------------ sums of keys

class UnitSums : public testing::TestWithParam<KvType> {
 protected:
  static constexpr int kDim = 32;

  UnitSums() {
    const PageLayout layout = PageLayout::make(GetParam(), kDim, 0);
    pool_ = std::make_shared<PagePool>(layout, 4000 * layout.bytes);
  }

  void append(SequenceCache& cache, int count, bool commit = true) {
    ASSERT_TRUE(cache.reserve(count));
    std::normal_distribution<float> normal;
    std::vector<float> keys(static_cast<std::size_t>(count * kDim));
    std::vector<Position> positions;
    for (int i = 0; i < count; ++i) positions.push_back(Position{next_position_++});
    for (int head = 0; head < kHeads; ++head) {
      for (float& x : keys) x = normal(random_);
      write_rows(cache.rows(0, head), Row{cache.head(0, head).rows()}, count, keys.data(), kDim, keys.data(),
                 kDim, positions.data());
    }
    if (commit) cache.commit();
  }

  /// Drops `count` random rows of every head, from `first` on.
  void evict(SequenceCache& cache, int count, int first = 0, const KeyRotation* rotation = nullptr) {
    std::vector<std::vector<Row>> kept(kHeads);
    for (int head = 0; head < kHeads; ++head) {
      std::vector<Row>& rows = kept[static_cast<std::size_t>(head)];
      for (int r = 0; r < cache.rows(0, head).rows; ++r) rows.push_back(Row{r});
      for (int i = 0; i < count; ++i) {
        const auto range = rows.size() - static_cast<std::size_t>(first);
        rows.erase(rows.begin() + first + static_cast<std::ptrdiff_t>(random_() % range));
      }
    }
    LayerEviction eviction;
    cache.plan(0, kept, eviction, rotation);
    std::vector<LayerEviction*> all{&eviction};
    ASSERT_TRUE(cache.prepare(all));
    for (int head = 0; head < kHeads; ++head) cache.apply(eviction, head);
  }

  /// Appends rows and drops as many, with the moves made before they are committed; or takes it all back.
  void exchange(SequenceCache& cache, int count, bool goes_through) {
    append(cache, count, false);
    std::vector<std::vector<Row>> kept(kHeads);
    for (std::vector<Row>& rows : kept) {
      for (int r = count; r < cache.rows(0, 0).rows; ++r) rows.push_back(Row{r});
    }
    LayerEviction eviction;
    cache.plan(0, kept, eviction);
    for (int head = 0; head < kHeads; ++head) cache.arrange(eviction, head);
    if (!goes_through) {
      cache.take_back(eviction);
      return cache.cancel();
    }
    std::vector<LayerEviction*> all{&eviction};
    ASSERT_TRUE(cache.prepare(all));
    cache.commit();
    for (int head = 0; head < kHeads; ++head) cache.apply(eviction, head);
  }

  /// Whatever is maintained is what a pass over all rows finds.
  static void expect_exact(const SequenceCache& cache) {
    for (int head = 0; head < kHeads; ++head) {
      const HeadRows rows = cache.rows(0, head);
      HeadRows fresh = rows;
      fresh.unit_sum = nullptr;
      fresh.summed_rows = 0;
      std::vector<double> maintained(kDim), summed(kDim);
      sum_unit_keys(rows, maintained.data());
      sum_unit_keys(fresh, summed.data());
      ASSERT_EQ(maintained, summed) << head;
    }
  }

  static std::int32_t summed_rows(const SequenceCache& cache) { return cache.rows(0, 1).summed_rows; }

  std::shared_ptr<PagePool> pool_;
  std::mt19937 random_{1};
  int next_position_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Types, UnitSums,
                         testing::Values(KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(UnitSums, AreNotKeptUnasked) {
  SequenceCache cache(pool_, 1, kHeads);
  append(cache, 500);
  evict(cache, 2);
  EXPECT_EQ(summed_rows(cache), 0);
}

TEST_P(UnitSums, AreKeptThroughEvictionsAppendsAndForks) {
  SequenceCache cache(pool_, 1, kHeads);
  cache.keep_unit_sum(0);
  append(cache, 600);
  expect_exact(cache);
  for (int round = 0; round < 30; ++round) {
    const int count = 1 + static_cast<int>(random_() % 4);
    append(cache, count);
    expect_exact(cache);
    evict(cache, count, round % 3 == 0 ? 590 : 0);
    EXPECT_EQ(summed_rows(cache), 600);
    expect_exact(cache);
  }
  const SequenceCache copy = cache.fork();
  EXPECT_EQ(summed_rows(copy), 600);
  append(cache, 70);
  evict(cache, 5);
  expect_exact(cache);
  expect_exact(copy);
  EXPECT_EQ(summed_rows(cache), 665);
}

TEST_P(UnitSums, AreKeptWhereMovesAreMadeAhead) {
  SequenceCache cache(pool_, 1, kHeads);
  cache.keep_unit_sum(0);
  append(cache, 500);
  for (const bool goes_through : {true, true, false, true}) {
    exchange(cache, 2, goes_through);
    EXPECT_EQ(summed_rows(cache), goes_through ? 500 : 0);
    expect_exact(cache);
  }
}

TEST_P(UnitSums, AreDroppedWhereAPassCostsLess) {
  SequenceCache cache(pool_, 1, kHeads);
  cache.keep_unit_sum(0);
  append(cache, 640);
  evict(cache, 5);
  EXPECT_EQ(summed_rows(cache), 635);
  evict(cache, 5);
  EXPECT_EQ(summed_rows(cache), 0);
  expect_exact(cache);
  evict(cache, 4);
  EXPECT_EQ(summed_rows(cache), 626);
  expect_exact(cache);
}

TEST_P(UnitSums, SurviveWhatIsRolledBackAfterThem) {
  SequenceCache cache(pool_, 1, kHeads);
  cache.keep_unit_sum(0);
  append(cache, 640);
  evict(cache, 5);
  append(cache, 50);
  for (int head = 0; head < kHeads; ++head) cache.truncate(0, head, 640);
  EXPECT_EQ(summed_rows(cache), 635);
  expect_exact(cache);
  for (int head = 0; head < kHeads; ++head) cache.truncate(0, head, 634);
  EXPECT_EQ(summed_rows(cache), 0);
  append(cache, 3);
  expect_exact(cache);
}

TEST_P(UnitSums, AreDroppedWhenKeysTurn) {
  SequenceCache cache(pool_, 1, kHeads);
  cache.keep_unit_sum(0);
  append(cache, 640);
  evict(cache, 4);
  EXPECT_EQ(summed_rows(cache), 636);
  const std::vector<float> frequencies(kDim / 2, 0.5f);
  const KeyRotation rotation{frequencies, true};
  evict(cache, 4, 0, &rotation);
  EXPECT_EQ(summed_rows(cache), 0);
  expect_exact(cache);
}

TEST(SequenceCache, PreparingCopiesIsRefusedWhole) {
  auto pool = make_pool(kLayers * kHeads * 2);
  SequenceCache original(pool, kLayers, kHeads);
  append(original, 0, 128);
  SequenceCache copy = original.fork();
  std::vector<std::vector<Row>> kept(kHeads);
  for (auto& rows : kept) {
    for (int r = 1; r < 128; ++r) rows.push_back(Row{r});
  }
  LayerEviction eviction;
  copy.plan(0, kept, eviction);
  std::vector<LayerEviction*> all{&eviction};
  const Status refused = copy.prepare(all);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(check_head(copy, 0, 0).size(), 128u);
}

// ------------------------------------------------------------------------------------------ ranks

TEST(TurnsToRanks, RanksFollowPositionsWhereverTheRowsLie) {
  SequenceCache cache(make_pool(), 1, 1);
  const std::vector<Position> positions{Position{30}, Position{10}, Position{50}, Position{20}, Position{40}};
  const std::vector<float> zeros(5 * kHeadDim);
  ASSERT_TRUE(cache.reserve(5));
  write_rows(cache.rows(0, 0), Row{0}, 5, zeros.data(), kHeadDim, zeros.data(), kHeadDim, positions.data());
  // Kept are positions 10, 30, 40 (ranks 0, 2, 3 before); the row of 40 moves into the hole at 2.
  const std::vector<Row> kept{Row{0}, Row{1}, Row{4}};
  std::vector<RowMove> moves;
  std::vector<RowTurn> turns;
  moves_to_keep(kept, moves);
  turns_to_ranks(cache.rows(0, 0), kept, moves, turns);
  ASSERT_EQ(turns.size(), 2u);
  EXPECT_EQ(turns[0].row, Row{0});
  EXPECT_EQ(turns[0].by, -1);
  EXPECT_EQ(turns[1].row, Row{2});
  EXPECT_EQ(turns[1].by, -1);
  cache.cancel();
}

const std::vector<float> kFrequencies(kHeadDim / 2, 0.5f);
const KeyRotation kRotation{kFrequencies, true};

/// Drops the first row of every head of layer 0.
std::vector<std::vector<Row>> all_but_the_first(int rows) {
  std::vector<std::vector<Row>> kept(kHeads);
  for (auto& head : kept) {
    for (int r = 1; r < rows; ++r) head.push_back(Row{r});
  }
  return kept;
}

TEST(SequenceCache, TurningKeysCopiesSharedPages) {
  auto pool = make_pool();
  SequenceCache original(pool, kLayers, kHeads);
  append(original, 0, 128);
  SequenceCache copy = original.fork();
  const std::size_t before = pool->pages_in_use();
  LayerEviction eviction;
  copy.plan(0, all_but_the_first(128), eviction, &kRotation);
  std::vector<LayerEviction*> all{&eviction};
  ASSERT_TRUE(copy.prepare(all));
  EXPECT_EQ(pool->pages_in_use(), before + 2 * kHeads) << "both pages of a head are written";
  for (int head = 0; head < kHeads; ++head) copy.apply(eviction, head);
  EXPECT_EQ(pool->pages_in_use(), before + 2 * kHeads);
  for (int head = 0; head < kHeads; ++head) {
    EXPECT_EQ(check_head(original, 0, head).size(), 128u) << "the other holder's keys are as they were";
    const HeadRows rows = copy.rows(0, head);
    for (int r = 0; r < rows.rows; ++r) {
      const int position = to_int(rows.position(Row{r}));
      std::vector<float> key(kHeadDim);
      read_key(rows, Row{r}, key.data());
      const double x = key_of(0, head, position, 0), y = key_of(0, head, position, 1);
      EXPECT_NEAR(key[0], x * std::cos(-0.5) - y * std::sin(-0.5), 1e-2);
      EXPECT_NEAR(key[1], x * std::sin(-0.5) + y * std::cos(-0.5), 1e-2);
    }
  }
}

TEST(SequenceCache, TurnsThatFindNoPagesAreRefusedWhole) {
  auto pool = make_pool(kLayers * kHeads * 2 + kHeads);  // enough for the moves, not for the turns
  SequenceCache original(pool, kLayers, kHeads);
  append(original, 0, 128);
  SequenceCache copy = original.fork();
  LayerEviction eviction;
  copy.plan(0, all_but_the_first(128), eviction, &kRotation);
  std::vector<LayerEviction*> all{&eviction};
  const Status refused = copy.prepare(all);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  for (int head = 0; head < kHeads; ++head) EXPECT_EQ(check_head(copy, 0, head).size(), 128u);
}

}  // namespace
}  // namespace keynest
