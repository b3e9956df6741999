// Where weights lie: mapped, read, rearranged or moved, the logits are the same and no weight is in memory
// twice.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "support/libllama_logits.h"
#include "support/models.h"
#include "support/reference_attention.h"
#include "support/tiny_gguf.h"

namespace keynest::test {
namespace {

const std::vector<Token> kTokens{5, 90, 271, 3, 64, 280, 17, 300};

std::vector<float> logits_of(const GraphModel& model) {
  std::vector<std::int32_t> all(kTokens.size());
  std::iota(all.begin(), all.end(), 0);
  auto logits = reference_logits(model, kTokens, all);
  EXPECT_TRUE(logits.ok());
  return logits.ok() ? *logits : std::vector<float>();
}

/// Writes a model whose weights start at a multiple of 4 bytes only.
void write_unaligned(const std::string& path, const TinyModel& tiny) {
  // The writer pads to 32 bytes whatever the key says, so the padding has to be taken out.
  const auto set_alignment = [](gguf_context* gguf) {
    gguf_set_val_u32(gguf, "general.alignment", 4);
    gguf_set_val_str(gguf, "general.comment", "of a length that moves what follows");
  };
  ASSERT_TRUE(write_tiny_gguf(path, tiny, tiny_tensors(tiny), set_alignment));
  gguf_context* gguf = gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr});
  const std::size_t start = gguf_get_data_offset(gguf);
  gguf_free(gguf);
  ASSERT_NE(start % 32, 0u);
  std::stringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string file = bytes.str();
  std::ofstream(path, std::ios::binary) << file.substr(0, start) << file.substr((start + 31) / 32 * 32);
}

class Placement : public testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  TemporaryDirectory directory_;
  const std::string path_ = directory_.file("tiny.gguf");
};

TEST_P(Placement, DoesNotChangeLogits) {
  const auto [use_mmap, repack] = GetParam();
  TinyModel tiny = tiny_model("llama");
  tiny.type = GGML_TYPE_Q4_0;
  ASSERT_TRUE(write_tiny_gguf(path_, tiny));
  const auto model = load_model(path_, {.use_mmap = use_mmap, .repack = repack});
  ASSERT_NE(model, nullptr);
  // Rearranged weights are multiplied in another order, with activations rounded to 8 bits.
  EXPECT_LE(relative_difference(logits_of(*model), libllama_logits(path_, kTokens)), repack ? 1e-5 : 3e-2);
}

TEST_P(Placement, UnalignedWeightsAreMoved) {
  const auto [use_mmap, repack] = GetParam();
  const TinyModel tiny = tiny_model("qwen3");
  ASSERT_TRUE(write_tiny_gguf(path_, tiny));
  const std::string unaligned = directory_.file("unaligned.gguf");
  write_unaligned(unaligned, tiny);
  const auto expected = load_model(path_),
             model = load_model(unaligned, {.use_mmap = use_mmap, .repack = repack});
  ASSERT_TRUE(expected != nullptr && model != nullptr);
  EXPECT_EQ(logits_of(*model), logits_of(*expected));
}

INSTANTIATE_TEST_SUITE_P(Options, Placement, testing::Combine(testing::Bool(), testing::Bool()));

/// Bytes of `path` that are mapped into this process and in memory.
std::size_t resident_bytes(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  std::size_t kilobytes = 0;
  bool ours = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(path) != std::string::npos) ours = true;
    if (ours && line.starts_with("Rss:")) kilobytes += std::stoul(line.substr(4));
    if (line.starts_with("VmFlags:")) ours = false;
  }
  return kilobytes * 1024;
}

TEST(ResidentMemory, CopiedWeightsDoNotStayMapped) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("larger.gguf");
  TinyModel tiny = tiny_model("llama");
  tiny.type = GGML_TYPE_Q4_0;
  tiny.embedding = 512;
  tiny.head_dim = 128;
  tiny.feed_forward = 4096;
  ASSERT_TRUE(write_tiny_gguf(path, tiny));
  const auto mapped = load_model(path, {.repack = false}), copied = load_model(path);
  ASSERT_TRUE(mapped != nullptr && copied != nullptr);
  if (logits_of(*mapped) == logits_of(*copied)) GTEST_SKIP() << "ggml rearranges nothing on this machine";
  const std::size_t both = resident_bytes(path), bytes = copied->info().weight_bytes;
  EXPECT_GT(bytes, std::size_t{6} << 20);
  EXPECT_GT(both, bytes / 2);          // the first one's, which its graph has read
  EXPECT_LT(both, bytes + bytes / 4);  // and of the second one's at most the embedding table
}

/// Who multiplies, where the matrices are F32, the embeddings F16 and `output` is an output matrix of that
/// type.
std::string who_multiplies(ggml_type output, bool tied) {
  const TemporaryDirectory directory;
  TinyModel tiny = tiny_model("llama");
  tiny.tied = tied;
  auto tensors = tiny_tensors(tiny);
  for (TinyTensor& tensor : tensors) {
    if (tensor.name == "token_embd.weight") tensor.type = GGML_TYPE_F16;
    if (tensor.name == "output.weight") tensor.type = output;
  }
  const std::string path = directory.file("tiny.gguf");
  EXPECT_TRUE(write_tiny_gguf(path, tiny, tensors, [](gguf_context*) {}));
  const auto model = Model::load(path, {.gemm = Gemm::kNative});
  EXPECT_TRUE(model.ok());
  return model ? (*model)->info().gemm : "";
}

TEST(Gemm, IsOfTensorsThatAreMultiplied) {
  EXPECT_EQ(who_multiplies(GGML_TYPE_F32, false), "ggml") << "the embeddings are only looked up";
  EXPECT_EQ(who_multiplies(GGML_TYPE_F32, true), "native") << "they are the output matrix too";
  EXPECT_EQ(who_multiplies(GGML_TYPE_F16, false), "native");
}

TEST(ResidentMemory, LargePagesAreAskedForWhereTheSystemHasThem) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "it has none";
  const TemporaryDirectory directory;
  const std::string path = directory.file("tiny.gguf");
  ASSERT_TRUE(write_tiny_gguf(path, tiny_model("llama")));
  const auto model = load_model(path, {.gemm = Gemm::kNative});
  ASSERT_NE(model, nullptr);
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  while (std::getline(maps, line) && line.find(path) == std::string::npos) {
  }
  while (std::getline(maps, line) && !line.starts_with("VmFlags:")) {
  }
  EXPECT_NE(line.find(" hg"), std::string::npos) << line;
}

}  // namespace
}  // namespace keynest::test
