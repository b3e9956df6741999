// Laws for any valid spec, on random keys: bound, no eviction below the budget, one-shot equals
// schedule=prefill, key-only policies do not see queries, pins stay, KV types.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cache/page_pool.h"
#include "engine/replay.h"
#include "policy/evictor.h"
#include "policy/registry.h"

namespace keynest {
namespace {

struct RandomLayer {
  RandomLayer(std::uint32_t seed, std::int32_t kv_heads, std::int32_t group, std::int32_t tokens,
              std::int32_t head_dim) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    const auto count = static_cast<std::size_t>(kv_heads * tokens * head_dim);
    keys.resize(count);
    queries.resize(count * static_cast<std::size_t>(group));
    for (float& x : keys) x = normal(rng) + 0.3f;
    for (float& x : queries) x = normal(rng);
    tensors = {keys, queries, {}, kv_heads, kv_heads * group, tokens, head_dim};
  }
  std::vector<float> keys, queries;
  LayerTensors tensors;
};

PolicySpec parse(const std::string& text) {
  const auto spec = PolicySpec::parse(text);
  EXPECT_TRUE(spec.ok()) << text << ": " << spec.error().message;
  return *spec;
}

template <typename T>
const T& pick(const std::vector<T>& from, std::mt19937& rng) {
  return from[rng() % from.size()];
}

const std::vector<std::string> kMethods = {"full",
                                           "sink",
                                           "sink:first=0",
                                           "keydiff",
                                           "keydiff:anchor=mean_raw,metric=dot",
                                           "keydiff:anchor=median",
                                           "keydiff:anchor=median_raw,metric=euclid",
                                           "keydiff:anchor=pairwise",
                                           "knorm",
                                           "random:seed=3",
                                           "tova",
                                           "tova:group=head",
                                           "snapkv:window=4",
                                           "snapkv:window=9,kernel=3,pool=max",
                                           "h2o",
                                           "h2o:recent=50%",
                                           "h2o:recent=2,norm=mean",
                                           "nestedkv",
                                           "nestedkv:heads=uniform",
                                           "nestedkv:episode=5",
                                           "nestedkv:scales=stable+current,blend=prior",
                                           "nestedkv:scales=episodic,surprise=off,first=0,episode=1"};

bool heads_given(const std::string& text) { return text.find("heads=") != std::string::npos; }

std::string random_spec(std::mt19937& rng) {
  std::string text = pick(kMethods, rng);
  const auto add = [&](const std::string& option) {
    text += (text.find(':') == std::string::npos ? ":" : ",") + option;
  };
  if (rng() % 2 && !heads_given(text) && !text.starts_with("nestedkv")) add("heads=adaptive");
  if (rng() % 4 == 0 && text.find("heads=adaptive") != std::string::npos)
    add("safeguard=" + std::to_string(rng() % 101) + "%");
  if (rng() % 3 == 0) add("keep_first=" + std::to_string(rng() % 5));
  if (rng() % 3 == 0) add("keep_last=" + std::to_string(rng() % 40) + "%");
  if (rng() % 5 == 0) add("schedule=prefill");
  return text;
}

std::vector<std::int32_t> random_lengths(std::int32_t tokens, std::mt19937& rng) {
  std::vector<std::int32_t> lengths;
  const std::int32_t most = 1 + static_cast<std::int32_t>(rng() % 40);
  for (std::int32_t left = tokens; left > 0; left -= lengths.back()) {
    lengths.push_back(
        std::min(left, 1 + static_cast<std::int32_t>(rng() % static_cast<std::uint32_t>(most))));
  }
  return lengths;
}

bool refused_for_pins(const Result<ReplayResult>& result) {
  return !result.ok() && result.error().code == ErrorCode::kInvalidArgument &&
         result.error().message.find("pinned") != std::string::npos;
}

std::int64_t entries(const HeadPositions& held) {
  std::int64_t sum = 0;
  for (const auto& head : held) sum += static_cast<std::int64_t>(head.size());
  return sum;
}

void expect_bound(const PolicySpec& spec, const ReplayResult& result, const ReplayOptions& options,
                  std::int64_t heads) {
  if (spec.method == "full") return;
  const std::int32_t block = *std::max_element(options.lengths.begin(), options.lengths.end());
  if (spec.schedule == Schedule::kBlock) {
    EXPECT_LE(result.peak_entries, heads * (options.budget + block));
    for (const HeadPositions& held : result.trace) EXPECT_LE(entries(held), heads * options.budget);
  }
  EXPECT_LE(entries(result.kept), heads * options.budget);
}

void expect_pins(const PolicySpec& spec, const ReplayResult& result, const ReplayOptions& options,
                 std::int32_t tokens) {
  for (const auto& head : result.kept) {
    const auto holds = [&](std::int32_t p) {
      return std::binary_search(head.begin(), head.end(), Position{p});
    };
    for (std::int32_t p = 0; p < std::min(tokens, spec.keep_first.entries(options.budget)); ++p)
      EXPECT_TRUE(holds(p)) << p;
    for (std::int32_t p = std::max(0, tokens - spec.keep_last.entries(options.budget)); p < tokens; ++p)
      EXPECT_TRUE(holds(p)) << p;
    for (const PositionRange& range : options.protected_ranges) {
      for (std::int32_t p = to_int(range.first); p < to_int(range.last); ++p) EXPECT_TRUE(holds(p)) << p;
    }
  }
}

TEST(Laws, AnySpecKeepsItsBoundAndItsPins) {
  std::mt19937 rng(11);
  int ran = 0;
  for (int round = 0; round < 400; ++round) {
    const std::int32_t tokens = 1 + static_cast<std::int32_t>(rng() % 150);
    const RandomLayer layer(rng(), 1 + static_cast<std::int32_t>(rng() % 3),
                            1 + static_cast<std::int32_t>(rng() % 3), tokens, 16);
    const std::string text = random_spec(rng);
    ReplayOptions options;
    options.budget = 1 + static_cast<std::int32_t>(rng() % 60);
    options.lengths = random_lengths(tokens, rng);
    options.trace = true;
    if (rng() % 3 == 0 && tokens > 30 && options.budget > 12)
      options.protected_ranges = {{Position{10}, Position{14}}, {Position{20}, Position{22}}};
    SCOPED_TRACE(text + ", N = " + std::to_string(options.budget) + ", round " + std::to_string(round));
    const PolicySpec spec = parse(text);
    const auto result = replay(spec, layer.tensors, options);
    if (refused_for_pins(result)) continue;
    ASSERT_TRUE(result.ok()) << result.error().message;
    ++ran;
    expect_bound(spec, *result, options, layer.tensors.kv_heads);
    expect_pins(spec, *result, options, tokens);
  }
  EXPECT_GT(ran, 250);
}

TEST(Laws, ABudgetOfTheLengthKeepsEverything) {
  std::mt19937 rng(12);
  const RandomLayer layer(1, 2, 2, 70, 16);
  for (const std::string& text : kMethods) {
    ReplayOptions options;
    options.budget = 70;
    options.lengths = random_lengths(70, rng);
    const auto result = replay(parse(text), layer.tensors, options);
    ASSERT_TRUE(result.ok()) << text;
    for (const auto& head : result->kept) EXPECT_EQ(head.size(), 70u) << text;
    EXPECT_TRUE(result->scored.empty()) << text;
  }
}

TEST(Laws, PrefillScheduleEqualsOneShotWhateverTheBlocks) {
  std::mt19937 rng(13);
  for (const std::string& text : kMethods) {
    const RandomLayer layer(rng(), 2, 2, 140, 16);
    PolicySpec spec = parse(text);
    ReplayOptions options;
    options.budget = 30;
    const auto once = replay(spec, layer.tensors, options);
    ASSERT_TRUE(once.ok()) << text << once.error().message;
    spec.schedule = Schedule::kPrefill;
    for (int round = 0; round < 3; ++round) {
      options.lengths = random_lengths(140, rng);
      const auto blocks = replay(spec, layer.tensors, options);
      ASSERT_TRUE(blocks.ok()) << text;
      EXPECT_EQ(blocks->kept, once->kept) << text;
    }
  }
}

TEST(Laws, KeyOnlyPoliciesDoNotSeeQueries) {
  std::mt19937 rng(14);
  int with_attention = 0;
  for (const std::string& text : kMethods) {
    RandomLayer layer(7, 2, 2, 100, 16);
    ReplayOptions options;
    options.budget = 25;
    options.lengths = random_lengths(100, rng);
    const auto one = replay(parse(text), layer.tensors, options);
    for (float& x : layer.queries) x = -2 * x + 1;
    const auto two = replay(parse(text), layer.tensors, options);
    layer.tensors.queries = {};
    const auto none = replay(parse(text), layer.tensors, options);
    ASSERT_TRUE(one.ok() && two.ok()) << text;
    if (!none.ok()) {
      ++with_attention;
      EXPECT_NE(none.error().message.find("no queries are given"), std::string::npos);
      EXPECT_NE(one->kept, two->kept) << text << " should look at queries";
      continue;
    }
    EXPECT_EQ(one->kept, two->kept) << text;
    EXPECT_EQ(one->kept, none->kept) << text;
  }
  EXPECT_EQ(with_attention, 7);
}

TEST(Laws, TovaKeepsOneSetPerLayerAndGroupHeadDoesNot) {
  const RandomLayer layer(8, 3, 2, 120, 16);
  ReplayOptions options;
  options.budget = 20;
  options.lengths = {40, 40, 39, 1};
  const auto shared = replay(parse("tova"), layer.tensors, options);
  EXPECT_EQ(shared->kept[0], shared->kept[1]);
  EXPECT_EQ(shared->kept[0], shared->kept[2]);
  const auto own = replay(parse("tova:group=head"), layer.tensors, options);
  EXPECT_NE(own->kept[0], own->kept[1]);
  EXPECT_FALSE(PolicySpec::parse("tova:group=layer,heads=adaptive").ok());
}

TEST(Laws, HeadsThatCompeteReallyHoldDifferentNumbers) {
  RandomLayer layer(9, 3, 1, 400, 16);
  for (std::size_t i = 0; i < 400 * 16; ++i) layer.keys[i] += 1.5f;  // head 0: one direction for all
  ReplayOptions options;
  options.budget = 64;
  options.lengths = {128, 128, 128, 16};
  const auto result = replay(parse("keydiff:heads=adaptive"), layer.tensors, options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(entries(result->kept), 3 * 64);
  EXPECT_LT(result->kept[0].size(), result->kept[1].size());
  EXPECT_GE(result->kept[0].size(), 12u);  // the safeguard, int(0.2 * 64)
}

TEST(Laws, RandomIsASampleThatItsSeedDecides) {
  const RandomLayer layer(10, 2, 1, 400, 8);
  ReplayOptions options;
  options.budget = 100;
  const auto once = replay(parse("random"), layer.tensors, options);
  options.lengths = {150, 100, 150};
  EXPECT_EQ(replay(parse("random"), layer.tensors, options)->kept, once->kept);
  EXPECT_NE(replay(parse("random:seed=1"), layer.tensors, options)->kept, once->kept);
  EXPECT_NE(once->kept[0], once->kept[1]);
  options.layer = 1;
  EXPECT_NE(replay(parse("random"), layer.tensors, options)->kept, once->kept);
}

// Rounding of the stored keys moves scores a little; the sets stay nearly the same.
TEST(Laws, EveryKvTypeScoresNearlyTheSame) {
  const RandomLayer layer(15, 2, 2, 300, 32);
  const struct {
    KvType type;
    std::size_t differing;  // entries per head that may differ of 60
  } types[] = {{KvType::kF16, 2}, {KvType::kBF16, 6}, {KvType::kQ8_0, 8}};
  for (const std::string& text : kMethods) {
    ReplayOptions options;
    options.budget = 60;
    const auto exact = replay(parse(text), layer.tensors, options);
    ASSERT_TRUE(exact.ok()) << text;
    for (const auto& t : types) {
      options.type = t.type;
      const auto rounded = replay(parse(text), layer.tensors, options);
      ASSERT_TRUE(rounded.ok()) << text << rounded.error().message;
      EXPECT_EQ(entries(rounded->kept), entries(exact->kept));
      for (std::size_t h = 0; h < 2; ++h) {
        std::vector<Position> same;
        std::set_intersection(exact->kept[h].begin(), exact->kept[h].end(), rounded->kept[h].begin(),
                              rounded->kept[h].end(), std::back_inserter(same));
        EXPECT_GE(same.size() + t.differing, exact->kept[h].size())
            << text << ", type " << static_cast<int>(t.type);
      }
    }
  }
}

TEST(Laws, AnyHeadSizeIsAllowed) {
  for (std::int32_t dim : {1, 5, 12, 40}) {
    const RandomLayer layer(16, 1, 2, 50, dim);
    for (const std::string& text : kMethods) {
      ReplayOptions options;
      options.budget = 12;
      EXPECT_TRUE(replay(parse(text), layer.tensors, options).ok()) << text << ", head size " << dim;
    }
  }
}

TEST(BadInput, NonFiniteNumbersNameHeadAndPosition) {
  RandomLayer layer(17, 2, 1, 20, 8);
  ReplayOptions options;
  options.budget = 5;
  layer.keys[(20 + 7) * 8 + 3] = std::numeric_limits<float>::quiet_NaN();
  auto result = replay(parse("sink"), layer.tensors, options);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kNonFinite);
  EXPECT_NE(result.error().message.find("keys hold NaN at head 1, position 7, dimension 3"),
            std::string::npos)
      << result.error().message;
  layer.keys[(20 + 7) * 8 + 3] = 1e6f;  // finite, but not as a half
  options.type = KvType::kF16;
  result = replay(parse("keydiff"), layer.tensors, options);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kNonFinite);
  EXPECT_NE(result.error().message.find("KV head 1"), std::string::npos) << result.error().message;
}

