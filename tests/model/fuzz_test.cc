// Cuts and flipped bits: whatever the file has become, it loads or says why it does not.
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
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

/// Sets `key` to a random value of a random type.
void set_random(gguf_context* gguf, const std::string& key, std::mt19937& random) {
  const std::uint32_t extremes[] = {0, 1, 2, 3, 7, 255, 256, 65535, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};
  const std::uint32_t value = random() % 2 == 0 ? extremes[random() % std::size(extremes)] : random() % 100;
  const std::vector<std::uint32_t> values(value % 2000, value);
  const std::vector<const char*> texts(value % 400, value % 2 == 0 ? "" : "x");
  const char* name = key.c_str();
  switch (random() % 9) {
    case 0:
    case 1:
    case 2:
      return gguf_set_val_u32(gguf, name, value);
    case 3:
      return gguf_set_val_f32(gguf, name, std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    case 4:
      return gguf_set_val_bool(gguf, name, value % 2 == 0);
    case 5:
      return gguf_set_val_str(gguf, name, value % 2 == 0 ? "" : "llama");
    case 6:
      return gguf_set_arr_data(gguf, name, GGUF_TYPE_INT32, values.data(), values.size());
    case 7:
      return gguf_set_arr_data(gguf, name, GGUF_TYPE_FLOAT32, values.data(), values.size());
    default:
      return gguf_set_arr_str(gguf, name, const_cast<const char**>(texts.data()), texts.size());
  }
}

TEST_P(Fuzz, RandomMetadataNeverCrashes) {
  std::mt19937 random(11);
  TinyModel tiny = tiny_model(GetParam());
  tiny.layers = 1;
  tiny.rope_scaling = "linear";
  const std::vector<TinyTensor> tensors = tiny_tensors(tiny);
  for (int round = 0; round < 1000; ++round) {
    const auto change = [&](gguf_context* gguf) {
      for (std::uint32_t i = 0; i <= round % 2u; ++i) {
        const auto id = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(gguf_get_n_kv(gguf)));
        set_random(gguf, gguf_get_key(gguf, id), random);
      }
    };
    ASSERT_TRUE(write_tiny_gguf(path_, tiny, tensors, change));
    const auto model = Model::load(path_);
    model.ok() ? use(**model) : expect_own_error(model.error());
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, Fuzz, testing::Values("llama", "qwen2", "gemma3"));

}  // namespace
}  // namespace keynest::test
