#include "cli/tiny.h"

#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace keynest::test {

std::unique_ptr<TemporaryDirectory> Tiny::directory_;
std::shared_ptr<const Model> Tiny::model_;

void Tiny::SetUpTestSuite() {
  directory_ = std::make_unique<TemporaryDirectory>();
  TinyModel tiny = tiny_model("llama");
  tiny.trained_context = kTrainedContext;
  ASSERT_TRUE(write_tiny_gguf(file("tiny.gguf"), tiny));
  auto model = Model::load(file("tiny.gguf"));
  ASSERT_TRUE(model) << model.error().message;
  model_ = *model;
}

void Tiny::TearDownTestSuite() {
  model_.reset();
  directory_.reset();
}

void Tiny::write(const std::string& name, const std::string& content) {
  std::ofstream(file(name), std::ios::binary) << content;
}

std::string Tiny::read(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(file(name), std::ios::binary).rdbuf();
  return text.str();
}

std::vector<std::string> Tiny::command(const std::string& name, std::vector<std::string> more) {
  std::vector<std::string> all{name, "-m", file("tiny.gguf"), "-t", "1", "--ignore-eos", "--block", "16"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::string Tiny::continue_text(const std::vector<Token>& tokens, int count) {
  SessionOptions options;
  options.threads = 1;
  options.block = 16;
  auto session = Session::create(model_, options);
  EXPECT_TRUE(session) << session.error().message;
  EXPECT_TRUE((*session)->prefill(tokens));
  std::string text;
  for (int i = 0; i < count; ++i) {
    const Token token = (*session)->sample({});
    text += model_->piece(token);
    EXPECT_TRUE((*session)->decode(token));
  }
  return text;
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string escaped(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    std::array<char, 5> hex{};
    std::snprintf(hex.data(), hex.size(), "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    text += hex.data();
  }
  return text;
}

}  // namespace keynest::test
