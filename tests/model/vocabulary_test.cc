// Text to tokens and back: every byte comes back, long texts give the tokens libllama gives.
#include <gtest/gtest.h>
#include <llama.h>

#include <random>

#include "support/models.h"
#include "support/tiny_gguf.h"

namespace keynest::test {
namespace {

struct Case {
  std::string name;
  TinyModel model;
  std::string prefix;  // what the vocabulary puts in front
};

void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

std::string text_of(const Model& model, const std::vector<Token>& tokens) {
  std::string text;
  for (const Token token : tokens) text += model.piece(token);
  return text;
}

std::string random_bytes(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += static_cast<char>(random() & 0xFF);
  return text;
}

/// Lines of words, with some that are hard on tokenizers among them.
std::string prose(std::size_t bytes) {
  std::mt19937 random(5);
  const std::vector<std::string> words{
      "the ", "in", "and ",  " theand",       "\n",  "\n\n", "  ",    "x1, ", "caf\xC3\xA9 ",
      "(on)", "\t", "he.\n", "\xE6\xBC\xA2 ", "'s ", "is ",  "0 1\n2"};
  std::string text;
  while (text.size() < bytes) text += words[random() % words.size()];
  return text;
}

std::vector<Token> libllama_tokens(const llama_vocab* vocab, const std::string& text, bool parse_special) {
  std::vector<Token> tokens(text.size() + 8);
  const std::int32_t count =
      llama_tokenize(vocab, text.data(), static_cast<std::int32_t>(text.size()), tokens.data(),
                     static_cast<std::int32_t>(tokens.size()), false, parse_special);
  tokens.resize(static_cast<std::size_t>(std::max(count, 0)));
  return tokens;
}

class TinyVocabulary : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string path = directory_.file("tiny.gguf");
    ASSERT_TRUE(write_tiny_gguf(path, GetParam().model));
    model_ = load_model(path);
    ASSERT_NE(model_, nullptr);
  }

  void expect_exact(const std::string& text) {
    EXPECT_EQ(text_of(*model_, model_->tokenize(text, false, false)), GetParam().prefix + text);
  }

  TemporaryDirectory directory_;
  std::shared_ptr<const GraphModel> model_;
};

TEST_P(TinyVocabulary, GivesBackValidText) {
  expect_exact("the and");
  expect_exact("  two  spaces \n\n\ttab");
  expect_exact("caf\xC3\xA9 \xE6\xBC\xA2\xE5\xAD\x97 \xF0\x9F\x98\x80");
  expect_exact("\xE2\x96\x81 lower block \xE2\x96\x81\xE2\x96\x81");
  expect_exact(std::string("zero \0 byte", 11));
  expect_exact("\xF4\x8F\xBF\xBF the last private characters \xF4\x8F\xBC\x80");
}

TEST_P(TinyVocabulary, GivesBackInvalidText) {
  expect_exact("\xFF");
  expect_exact("cut \xE2\x96");
  expect_exact("\xC0\x80 overlong, surrogate \xED\xA0\x80, too high \xF4\x90\x80\x80, alone \x80\xBF");
  expect_exact("\xFF the");
  for (std::uint32_t seed = 0; seed < 50; ++seed) expect_exact(random_bytes(200, seed));
}

TEST_P(TinyVocabulary, GivesBackLongText) {
  expect_exact(random_bytes(150000, 1));
  expect_exact(std::string(150000, 'a'));
  expect_exact(std::string(150000, ' '));
  expect_exact(prose(300000));
}

TEST_P(TinyVocabulary, EmptyTextHasNoTokens) { EXPECT_TRUE(model_->tokenize("", false, true).empty()); }

TEST_P(TinyVocabulary, EqualsLibllama) {
  for (const std::size_t bytes : {100u, 5000u, 400000u}) {
    const std::string text = prose(bytes);
    EXPECT_EQ(model_->tokenize(text, false, true), libllama_tokens(model_->vocab(), text, true));
  }
}

TEST_P(TinyVocabulary, ReadsControlTokensOnlyWhenAsked) {
  const std::string text = "<|im_start|>the<|im_end|>";
  const auto parsed = model_->tokenize(text, false, true);
  EXPECT_EQ(text_of(*model_, parsed), GetParam().prefix + "the");
  EXPECT_EQ(model_->piece(parsed.front(), true), "<|im_start|>");
  EXPECT_EQ(text_of(*model_, model_->tokenize(text, false, false)), GetParam().prefix + text);
}

