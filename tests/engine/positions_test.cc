// positions=cache: RoPE by the rank in the cache. With one layer a key depends on its token and what it is
// rotated by only, so a session whose entries have moved equals a fresh one that was given the kept tokens.
#include <algorithm>

#include "engine/law_test.h"
#include "support/libllama_logits.h"

namespace keynest::test {
namespace {

struct Case {
  const char* name;
  const char* architecture;  // llama: adjacent pairs; qwen2: halves
  const char* scaling;
  KvType type;
  double tolerance;  // relative to the largest logit; rounded types: up to 40 roundings of a key against one
};
inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

/// Head size 32, which all types take.
std::shared_ptr<const Model> one_layer_of(const Case& c) {
  TinyModel description = tiny_model(c.architecture);
  description.layers = 1;
  description.head_dim = 32;
  description.trained_context = 512;
  description.rope_scaling = c.scaling;
  description.rope_factors = description.architecture == "llama";
  const TemporaryDirectory directory;
  const std::string path = directory.file("tiny.gguf");
  if (!write_tiny_gguf(path, description)) return nullptr;
  auto model = Model::load(path);
  return model ? *model : nullptr;
}

class CachePositions : public testing::TestWithParam<Case> {
 protected:
  std::shared_ptr<const Model> model_ = one_layer_of(GetParam());
  std::unique_ptr<Session> session(const std::string& policy, int budget, int decode_block = 0) const {
    return make_session(model_, {.policy = policy,
                                 .budget = budget,
                                 .block = 16,
                                 .decode_block = decode_block,
                                 .kv_type = GetParam().type});
  }
  /// Logits after `next` in a fresh, full session that has seen the tokens at these positions of `all`.
  std::vector<float> fresh(const std::vector<Token>& all, const std::vector<Position>& kept,
                           Token next) const {
    auto s = session("full", 0);
    std::vector<Token> tokens;
    for (const Position p : kept) tokens.push_back(all[static_cast<std::size_t>(to_int(p))]);
    EXPECT_TRUE(s->prefill(tokens).ok());
    EXPECT_TRUE(s->decode(next).ok());
    return logits_of(*s);
  }
};

TEST_P(CachePositions, AMovedCacheEqualsAFreshOneOfTheSameTokens) {
  ASSERT_NE(model_, nullptr);
  auto s = session("sink:positions=cache", 40, 1);
  ASSERT_TRUE(s);
  std::vector<Token> all = random_tokens(*model_, 150, 1);
  ASSERT_TRUE(s->prefill(all).ok());
  for (const Token next : random_tokens(*model_, 30, 2)) {  // an eviction at every token
    const std::vector<Position> kept = s->kept(0, 0);
    ASSERT_EQ(kept.size(), 40u);
    ASSERT_EQ(kept[4], Position{static_cast<std::int32_t>(all.size()) - 36});
    ASSERT_TRUE(s->decode(next).ok());
    EXPECT_LE(relative_difference(logits_of(*s), fresh(all, kept, next)), GetParam().tolerance);
    all.push_back(next);
  }
}

TEST_P(CachePositions, TruePositionsGiveSomethingElse) {
  auto cache = session("sink:positions=cache", 40), plain = session("sink", 40);
  ASSERT_TRUE(cache && plain);
  const std::vector<Token> all = random_tokens(*model_, 150, 1);
  ASSERT_TRUE(cache->prefill(all).ok());
  ASSERT_TRUE(plain->prefill(all).ok());
  const std::vector<Position> kept = plain->kept(0, 0);
  EXPECT_EQ(cache->kept(0, 0), kept) << "which entries stay is the same";
  ASSERT_TRUE(plain->decode(7).ok());
  EXPECT_GT(relative_difference(logits_of(*plain), fresh(all, kept, 7)), 2e-2);
}

// A fork that evicts turns its own copies of the pages, and a rollback leaves ranks as the last eviction set
// them.
TEST_P(CachePositions, ForksAndRollbacksKeepTheirOwnKeys) {
  auto s = session("sink:first=2,positions=cache", 200);  // pages that are turned and nothing else
  ASSERT_TRUE(s);
  std::vector<Token> all = random_tokens(*model_, 400, 3);
  ASSERT_TRUE(s->prefill(all).ok());
  auto forked = s->fork();
  ASSERT_TRUE(forked.ok());
  decode_all(**forked, random_tokens(*model_, 50, 4));  // evicts: the pages were shared
  const std::vector<Position> kept = s->kept(0, 0);
  ASSERT_EQ(kept.size(), 200u);
  decode_all(*s, random_tokens(*model_, 5, 5));
  ASSERT_TRUE(s->rollback(Position{400}).ok());
  ASSERT_TRUE(s->decode(9).ok());
  EXPECT_LE(relative_difference(logits_of(*s), fresh(all, kept, 9)), GetParam().tolerance);
}

TEST_P(CachePositions, EvictingOnceAfterThePromptIsTheSame) {
  auto s = session("sink:schedule=prefill,decode=append,positions=cache", 40);
  ASSERT_TRUE(s);
  std::vector<Token> all = random_tokens(*model_, 150, 6);
  ASSERT_TRUE(s->prefill(all).ok());
  for (const Token next : random_tokens(*model_, 10, 7)) {
    const std::vector<Position> kept = s->kept(0, 0);
    ASSERT_TRUE(s->decode(next).ok());
    EXPECT_LE(relative_difference(logits_of(*s), fresh(all, kept, next)), GetParam().tolerance);
    all.push_back(next);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CachePositions,
                         testing::Values(Case{"llama_f32", "llama", "", KvType::kF32, 1e-4},
                                         Case{"qwen2_f32", "qwen2", "", KvType::kF32, 1e-4},
                                         Case{"llama_yarn", "llama", "yarn", KvType::kF32, 1e-4},
                                         Case{"qwen2_linear", "qwen2", "linear", KvType::kF32, 1e-4},
                                         Case{"llama_f16", "llama", "", KvType::kF16, 2e-2},
                                         Case{"qwen2_bf16", "qwen2", "", KvType::kBF16, 1e-1},
                                         Case{"llama_q8_0", "llama", "", KvType::kQ8_0, 3e-1}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CachePositionsErrors, RefusedWhereHeadsHoldDifferentAmounts) {
  for (const char* spec : {"keydiff:heads=adaptive,positions=cache", "nestedkv:positions=cache",
                           "keydiff:layers=pyramid,positions=cache"}) {
    const auto parsed = PolicySpec::parse(spec);
    ASSERT_FALSE(parsed.ok()) << spec;
    EXPECT_NE(parsed.error().message.find("=uniform"), std::string::npos) << parsed.error().message;
  }
  EXPECT_TRUE(PolicySpec::parse("nestedkv:heads=uniform,positions=cache").ok());
  const auto spec = PolicySpec::parse("sink:positions=cache");
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->print(), "sink:positions=cache");
}

TEST(CachePositionsErrors, RefusedWithSlidingWindows) {
  const auto created = Session::create(tiny("gemma3"), options_of({.policy = "sink:positions=cache"}));
  ASSERT_FALSE(created.ok());
  EXPECT_EQ(created.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(created.error().message.find("sliding window"), std::string::npos);
}

}  // namespace
}  // namespace keynest::test
