// Cuts and flipped bits: whatever the file has become, it loads or says why it does not.
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "support/models.h"
#include "support/reference_attention.h"
#include "support/tiny_gguf.h"

namespace keynest::test {
namespace {

std::string read_file(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// Writes `bytes` into the file from `at` on.
void patch_file(const std::string& path, std::size_t at, const std::string& bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at));
  file << bytes;
}

/// Bytes before the weights.
std::size_t header_size(const std::string& path) {
  gguf_context* gguf = gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr});
  const std::size_t size = gguf_get_data_offset(gguf);
  gguf_free(gguf);
  return size;
}

/// A model that loads must also work.
void use(const Model& loaded) {
  const auto& model = dynamic_cast<const GraphModel&>(loaded);
  std::vector<Token> tokens = model.tokenize("the \xFF <|im_end|> and", true, true);
  for (const Token token : tokens) model.piece(token, true);
  tokens.resize(4);
  EXPECT_TRUE(reference_logits(model, tokens, std::vector<std::int32_t>{3}).ok());
}

/// Found by our own checks, not by an assertion of the engine.
void expect_own_error(const Error& error) {
  EXPECT_EQ(error.message.find("the engine refused it"), std::string::npos) << error.message;
  EXPECT_NE(error.code, ErrorCode::kInternal) << error.message;
}

class Fuzz : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    TinyModel tiny = tiny_model(GetParam());
    tiny.layers = 1;
    tiny.type = GGML_TYPE_Q4_0;
    tiny.rope_scaling = "yarn";
    tiny.rope_factors = tiny.architecture == "llama";
    ASSERT_TRUE(write_tiny_gguf(path_, tiny));
    bytes_ = read_file(path_);
    header_ = header_size(path_);
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.file("tiny.gguf");
  std::string bytes_;
  std::size_t header_ = 0;
};

TEST_P(Fuzz, EveryCutIsRefused) {
  // Some lengths inside the weights, then every one of the header.
  for (std::size_t length = bytes_.size() - 1; length + 1 > 0; length -= length <= header_ ? 1 : 97) {
    std::filesystem::resize_file(path_, length);
    const auto model = Model::load(path_);
    ASSERT_FALSE(model.ok()) << length;
    ASSERT_EQ(model.error().code, ErrorCode::kInvalidFile) << length;
    if (length == 0) break;
  }
}

TEST_P(Fuzz, FlippedBytesNeverCrash) {
  std::mt19937 random(3);
  int loaded = 0;
  constexpr int kRounds = 3000;
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = bytes_.substr(0, header_);
    const int flips = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < flips; ++i) bytes[random() % header_] ^= static_cast<char>(1 + random() % 255);
    patch_file(path_, 0, bytes);
    const auto model = Model::load(path_, {.use_mmap = round % 2 == 0});
    if (!model.ok()) {
      expect_own_error(model.error());
      continue;
    }
    ++loaded;
    use(**model);
  }
  EXPECT_GT(loaded, 0);
  EXPECT_LT(loaded, kRounds);
}

TEST_P(Fuzz, ExtremeBytesNeverCrash) {
  // Counts, types and the architecture's numbers, one byte after the other.
  for (std::size_t at = 0; at < std::min<std::size_t>(header_, 1500); ++at) {
    for (const char value : {'\0', '\x7F', '\xFF'}) {
      if (bytes_[at] == value) continue;
      patch_file(path_, at, std::string(1, value));
      const auto model = Model::load(path_);
      model.ok() ? use(**model) : expect_own_error(model.error());
    }
    patch_file(path_, at, std::string(1, bytes_[at]));
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, Fuzz, testing::Values("llama", "qwen2", "gemma3"));

}  // namespace
}  // namespace keynest::test
