// The real models, where they are: libllama's logits and tokens, and what the files say of themselves.
#include <gtest/gtest.h>
#include <llama.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "support/libllama_logits.h"
#include "support/models.h"
#include "support/reference_attention.h"

namespace keynest::test {
namespace {

struct RealModel {
  const char* file;
  const char* architecture;
  int layers, heads, kv_heads, head_dim, vocabulary, context, local_layers, window;
  const char* lost;  // bytes the vocabulary has no tokens for
};

void PrintTo(const RealModel& model, std::ostream* out) { *out << model.file; }

constexpr RealModel kModels[] = {
    {"SmolLM2-135M-Instruct.Q4_1.gguf", "llama", 30, 9, 3, 64, 49152, 8192, 0, 0, "\x04\xFF"},
    {"Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf", "qwen2", 24, 14, 2, 64, 151936, 32768, 0, 0, ""},
    {"gemma-3-270m.Q4_K_M.gguf", "gemma3", 18, 4, 1, 256, 262144, 32768, 15, 512, ""},
};

constexpr const char* kPrompts[] = {
    "The quick brown fox jumps over the lazy dog. Then it",
    "int main(int argc, char** argv) {\n  // print all arguments\n  for (int i = 1; i < argc; ++i) {\n",
    "Q: What is the capital of France?\nA: Paris.\n\nQ: And of Japan \xE2\x80\x94 "
    "\xE6\x9D\xB1\xE4\xBA\xAC?\nA:",
};

class RealModels : public testing::TestWithParam<RealModel> {
 protected:
  void SetUp() override {
    path_ = real_model_path(GetParam().file);
    if (path_.empty()) GTEST_SKIP() << GetParam().file << " is not in KEYNEST_MODELS_DIR (scripts/get-model)";
    model_ = load_model(path_);
    ASSERT_NE(model_, nullptr);
  }

  std::string path_;
  std::shared_ptr<const GraphModel> model_;
};

TEST_P(RealModels, SayWhatTheyAre) {
  const RealModel& expected = GetParam();
  const ModelInfo& info = model_->info();
  EXPECT_EQ(info.architecture, expected.architecture);
  EXPECT_EQ(info.layers, expected.layers);
  EXPECT_EQ(info.heads, expected.heads);
  EXPECT_EQ(info.kv_heads, expected.kv_heads);
  EXPECT_EQ(info.head_dim, expected.head_dim);
  EXPECT_EQ(info.vocabulary, expected.vocabulary);
  EXPECT_EQ(info.trained_context, expected.context);
  const auto& windows = info.layer_windows;
  EXPECT_EQ(std::count(windows.begin(), windows.end(), expected.window),
            expected.window == 0 ? info.layers : expected.local_layers);
}

TEST_P(RealModels, LogitsEqualLibllama) {
  for (const char* prompt : kPrompts) {
    const std::vector<Token> tokens = model_->tokenize(prompt, true, true);
    std::vector<std::int32_t> all(tokens.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
    const auto ours = reference_logits(*model_, tokens, all);
    ASSERT_TRUE(ours.ok());
    // Equal to the bit today; activations are rounded to 8 bits, so that sums in another order would differ
    // by 2 %.
    EXPECT_LE(relative_difference(*ours, libllama_logits(path_, tokens)), 1e-5) << prompt;
  }
}

std::string license_text() {
  std::stringstream text;
  text << std::ifstream("/usr/share/common-licenses/GPL-3").rdbuf();
  return text.str();
}

TEST_P(RealModels, TokensEqualLibllama) {
  std::string text = license_text();
  for (const char* prompt : kPrompts) text += prompt;
  while (text.size() < 500000) text += text + "\n<|im_start|>user\nthe end<end_of_turn> ";
  std::vector<Token> tokens(text.size());
  tokens.resize(
      static_cast<std::size_t>(llama_tokenize(model_->vocab(), text.data(), static_cast<int>(text.size()),
                                              tokens.data(), static_cast<int>(tokens.size()), false, true)));
  EXPECT_EQ(model_->tokenize(text, false, true), tokens);
}

TEST_P(RealModels, GiveBackEveryByte) {
  std::string text = "\xFF\xFE caf\xC3\xA9 \xE2\x96\x81 \xF0\x9F\x98\x80 cut \xE2\x96";
  for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
  const std::string lost = GetParam().lost;
  std::string back;
  for (const Token token : model_->tokenize(text, false, false)) back += model_->piece(token);
  if (lost.empty()) {
    EXPECT_EQ(back, text);
  } else {
    for (const char byte : lost) EXPECT_EQ(back.find(byte), std::string::npos);
    EXPECT_NE(back.find("\xEF\xBF\xBD caf\xC3\xA9 \xE2\x96\x81"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, RealModels, testing::ValuesIn(kModels),
                         [](const auto& test) { return std::string(test.param.architecture); });

}  // namespace
}  // namespace keynest::test