TEST_P(TinyVocabulary, AddsWhatTheVocabularyAsksFor) {
  const auto plain = model_->tokenize("the", false, false), added = model_->tokenize("the", true, false);
  const bool starts = llama_vocab_get_add_bos(model_->vocab());
  EXPECT_EQ(added.size(), plain.size() + (starts ? 1 : 0));
  if (starts) {
    EXPECT_EQ(added.front(), llama_vocab_bos(model_->vocab()));
  }
}

TEST_P(TinyVocabulary, KnowsItsEnds) {
  const Token end = llama_vocab_eos(model_->vocab());
  EXPECT_TRUE(model_->is_end(end));
  EXPECT_TRUE(model_->is_end(model_->tokenize("<|im_end|>", false, true).back()));
  EXPECT_FALSE(model_->is_end(model_->tokenize("the", false, false).back()));
  EXPECT_EQ(model_->piece(end), "");
  EXPECT_NE(model_->piece(end, true), "");
}

TEST_P(TinyVocabulary, TakesAnyTokenNumber) {
  for (const Token token : {-1, -2147483647 - 1, model_->info().vocabulary, 2147483647}) {
    EXPECT_EQ(model_->piece(token), "");
    EXPECT_EQ(model_->piece(token, true), "");
    EXPECT_FALSE(model_->is_end(token));
  }
}

std::vector<Case> cases() {
  TinyModel regex = tiny_model("qwen2");
  regex.architecture = "llama";  // another way to split words
  regex.biases = false;
  return {{"SentencePiece", tiny_model("llama"), " "},
          {"SentencePieceWithoutPrefix", tiny_model("gemma3"), ""},
          {"ByteLevel", tiny_model("qwen2"), ""},
          {"ByteLevelPlain", regex, ""}};
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, TinyVocabulary, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

/// Writes a byte-level model whose vocabulary has `change` made to its tokens.
std::shared_ptr<const GraphModel> load_byte_level(const TemporaryDirectory& directory, const std::string& pre,
                                                  const std::string& lost_token) {
  const TinyModel tiny = tiny_model("qwen2");
  const std::string path = directory.file("changed.gguf");
  const bool written = write_tiny_gguf(path, tiny, tiny_tensors(tiny), [&](gguf_context* gguf) {
    gguf_set_val_str(gguf, "tokenizer.ggml.pre", pre.c_str());
    const std::int64_t id = gguf_find_key(gguf, "tokenizer.ggml.tokens");
    std::vector<std::string> tokens;
    for (std::size_t i = 0; i < gguf_get_arr_n(gguf, id); ++i)
      tokens.push_back(gguf_get_arr_str(gguf, id, i));
    std::vector<const char*> changed;
    for (const std::string& token : tokens) changed.push_back(token == lost_token ? "<lost>" : token.c_str());
    gguf_set_arr_str(gguf, "tokenizer.ggml.tokens", changed.data(), changed.size());
  });
  EXPECT_TRUE(written);
  return load_model(path);
}

TEST(Vocabulary, BytesWithoutTokensBecomeReplacementCharacters) {
  const TemporaryDirectory directory;
  const auto model = load_byte_level(directory, "qwen2", "\xC3\xBF");  // stands for byte 0xFF
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(text_of(*model, model->tokenize("a\xFF\xFE z", false, false)), "a\xEF\xBF\xBD\xFE z");
}

TEST(Vocabulary, LongWordsDoNotExhaustTheStack) {
  const TemporaryDirectory directory;
  const auto model = load_byte_level(directory, "deepseek-llm", "");  // split with std::regex, which recurses
  ASSERT_NE(model, nullptr);
  for (const char c : {'a', ' ', '1', '\n', '!'}) {
    const std::string text(200000, c);
    EXPECT_EQ(text_of(*model, model->tokenize(text, false, false)), text);
  }
}

TEST(Vocabulary, ControlTokensSurviveInTextsWithoutSpaces) {
  const TemporaryDirectory directory;
  const auto model = load_byte_level(directory, "qwen2", "");
  ASSERT_NE(model, nullptr);
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "<|im_start|>x";
  EXPECT_EQ(model->tokenize(text, false, true).size(), 40000u);
}

}  // namespace
}  // namespace keynest::test
