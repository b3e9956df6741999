// The laws every policy must hold, over all policies and architectures (docs/architecture.md lists them).
#include <algorithm>
#include <numeric>
#include <tuple>

#include "engine/law_test.h"

namespace keynest::test {
namespace {

class PolicyLaws : public testing::TestWithParam<std::tuple<std::string, PolicyCase, KvType>> {
 protected:
  std::shared_ptr<const Model> model() const { return tiny(std::get<0>(GetParam())); }
  KvType kv_type() const { return std::get<2>(GetParam()); }
  std::unique_ptr<Session> session_with(Settings settings) const {
    settings.kv_type = kv_type();
    return make_session(model(), settings);
  }
  /// Ranks need heads that all hold the same amount, which sliding windows do not give.
  void SetUp() override {
    const auto& windows = model()->info().layer_windows;
    const bool windowed = std::any_of(windows.begin(), windows.end(), [](std::int32_t w) { return w > 0; });
    if (windowed && spec().find("positions=cache") != std::string::npos)
      GTEST_SKIP() << "refused, as it should";
  }
  std::string spec() const { return std::get<1>(GetParam()).spec; }
  std::string spec_with(const std::string& option) const {
    return spec() + (spec().find(':') == std::string::npos ? ":" : ",") + option;
  }
  bool evicts() const { return spec() != "full"; }
  std::vector<Token> tokens(int count, std::uint32_t seed = 1) const {
    return random_tokens(*model(), count, seed);
  }
  /// N of a layer as a sliding window limits it.
  std::int64_t layer_budget(int layer, std::int64_t budget) const {
    const std::int64_t window = model()->info().layer_windows[static_cast<std::size_t>(layer)];
    return window > 0 ? std::min(window, budget) : budget;
  }
};

TEST_P(PolicyLaws, L1_ABudgetThatHoldsEverythingChangesNothing) {
  auto bounded = session_with({.policy = spec(), .budget = 200});
  auto full = session_with({.policy = "full"});
  ASSERT_TRUE(bounded && full);
  ASSERT_TRUE(bounded->prefill(tokens(150)).ok());
  ASSERT_TRUE(full->prefill(tokens(150)).ok());
  EXPECT_EQ(logits_of(*bounded), logits_of(*full));
  EXPECT_EQ(decode_all(*bounded, tokens(40, 2)), decode_all(*full, tokens(40, 2)));
}

TEST_P(PolicyLaws, L2_NeverMoreThanBudgetAndBlock) {
  constexpr std::int64_t kBudget = 40, kBlock = 16;
  auto session = session_with({.policy = spec(), .budget = kBudget, .block = kBlock});
  ASSERT_TRUE(session);
  const std::int64_t heads = model()->info().kv_heads;
  const bool pyramid = spec().find("pyramid") != std::string::npos;
  const auto check = [&](bool evicted) {
    const Stats stats = session->stats();
    std::int64_t now = 0, peak = 0, bound = 0;
    for (int layer = 0; layer < model()->info().layers; ++layer) {
      const auto i = static_cast<std::size_t>(layer);
      const std::int64_t after = heads * layer_budget(layer, kBudget);
      now += stats.cache.entries_per_layer[i];
      peak += stats.cache.peak_entries_per_layer[i];
      bound += after;
      if (!pyramid) {
        EXPECT_LE(stats.cache.peak_entries_per_layer[i], after + heads * kBlock) << "layer " << layer;
        if (evicted) EXPECT_LE(stats.cache.entries_per_layer[i], after) << "layer " << layer;
      }
    }
    EXPECT_LE(peak, bound + heads * kBlock * model()->info().layers);
    if (evicted) EXPECT_LE(now, bound);
    // Bytes are those of the pages, and a head wastes less than one page.
    const std::size_t all_heads = static_cast<std::size_t>(heads * model()->info().layers);
    EXPECT_EQ(stats.cache.bytes % stats.cache.page_bytes, 0u);
    EXPECT_LT(stats.cache.bytes / stats.cache.page_bytes, static_cast<std::size_t>(now) / 64 + all_heads + 1);
  };
  const auto progress = [&](std::int64_t, std::int64_t) { return check(evicts()), true; };
  if (!evicts()) return;
  ASSERT_TRUE(session->prefill(tokens(300), progress).ok());
  for (const Token token : tokens(50, 2)) {
    ASSERT_TRUE(session->decode(token).ok());
    check(false);
  }
  ASSERT_TRUE(session->prefill(tokens(70, 3), progress).ok()) << "a second turn keeps the bound too";
}

TEST_P(PolicyLaws, L2_EvictingAtEveryTokenKeepsExactlyTheBudget) {
  if (!evicts()) return;
  auto session = session_with({.policy = spec(), .budget = 40, .block = 16, .decode_block = 1});
  ASSERT_TRUE(session);
  ASSERT_TRUE(session->prefill(tokens(100)).ok());
  for (const Token token : tokens(20, 2)) {
    ASSERT_TRUE(session->decode(token).ok());
    const Stats stats = session->stats();
    const std::int64_t total = std::accumulate(stats.cache.entries_per_layer.begin(),
                                               stats.cache.entries_per_layer.end(), std::int64_t{0});
    std::int64_t bound = 0;
    for (int layer = 0; layer < model()->info().layers; ++layer) {
      bound += model()->info().kv_heads * layer_budget(layer, 40);
    }
    EXPECT_LE(total, bound);
    if (spec().find("pyramid") == std::string::npos) EXPECT_EQ(total, bound);
  }
}

TEST_P(PolicyLaws, L3_OneBlockEqualsEvictingAfterThePrompt) {
  auto block = session_with({.policy = spec_with("schedule=block"), .budget = 40, .block = 200});
  auto prefill = session_with({.policy = spec_with("schedule=prefill"), .budget = 40, .block = 200});
  ASSERT_TRUE(block && prefill);
  ASSERT_TRUE(block->prefill(tokens(150)).ok());
  ASSERT_TRUE(prefill->prefill(tokens(150)).ok());
  EXPECT_EQ(kept_everywhere(*block, *model()), kept_everywhere(*prefill, *model()));
  EXPECT_EQ(logits_of(*block), logits_of(*prefill));
}

TEST_P(PolicyLaws, L4_WhatAPromptKeepsDoesNotDependOnWhatFollows) {
  std::vector<std::vector<std::vector<Position>>> kept[2];
  for (const std::uint32_t question : {0u, 1u}) {
    auto session = session_with({.policy = spec(), .budget = 40, .block = 16});
    ASSERT_TRUE(session);
    std::vector<Token> text = tokens(160);
    const std::vector<Token> rest = tokens(20, 10 + question);
    text.insert(text.end(), rest.begin(), rest.end());
    const auto progress = [&](std::int64_t done, std::int64_t) {
      if (done == 160) kept[question] = kept_everywhere(*session, *model());
      return true;
    };
    ASSERT_TRUE(session->prefill(text, progress).ok());
  }
  ASSERT_FALSE(kept[0].empty());
  EXPECT_EQ(kept[0], kept[1]);
}

TEST_P(PolicyLaws, L5_ASequenceAfterAnotherEqualsTheSequenceAlone) {
  const Settings settings{.policy = spec(), .budget = 40, .block = 16};
  const auto run = [&](std::uint32_t seed) {
    auto session = session_with(settings);
    EXPECT_TRUE(session->prefill(tokens(120, seed)).ok());
    auto logits = decode_all(*session, tokens(30, seed + 1));
    logits.push_back(logits_of(*session));
    return logits;
  };
  const auto alone = run(5);
  run(7);
  EXPECT_EQ(run(5), alone);
}

TEST_P(PolicyLaws, L7_AForkEqualsASeparateRun) {
  const Settings settings{.policy = spec(), .budget = 40, .block = 16};
  auto first = session_with(settings);
  ASSERT_TRUE(first);
  ASSERT_TRUE(first->prefill(tokens(120)).ok());
  const std::size_t bytes = first->stats().cache.bytes;
  auto forked = first->fork();
  ASSERT_TRUE(forked.ok());
  EXPECT_EQ(first->stats().cache.bytes, bytes) << "a fork shares its pages";
  const auto left = decode_all(*first, tokens(40, 2));
  const auto right = decode_all(**forked, tokens(40, 3));
  for (const auto& [seed, logits] : {std::pair{2u, left}, std::pair{3u, right}}) {
    auto alone = session_with(settings);
    ASSERT_TRUE(alone->prefill(tokens(120)).ok());
    EXPECT_EQ(decode_all(*alone, tokens(40, seed)), logits);
  }
}

TEST_P(PolicyLaws, L8_LongPromptsTakeNoMoreMemory) {
  if (!evicts()) return;
  constexpr int kBudget = 64;
  std::size_t peak[2];
  for (const int i : {0, 1}) {
    auto session = session_with({.policy = spec(), .budget = kBudget, .block = 32});
    ASSERT_TRUE(session);
    ASSERT_TRUE(session->prefill(tokens(kBudget * (i == 0 ? 2 : 8))).ok());
    peak[i] = session->stats().cache.peak_bytes;
  }
  // Heads that compete may each end in a page of their own; a pyramid's budgets depend on the prompt's
  // length.
  const PolicySpec parsed = options_of({.policy = spec()}).policy;
  const bool ragged = parsed.heads == HeadAllocation::kAdaptive || parsed.layers == LayerAllocation::kPyramid;
  const std::size_t slack = ragged ? 1 : 0;
  const auto session = session_with({.policy = spec(), .budget = kBudget, .block = 32});
  const std::size_t page = session->stats().cache.page_bytes;
  EXPECT_LE(peak[1], peak[0] + slack * page * static_cast<std::size_t>(model()->info().layers));
}

TEST_P(PolicyLaws, L11_RollingBackIsExactOrRefused) {
  auto session = session_with({.policy = spec(), .budget = 40, .block = 16});
  ASSERT_TRUE(session);
  ASSERT_TRUE(session->prefill(tokens(96)).ok());
  const auto expected = decode_all(*session, tokens(5, 2));
  auto other = session->fork();
  ASSERT_TRUE(other.ok());
  decode_all(**other, tokens(4, 3));
  ASSERT_TRUE((*other)->rollback(Position{98}).ok());
  EXPECT_EQ((*other)->seen(), 98);
  EXPECT_TRUE((*other)->logits().empty());
  const std::vector<Token> again = tokens(5, 2);
  const auto rest = decode_all(**other, {again.begin() + 2, again.end()});
  EXPECT_EQ(rest, std::vector<std::vector<float>>(expected.begin() + 2, expected.end()));
  EXPECT_EQ(decode_all(**other, tokens(40, 4)), decode_all(*session, tokens(40, 4)));

  if (!evicts()) return;
  const Status refused = session->rollback(Position{10});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_TRUE(session->decode(1).ok()) << "a refused rollback changes nothing";
}

TEST_P(PolicyLaws, AnExhaustedPoolLeavesTheSessionIntact) {
  auto roomy = session_with({.policy = "full", .block = 16});
  ASSERT_TRUE(roomy);
  const std::size_t page = roomy->stats().cache.page_bytes;
  const auto heads = static_cast<std::size_t>(model()->info().kv_heads * model()->info().layers);
  auto session = session_with({.policy = "full", .block = 16, .cache_limit = page * heads});
  ASSERT_TRUE(session);
  ASSERT_TRUE(session->prefill(tokens(60)).ok());
  ASSERT_TRUE(roomy->prefill(tokens(60)).ok());
  const Status refused = session->prefill(tokens(30, 2));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(session->seen(), 60);
  EXPECT_EQ(decode_all(*session, tokens(4, 3)), decode_all(*roomy, tokens(4, 3)));
}

std::string test_name(const testing::TestParamInfo<std::tuple<std::string, PolicyCase, KvType>>& info) {
  const auto type = std::string(name_of(std::get<2>(info.param)));
  return std::get<0>(info.param) + "_" + std::get<1>(info.param).name + "_" + type;
}

INSTANTIATE_TEST_SUITE_P(All, PolicyLaws,
                         testing::Combine(testing::ValuesIn(model_names()), testing::ValuesIn(policy_cases()),
                                          testing::Values(KvType::kF16)),
                         test_name);

// Every type on the model whose head size all of them take.
INSTANTIATE_TEST_SUITE_P(Types, PolicyLaws,
                         testing::Combine(testing::Values("qwen3"), testing::ValuesIn(policy_cases()),
                                          testing::Values(KvType::kF32, KvType::kBF16, KvType::kQ8_0)),
                         test_name);

}  // namespace
}  // namespace keynest::test
