// The laws of docs/architecture.md on real models: keys and queries that mean something, 30 layers, heads
// that do not compete for sport. For every policy of the table and every KV type; prompts are short, since
// there are many.
#include <algorithm>

#include "engine/law_test.h"
#include "support/models.h"
#include "support/sanitized.h"

namespace keynest::test {
namespace {

constexpr int kBudget = 24, kBlock = 32;
constexpr const char* kText =
    "The harbour town woke slowly. Before the first boats came in, the baker had swept the square and the "
    "clerk of the "
    "customs house had counted, as he did every morning, the eleven flags on the sea wall. \"Ten,\" he said "
    "to nobody, "
    "and counted again. One of them had gone in the night. By noon there were three stories about it: that "
    "the wind had "
    "taken it, that a boy from the upper street had, and that it had never been there. The clerk wrote all "
    "three into "
    "his book, dated them 14 March 1867, and added the price of rope. When the inspector asked him, two "
    "years later, "
    "which of them he believed, he turned the pages until he found the day, read it aloud from the first "
    "line to the "
    "last, and said that the rope had been too expensive. Nobody in the town ever learned more. The flag "
    "came back in "
    "a crate of oranges, washed and folded, with a note that nobody could read, and it hangs on the wall to "
    "this day, "
    "a little brighter than the ten beside it.";

class RealLaws : public testing::TestWithParam<KvType> {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "too slow; the tiny models run the same code";
    model_ = smollm2();
    if (!model_) GTEST_SKIP() << "scripts/get-model smollm2 fetches the model";
    text_ = model_->tokenize(kText, true, false);
    ASSERT_GE(text_.size(), 8u * kBudget);
  }
  std::unique_ptr<Session> session(const std::string& policy, int budget, int block = kBlock) const {
    return make_session(model_, {.policy = policy, .budget = budget, .block = block, .kv_type = GetParam()});
  }
  std::span<const Token> text(int first, int count) const {
    return std::span(text_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  }
  std::vector<Token> copy(int first, int count) const {
    const auto part = text(first, count);
    return {part.begin(), part.end()};
  }
  /// Runs a law for every policy.
  template <typename Law>
  void for_all_policies(Law law) const {
    for (const PolicyCase& policy : policy_cases()) {
      SCOPED_TRACE(policy.spec);
      law(std::string(policy.spec));
    }
  }

  std::shared_ptr<const Model> model_;
  std::vector<Token> text_;
};

TEST_P(RealLaws, L1_ABudgetThatHoldsEverythingChangesNothing) {
  const auto full = session("full", 0);
  ASSERT_TRUE(full->prefill(text(0, 40)).ok());
  const auto after_prompt = logits_of(*full);
  const auto answer = decode_all(*full, copy(40, 2));
  for_all_policies([&](const std::string& spec) {
    const auto bounded = session(spec, 64);
    ASSERT_TRUE(bounded->prefill(text(0, 40)).ok());
    if (spec.find("pyramid") != std::string::npos) return;  // its last layers hold less than the average
    EXPECT_EQ(logits_of(*bounded), after_prompt);
    EXPECT_EQ(decode_all(*bounded, copy(40, 2)), answer);
  });
}

TEST_P(RealLaws, L2_L8_TheBoundHoldsAndMemoryStopsGrowing) {
  for_all_policies([&](const std::string& spec) {
    if (spec == "full") return;
    const PolicySpec parsed = *PolicySpec::parse(spec);
    const auto s = session(spec, kBudget);
    const std::int64_t heads = model_->info().kv_heads, layers = model_->info().layers;
    std::size_t early = 0;
    const auto progress = [&](std::int64_t done, std::int64_t) {
      const Stats stats = s->stats();
      std::int64_t total = 0, peak = 0;
      for (std::size_t i = 0; i < static_cast<std::size_t>(layers); ++i) {
        total += stats.cache.entries_per_layer[i];
        peak += stats.cache.peak_entries_per_layer[i];
        if (parsed.layers != LayerAllocation::kUniform) continue;
        EXPECT_EQ(stats.cache.entries_per_layer[i], heads * std::min<std::int64_t>(done, kBudget));
        EXPECT_LE(stats.cache.peak_entries_per_layer[i], heads * (kBudget + kBlock));
      }
      EXPECT_LE(total, layers * heads * kBudget);
      EXPECT_LE(peak, layers * heads * (kBudget + kBlock));
      // By then twice the budget has passed, of the pyramid's widest layer too.
      if (done == (parsed.layers == LayerAllocation::kUniform ? 2 : 3) * kBlock)
        early = stats.cache.peak_bytes;
      return true;
    };
    ASSERT_TRUE(s->prefill(text(0, 8 * kBudget), progress).ok());
    // A page of 64 rows holds N + B; one head of a layer may win more than that from the others.
    const Stats stats = s->stats();
    const std::size_t slack = parsed.heads == HeadAllocation::kAdaptive ? stats.cache.page_bytes : 0;
    EXPECT_LE(stats.cache.peak_bytes, early + slack * static_cast<std::size_t>(layers));
  });
}

TEST_P(RealLaws, L3_OneBlockEqualsEvictingAfterThePrompt) {
  for_all_policies([&](const std::string& spec) {
    const char separator = spec.find(':') == std::string::npos ? ':' : ',';
    const auto block = session(spec + separator + "schedule=block", kBudget, 48);
    const auto prefill = session(spec + separator + "schedule=prefill", kBudget, 48);
    for (const auto* s : {&block, &prefill}) ASSERT_TRUE((*s)->prefill(text(0, 48)).ok());
    EXPECT_EQ(kept_everywhere(*block, *model_), kept_everywhere(*prefill, *model_));
    EXPECT_EQ(logits_of(*block), logits_of(*prefill));
  });
}

// What follows a prompt changes nothing of what it keeps (L4), a session nothing of the one after it (L5), a
// fork and its original equal separate runs (L7), and rolling back is exact or refused (L11).
TEST_P(RealLaws, L4_L5_L7_L11_SessionsDependOnTheirOwnTokensOnly) {
  constexpr int kPrompt = 64, kQuestion = 8;
  for_all_policies([&](const std::string& spec) {
    std::vector<std::vector<std::vector<Position>>> kept;
    const auto run = [&](int question) {
      auto s = session(spec, kBudget);
      std::vector<Token> tokens = copy(0, kPrompt);
      const std::vector<Token> rest = copy(question, kQuestion);
      tokens.insert(tokens.end(), rest.begin(), rest.end());
      const auto progress = [&](std::int64_t done, std::int64_t) {
        if (done != kPrompt) return true;
        if (kept.empty()) kept = kept_everywhere(*s, *model_);
        EXPECT_EQ(kept_everywhere(*s, *model_), kept) << "law L4";
        return true;
      };
      EXPECT_TRUE(s->prefill(tokens, progress).ok());
      return s;
    };
    const auto first = run(100);
    const auto other = run(120);
    const auto again = run(100);
    EXPECT_EQ(logits_of(*again), logits_of(*first)) << "law L5";

    const std::int64_t seen = first->seen();
    auto forked = first->fork();
    ASSERT_TRUE(forked.ok());
    decode_all(**forked, copy(140, 2));
    const auto plain = decode_all(*first, copy(150, 3));
    ASSERT_TRUE((*forked)->rollback(Position{static_cast<std::int32_t>(seen)}).ok());
    EXPECT_EQ(decode_all(**forked, copy(150, 3)), plain) << "laws L7 and L11";
    EXPECT_EQ(decode_all(*again, copy(150, 3)), plain) << "law L7";
    EXPECT_EQ(kept_everywhere(**forked, *model_), kept_everywhere(*again, *model_));
    if (spec == "full") return;
    const Status refused = first->rollback(Position{10});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  });
}

TEST_P(RealLaws, RefusalsLeaveTheSessionAsItWas) {
  const auto range = [](int first, int last) { return PositionRange{Position{first}, Position{last}}; };
  const auto s = session("snapkv:window=8", kBudget), untouched = session("snapkv:window=8", kBudget);
  for (const auto* one : {&s, &untouched}) {
    ASSERT_TRUE((*one)->protect(range(2, 6)).ok());
    ASSERT_TRUE((*one)->prefill(text(0, 40)).ok());
  }
  EXPECT_EQ(s->protect(range(4, 9)).error().code, ErrorCode::kInvalidArgument) << "overlaps";
  EXPECT_EQ(s->protect(range(41, 60)).error().code, ErrorCode::kInvalidArgument) << "does not fit";
  EXPECT_EQ(s->protect(range(9, 9)).error().code, ErrorCode::kInvalidArgument) << "empty";
  EXPECT_EQ(s->rollback(Position{5}).error().code, ErrorCode::kRefused);
  EXPECT_EQ(s->prefill({}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(s->decode(-1).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(logits_of(*s), logits_of(*untouched));
  EXPECT_EQ(kept_everywhere(*s, *model_), kept_everywhere(*untouched, *model_));
  EXPECT_EQ(decode_all(*s, copy(40, 2)), decode_all(*untouched, copy(40, 2)));
}

std::string type_name(const testing::TestParamInfo<KvType>& info) { return std::string(name_of(info.param)); }

INSTANTIATE_TEST_SUITE_P(SmolLM2, RealLaws,
                         testing::Values(KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0),
                         type_name);

/// Layers with a sliding window hold its newest tokens, or the newest N, whatever the policy and what it
/// pins.
void expect_windows(const Session& s, const ModelInfo& info, std::int64_t budget) {
  for (int layer = 0; layer < info.layers; ++layer) {
    const std::int64_t window = info.layer_windows[static_cast<std::size_t>(layer)];
    if (window == 0) continue;
    const auto count = static_cast<std::int32_t>(std::min({window, budget, s.seen()}));
    for (int head = 0; head < info.kv_heads; ++head) {
      const std::vector<Position> kept = s.kept(layer, head);
      ASSERT_EQ(std::ssize(kept), count) << "layer " << layer;
      EXPECT_EQ(kept.front(), Position{static_cast<std::int32_t>(s.seen()) - count}) << "layer " << layer;
    }
  }
}

TEST(RealWindows, L12_NoPolicyWidensThem) {
  if (kSanitized) GTEST_SKIP() << "too slow; the tiny models run the same code";
  const std::string path = real_model_path("gemma-3-270m.Q4_K_M.gguf");
  if (path.empty()) GTEST_SKIP() << "scripts/get-model gemma-3-270m fetches the model";
  const auto loaded = Model::load(path);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const auto& model = *loaded;
  const std::vector<Token> text = model->tokenize(kText, true, false);
  for (const PolicyCase& policy : policy_cases()) {
    SCOPED_TRACE(policy.spec);
    if (std::string(policy.spec).find("positions=cache") != std::string::npos) continue;  // refused
    if (std::string(policy.spec) == "full") continue;
    const auto s = make_session(model, {.policy = policy.spec, .budget = kBudget, .block = kBlock});
    ASSERT_TRUE(s);
    ASSERT_TRUE(s->prefill(std::span(text).first(64)).ok());
    if (std::string(policy.spec).find("pyramid") == std::string::npos)
      expect_windows(*s, model->info(), kBudget);
  }
  const auto s = make_session(model, {.policy = "keydiff:keep_first=8", .budget = 600, .block = 256});
  std::vector<Token> longer;
  while (longer.size() < 640) longer.insert(longer.end(), text.begin(), text.end());
  longer.resize(640);
  ASSERT_TRUE(s->prefill(longer).ok());
  expect_windows(*s, model->info(), 600);
}

}  // namespace
}  // namespace keynest::test