TEST(BadInput, ShapesAndLengthsAreChecked) {
  const RandomLayer layer(18, 2, 1, 20, 8);
  const auto said = [&](auto change) {
    LayerTensors tensors = layer.tensors;
    ReplayOptions options;
    options.budget = 5;
    change(tensors, options);
    const auto result = replay(parse("tova"), tensors, options);
    return result.ok() ? std::string("ok") : result.error().message;
  };
  EXPECT_EQ(said([](auto&, auto&) {}), "ok");
  EXPECT_NE(said([](auto& t, auto&) { t.query_heads = 3; }).find("no multiple of 2 KV heads"),
            std::string::npos);
  EXPECT_NE(said([](auto& t, auto&) { t.keys = t.keys.first(10); }).find("keys hold 10 numbers"),
            std::string::npos);
  EXPECT_NE(said([](auto& t, auto&) { t.tokens = 0; }).find("hold nothing"), std::string::npos);
  EXPECT_NE(said([](auto&, auto& o) { o.budget = 0; }).find("budget of 0"), std::string::npos);
  EXPECT_NE(said([](auto&, auto& o) { o.lengths = {5, 0}; }).find("step of 0 tokens"), std::string::npos);
  EXPECT_NE(said([](auto&, auto& o) { o.lengths = {15, 6}; }).find("take 21 tokens"), std::string::npos);
  EXPECT_NE(said([](auto&, auto& o) {
              o.protected_ranges = {{Position{0}, Position{5}}};
            }).find("cannot hold 6 pinned"),
            std::string::npos);
}

