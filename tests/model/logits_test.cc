// Law L9, the model layer's part: with plain attention over F32 keys the graphs give libllama's logits.
#include <gtest/gtest.h>

#include <memory>

#include "model/graph.h"
#include "support/libllama_logits.h"
#include "support/models.h"
#include "support/reference_attention.h"
#include "support/tiny_gguf.h"

namespace keynest::test {
namespace {

// Both sides run the same ggml operations on the same weights, the reference pads its keys as libllama does,
// and gemma's attention scales are powers of two here, so the results are equal to the bit. The tolerance
// leaves room for a ggml that orders its sums by batch.
constexpr double kTolerance = 1e-5;

struct Case {
  std::string name;
  TinyModel model;
};

void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

Case make(const std::string& name, const std::string& architecture, auto change) {
  Case result{name, tiny_model(architecture)};
  change(result.model);
  return result;
}

std::vector<Case> cases() {
  using Tokenizer = TinyModel::Tokenizer;
  std::vector<Case> all;
  const auto none = [](TinyModel&) {};
  for (const char* name : {"llama", "qwen2", "qwen3", "gemma3"}) {
    const std::string architecture = name;
    all.push_back(make(architecture + "_plain", architecture, none));
    all.push_back(make(architecture + "_untied", architecture, [](TinyModel& m) { m.tied = false; }));
    all.push_back(
        make(architecture + "_linear", architecture, [](TinyModel& m) { m.rope_scaling = "linear"; }));
    all.push_back(make(architecture + "_yarn", architecture, [](TinyModel& m) { m.rope_scaling = "yarn"; }));
    all.push_back(
        make(architecture + "_unscaled", architecture, [](TinyModel& m) { m.rope_scaling = "none"; }));
    for (const ggml_type type :
         {GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1}) {
      all.push_back(make(architecture + "_" + ggml_type_name(type), architecture,
                         [&](TinyModel& m) { m.type = type; }));
    }
  }
  all.push_back(make("llama_yarn_shrinking", "llama", [](TinyModel& m) {
    m.rope_scaling = "yarn";
    m.rope_factor = 0.5f;
  }));
  all.push_back(make("qwen2_attention_factor", "qwen2", [](TinyModel& m) { m.rope_attention = 1.5f; }));
  all.push_back(make("gemma3_yarn_attention_factor", "gemma3", [](TinyModel& m) {
    m.rope_scaling = "yarn";
    m.rope_factor = 4.0f;
    m.rope_attention = 1.5f;
  }));
  all.push_back(make("llama_factors", "llama", [](TinyModel& m) { m.rope_factors = true; }));
  all.push_back(make("llama_bytelevel", "llama", [](TinyModel& m) { m.tokenizer = Tokenizer::kByteLevel; }));
  all.push_back(make("llama_ungrouped", "llama", [](TinyModel& m) { m.kv_heads = m.heads; }));
  all.push_back(make("llama_biases", "llama", [](TinyModel& m) { m.biases = true; }));
  all.push_back(make("qwen3_one_kv_head", "qwen3", [](TinyModel& m) { m.kv_heads = 1; }));
  all.push_back(make("gemma3_global", "gemma3", [](TinyModel& m) { m.window = m.pattern = 0; }));
  all.push_back(make("gemma3_all_local", "gemma3", [](TinyModel& m) { m.pattern = 0; }));
  all.push_back(make("gemma3_default_pattern", "gemma3", [](TinyModel& m) { m.layers = 7, m.pattern = 0; }));
  all.push_back(make("gemma3_softcap", "gemma3", [](TinyModel& m) { m.softcap = 2.0f; }));
  all.push_back(make("gemma3_27b_scale", "gemma3", [](TinyModel& m) { m.layers = 62, m.head_dim = 64; }));
  return all;
}

std::vector<Token> some_tokens(int count, int vocabulary) {
  std::vector<Token> tokens;
  std::uint32_t state = 7;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    tokens.push_back(static_cast<Token>((state >> 8) % static_cast<std::uint32_t>(vocabulary)));
  }
  return tokens;
}

std::vector<std::int32_t> numbers(std::int32_t count) {
  std::vector<std::int32_t> result;
  for (std::int32_t i = 0; i < count; ++i) result.push_back(i);
  return result;
}

class TinyLogits : public testing::TestWithParam<Case> {};

TEST_P(TinyLogits, EqualLibllama) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("tiny.gguf");
  ASSERT_TRUE(write_tiny_gguf(path, GetParam().model));
  const auto model = load_model(path);
  ASSERT_NE(model, nullptr);
  const std::vector<Token> tokens = some_tokens(40, model->info().vocabulary);
  const auto ours = reference_logits(*model, tokens, numbers(40));
  ASSERT_TRUE(ours.ok());
  EXPECT_LE(relative_difference(*ours, libllama_logits(path, tokens)), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Architectures, TinyLogits, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

class Outputs : public testing::TestWithParam<const char*> {};

TEST_P(Outputs, SelectRowsOfAllLogits) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("tiny.gguf");
  ASSERT_TRUE(write_tiny_gguf(path, tiny_model(GetParam())));
  const auto model = load_model(path);
  ASSERT_NE(model, nullptr);
  const auto vocabulary = static_cast<std::size_t>(model->info().vocabulary);
  const std::vector<Token> tokens = some_tokens(12, model->info().vocabulary);
  const auto all = reference_logits(*model, tokens, numbers(12));
  const std::vector<std::int32_t> wanted{3, 11};
  const auto some = reference_logits(*model, tokens, wanted);
  ASSERT_TRUE(all.ok() && some.ok());
  ASSERT_EQ(some->size(), 2 * vocabulary);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto row = std::span(*all).subspan(static_cast<std::size_t>(wanted[i]) * vocabulary, vocabulary);
    EXPECT_LE(relative_difference(std::span(*some).subspan(i * vocabulary, vocabulary), row), kTolerance);
  }
}

