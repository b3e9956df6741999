// Laws of the engine that need a particular model: L9 (libllama), L10 (RoPE's relativity), L12 (sliding
// windows).
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>

#include "engine/law_test.h"
#include "support/libllama_logits.h"

namespace keynest::test {
namespace {

/// Law L9's tolerances, relative to the largest logit: with an F32 cache sums run in another order, nothing
/// else; with F16 keys and values are rounded (models with random weights amplify that more than real ones).
constexpr double kTolerance = 2e-4, kHalfTolerance = 5e-3;

std::vector<float> all_logits(Session& session, std::span<const Token> tokens) {
  std::vector<float> all;
  const Status status =
      session.prefill_with_logits(tokens, [&](std::int64_t, std::int32_t, std::span<const float> logits) {
        all.insert(all.end(), logits.begin(), logits.end());
      });
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  return all;
}

class Architectures : public testing::TestWithParam<std::string> {};

TEST_P(Architectures, L9_FullCacheGivesLibllamasLogits) {
  const auto model = tiny(GetParam());
  ASSERT_NE(model, nullptr);
  const TemporaryDirectory directory;
  const std::string path = directory.file("tiny.gguf");
  TinyModel description = tiny_model(GetParam());
  description.trained_context = 512;
  ASSERT_TRUE(write_tiny_gguf(path, description));
  const std::vector<Token> tokens = random_tokens(*model, 100, 3);
  const std::vector<float> expected = libllama_logits(path, tokens);
  for (const int block : {1, 7, 64}) {
    auto exact = make_session(model, {.policy = "full", .block = block, .kv_type = KvType::kF32});
    EXPECT_LE(relative_difference(all_logits(*exact, tokens), expected), kTolerance) << "block " << block;
    auto half = make_session(model, {.policy = "full", .block = block});
    EXPECT_LE(relative_difference(all_logits(*half, tokens), expected), kHalfTolerance) << "block " << block;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Architectures, testing::ValuesIn(model_names()));

/// Real models, looked for under KEYNEST_MODELS_DIR.
struct RealModel {
  const char* name;
  const char* file;
};

class RealModels : public testing::TestWithParam<RealModel> {
 protected:
  std::string path() const {
    const char* directory = std::getenv("KEYNEST_MODELS_DIR");
    return std::string(directory != nullptr ? directory : "models") + "/" + GetParam().file;
  }
};

const char* const kPrompts[] = {
    "The GNU General Public License is a free, copyleft license for software and other kinds of works. The "
    "licenses "
    "for most software and other practical works are designed to take away your freedom to",
    "Question: Which planet is the largest in our solar system, and about how many times the mass of the "
    "Earth does it "
    "have?\nAnswer:",
    "def fibonacci(n):\n    \"\"\"Returns the first n Fibonacci numbers as a list.\"\"\"\n",
};

/// The token libllama picks after `tokens`, and how far its logit is above the second.
struct Choice {
  Token token;
  float lead;
};

Choice choose(std::span<const float> logits) {
  const auto best = std::max_element(logits.begin(), logits.end());
  float second = -INFINITY;
  for (auto it = logits.begin(); it != logits.end(); ++it) {
    if (it != best) second = std::max(second, *it);
  }
  return {static_cast<Token>(best - logits.begin()), *best - second};
}

/// Greedy answer of 64 tokens: appends it to `tokens`; logits after the prompt and after every answered
/// token.
std::vector<float> answer_greedily(Session& session, std::vector<Token>& tokens) {
  EXPECT_TRUE(session.prefill(tokens).ok());
  std::vector<float> all = logits_of(session);
  for (int i = 0; i < 64; ++i) {
    tokens.push_back(choose(session.logits()).token);
    EXPECT_TRUE(session.decode(tokens.back()).ok());
    all.insert(all.end(), session.logits().begin(), session.logits().end());
  }
  return all;
}

// Quantised weights are multiplied with activations rounded to 8 bits, so the smallest difference in
// attention grows to some per cent of a logit: libllama's two ways of attention differ by as much. Ours must
// be no further from it.
TEST_P(RealModels, L9_SameLogitsAndGreedyTokensAsLibllama) {
  if (!std::ifstream(path())) GTEST_SKIP() << path() << " is not there: scripts/get-model fetches it";
  auto loaded = Model::load(path());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const auto model = *loaded;
  const int threads = 2;
  for (const char* prompt : kPrompts) {
    auto session = make_session(model, {.policy = "full", .block = 128, .threads = threads});
    ASSERT_TRUE(session);
    std::vector<Token> tokens = model->tokenize(prompt, true, false);
    const std::size_t prompt_tokens = tokens.size();
    const std::vector<float> ours = answer_greedily(*session, tokens);
    const auto plain = libllama_step_logits(path(), tokens, prompt_tokens, false, threads);
    const auto flash = libllama_step_logits(path(), tokens, prompt_tokens, true, threads);
    ASSERT_EQ(ours.size(), plain.size());
    const double theirs = relative_difference(flash, plain);
    const double difference = std::min(relative_difference(ours, plain), relative_difference(ours, flash));
    std::cout << "  relative difference to libllama " << difference
              << ", its flash attention to its plain one " << theirs << "\n";
    EXPECT_LE(difference, std::max(1e-3, 1.5 * theirs)) << prompt;
    EXPECT_LE(difference, 0.1) << prompt;

    const auto vocabulary = static_cast<std::size_t>(model->info().vocabulary);
    const float largest = std::abs(*std::max_element(
        plain.begin(), plain.end(), [](float a, float b) { return std::abs(a) < std::abs(b); }));
    for (std::size_t i = 0; i + 1 < ours.size() / vocabulary; ++i) {
      const Choice choice = choose({plain.data() + i * vocabulary, vocabulary});
      // Where two tokens are closer than the two attentions of libllama are, either is right.
      if (choice.lead > 2 * largest * theirs) {
        EXPECT_EQ(choice.token, tokens[prompt_tokens + i]) << prompt << " token " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, RealModels,
                         testing::Values(RealModel{"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"},
                                         RealModel{"qwen2_5_coder",
                                                   "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf"},
                                         RealModel{"gemma3", "gemma-3-270m.Q4_K_M.gguf"}),
                         [](const auto& info) { return std::string(info.param.name); });

// Few steps: ggml's threads wait by spinning, and a busy machine makes every wait a long one.
TEST(Threads, ResultsDoNotDependOnTheirNumber) {
  const auto model = tiny("llama");
  ASSERT_NE(model, nullptr);
  for (const char* policy : {"full", "keydiff", "h2o", "nestedkv"}) {
    std::vector<std::vector<float>> logits[2];
    for (const int i : {0, 1}) {
      auto session = make_session(model, {.policy = policy, .budget = 600, .block = 512, .threads = i + 1});
      ASSERT_TRUE(session);
      ASSERT_TRUE(session->prefill(random_tokens(*model, 1024, 1)).ok());
      logits[i] = decode_all(*session, random_tokens(*model, 2, 2));
    }
    EXPECT_EQ(logits[0], logits[1]) << policy;
  }
}

TEST(Gemm, NativeProductsDifferByRoundingOnly) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("tiny.gguf");
  // Not the quantised types: there ggml's own rounding of activations is the larger part of a difference.
  for (const ggml_type type : {GGML_TYPE_F16, GGML_TYPE_BF16}) {
    TinyModel description = tiny_model("qwen2");
    description.type = type;
    description.trained_context = 512;
    ASSERT_TRUE(write_tiny_gguf(path, description));
    const auto plain = Model::load(path, {.gemm = Gemm::kGgml});
    const auto native = Model::load(path, {.gemm = Gemm::kNative});
    ASSERT_TRUE(plain.ok() && native.ok());
    const std::vector<Token> tokens = random_tokens(**plain, 100, 3);
    auto a = make_session(*plain, {.policy = "full", .block = 100});
    auto b = make_session(*native, {.policy = "full", .block = 100});
    ASSERT_TRUE(a && b);
    const double difference = relative_difference(all_logits(*b, tokens), all_logits(*a, tokens));
    EXPECT_LE(difference, 3e-2) << ggml_type_name(type);
    EXPECT_GT(difference, 0) << "other kernels were asked for";
  }
}

TEST(Positions, L10_AnEvictedPrefixLeavesNoTrace) {
  const auto model = one_layer(0);
  ASSERT_NE(model, nullptr);
  const std::vector<Token> prefix = random_tokens(*model, 90, 1), suffix = random_tokens(*model, 60, 2);
  const std::vector<Token> rest = random_tokens(*model, 10, 3);
  std::vector<Token> both = prefix;
  both.insert(both.end(), suffix.begin(), suffix.end());
  // Without sinks the policy keeps exactly the suffix.
  auto evicted = make_session(model, {.policy = "sink:first=0,schedule=prefill,decode=append",
                                      .budget = 60,
                                      .block = 32,
                                      .kv_type = KvType::kF32});
  auto fresh = make_session(model, {.policy = "full", .block = 32, .kv_type = KvType::kF32});
  ASSERT_TRUE(evicted && fresh);
  ASSERT_TRUE(evicted->prefill(both).ok());
  ASSERT_TRUE(fresh->prefill(suffix).ok());
  ASSERT_EQ(evicted->kept(0, 0).front(), Position{90});
  const auto a = decode_all(*evicted, rest), b = decode_all(*fresh, rest);
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_LE(relative_difference(a[i], b[i]), 1e-4) << "token " << i;
}

TEST(SlidingWindow, L12_NothingBeyondTheWindowIsSeen) {
  constexpr int kWindow = 24;
  const auto model = one_layer(kWindow);
  ASSERT_NE(model, nullptr);
  ASSERT_EQ(model->info().layer_windows, std::vector<std::int32_t>{kWindow});
  for (const char* policy : {"full", "keydiff", "sink:first=4"}) {
    std::vector<std::vector<float>> logits[2];
    for (const std::uint32_t seed : {0u, 1u}) {
      auto session = make_session(model, {.policy = policy, .budget = 64, .block = 48});
      ASSERT_TRUE(session);
      std::vector<Token> text = random_tokens(*model, 100, seed);
      const std::vector<Token> same = random_tokens(*model, kWindow - 1, 9);
      text.insert(text.end(), same.begin(), same.end());
      ASSERT_TRUE(session->prefill(text).ok());
      EXPECT_EQ(session->kept(0, 0).size(), static_cast<std::size_t>(kWindow));
      logits[seed] = decode_all(*session, random_tokens(*model, 5, 11));
    }
    EXPECT_EQ(logits[0], logits[1]) << policy;
  }
}

TEST(SlidingWindow, L12_ALargeBlockSeesNoMoreThanSmallOnes) {
  const auto model = tiny("gemma3");
  ASSERT_NE(model, nullptr);
  const std::vector<Token> tokens = random_tokens(*model, 150, 5);
  auto large = make_session(model, {.policy = "full", .block = 150, .kv_type = KvType::kF32});
  auto small = make_session(model, {.policy = "full", .block = 1, .kv_type = KvType::kF32});
  ASSERT_TRUE(large && small);
  EXPECT_LE(relative_difference(all_logits(*large, tokens), all_logits(*small, tokens)), kTolerance);
}

}  // namespace
}  // namespace keynest::test