TEST(Plans, ALayerWithinItsBudgetKeepsAllWhateverAHeadHolds) {
  constexpr std::int32_t kRows[] = {30, 10};
  const auto pool = std::make_unique<PagePool>(PageLayout::make(KvType::kF32, 8, 0), 1 << 20);
  std::vector<Page*> pages;
  ASSERT_TRUE(pool->allocate(2, pages));
  std::byte* data[] = {pages[0]->data, pages[1]->data};
  std::vector<HeadRows> heads;
  std::vector<std::vector<float>> scores;
  for (std::size_t h = 0; h < 2; ++h) {
    heads.push_back({&pool->layout(), data + h, kRows[h]});
    scores.emplace_back(static_cast<std::size_t>(kRows[h]));
    for (std::int32_t row = 0; row < kRows[h]; ++row) {
      heads[h].positions(0)[row] = Position{row};
      scores[h][static_cast<std::size_t>(row)] = static_cast<float>(row % 7);
    }
  }
  const auto evictor = Evictor::create(parse("keydiff:heads=adaptive,keep_last=3"), {1, 2, 1, 8});
  ASSERT_TRUE(evictor.ok());
  LayerStep step;
  step.heads = heads;
  step.seen = 30;
  LayerPlan plan;
  for (const std::int32_t budget : {20, 19}) {  // the first is all that there is
    step.budget = budget;
    ASSERT_TRUE((*evictor)->plan(step, scores, plan));
    EXPECT_EQ(plan.kept[0].size() + plan.kept[1].size(), static_cast<std::size_t>(2 * budget));
  }
  for (Page* page : pages) pool->release(page);
}

}  // namespace
}  // namespace keynest