TEST_P(Outputs, NoneLeavesOutWhatFollowsTheLastAttention) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("tiny.gguf");
  ASSERT_TRUE(write_tiny_gguf(path, tiny_model(GetParam())));
  const auto model = load_model(path);
  ASSERT_NE(model, nullptr);
  const std::unique_ptr<ggml_context, decltype(&ggml_free)> context(ggml_init({1 << 22, nullptr, true}),
                                                                    ggml_free);
  ReferenceAttention attention(model->hparams());
  const StepGraph step = model->build(context.get(), {.tokens = 4, .outputs = 0}, attention);
  EXPECT_EQ(step.logits, nullptr);
  EXPECT_EQ(step.output_ids, nullptr);
  EXPECT_EQ(static_cast<int>(attention.evictions().size()), model->info().layers);
  const std::string last = std::to_string(model->info().layers - 1);
  EXPECT_NE(ggml_graph_get_tensor(step.graph, ("attended-" + last).c_str()), nullptr);
  EXPECT_NE(ggml_graph_get_tensor(step.graph, "ffn_out-0"), nullptr);
  EXPECT_EQ(ggml_graph_get_tensor(step.graph, ("attn_out-" + last).c_str()), nullptr);
  EXPECT_EQ(ggml_graph_get_tensor(step.graph, ("ffn_out-" + last).c_str()), nullptr);
}

TEST_P(Outputs, GraphStaysBelowItsBound) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("tiny.gguf");
  ASSERT_TRUE(write_tiny_gguf(path, tiny_model(GetParam())));
  const auto model = load_model(path);
  ASSERT_NE(model, nullptr);
  const std::unique_ptr<ggml_context, decltype(&ggml_free)> context(ggml_init({1 << 22, nullptr, true}),
                                                                    ggml_free);
  ReferenceAttention attention(model->hparams());
  const StepGraph step = model->build(context.get(), {.tokens = 4, .outputs = 2}, attention);
  EXPECT_LT(static_cast<std::size_t>(ggml_graph_n_nodes(step.graph)), model->graph_nodes());
}

INSTANTIATE_TEST_SUITE_P(Architectures, Outputs, testing::Values("llama", "qwen2", "qwen3", "gemma3"));

}  // namespace
}  // namespace keynest::test
