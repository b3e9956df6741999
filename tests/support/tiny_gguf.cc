#include "support/tiny_gguf.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>

#include "support/tiny_vocabulary.h"

namespace keynest::test {
namespace {

void set_metadata(gguf_context* gguf, const TinyModel& model) {
  const auto key = [&](const char* name) { return model.architecture + "." + name; };
  const auto number = [&](const char* name, int value) {
    gguf_set_val_u32(gguf, key(name).c_str(), static_cast<std::uint32_t>(value));
  };
  const auto real = [&](const char* name, float value) { gguf_set_val_f32(gguf, key(name).c_str(), value); };
  gguf_set_val_str(gguf, "general.architecture", model.architecture.c_str());
  gguf_set_val_str(gguf, "general.name", ("tiny " + model.architecture).c_str());
  number("context_length", model.trained_context);
  number("embedding_length", model.embedding);
  number("block_count", model.layers);
  number("feed_forward_length", model.feed_forward);
  number("attention.head_count", model.heads);
  number("attention.head_count_kv", model.kv_heads);
  number("attention.key_length", model.head_dim);
  number("attention.value_length", model.head_dim);
  real("attention.layer_norm_rms_epsilon", 1e-5f);
  number("rope.dimension_count", model.head_dim);
  real("rope.freq_base", model.rope_base);
  if (!model.rope_scaling.empty()) {
    gguf_set_val_str(gguf, key("rope.scaling.type").c_str(), model.rope_scaling.c_str());
    real("rope.scaling.factor", model.rope_factor);
    number("rope.scaling.original_context_length", model.trained_context / 2);
  }
  if (model.rope_attention > 0) real("rope.scaling.attn_factor", model.rope_attention);
  if (model.window > 0) number("attention.sliding_window", model.window);
  if (model.pattern > 0) number("attention.sliding_window_pattern", model.pattern);
  if (model.softcap > 0) real("final_logit_softcapping", model.softcap);
}

/// Random values that keep activations near 1: norms around 1, matrices by 1 / sqrt(inputs), rope factors
/// from 1 up.
std::vector<float> values(const TinyTensor& tensor, std::mt19937& random) {
  std::size_t count = 1;
  for (const std::int64_t size : tensor.shape) count *= static_cast<std::size_t>(size);
  const bool norm = tensor.name.find("norm") != std::string::npos;
  const bool factors = tensor.name.starts_with("rope_freqs");
  const bool matrix = tensor.shape.size() > 1;
  const float mean = norm || factors ? 1.0f : 0.0f;
  const float deviation = matrix ? 1.5f / std::sqrt(static_cast<float>(tensor.shape[0])) : 0.2f;
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> result(count);
  for (float& value : result) value = mean + (factors ? 8 * std::abs(normal(random)) : normal(random));
  return result;
}

struct FreeContexts {
  void operator()(gguf_context* context) const { gguf_free(context); }
  void operator()(ggml_context* context) const { ggml_free(context); }
};

/// Adds one tensor with random data, converted to its type.
void add_tensor(gguf_context* gguf, ggml_context* context, const TinyTensor& spec, std::mt19937& random) {
  ggml_tensor* tensor =
      ggml_new_tensor(context, spec.type, static_cast<int>(spec.shape.size()), spec.shape.data());
  ggml_set_name(tensor, spec.name.c_str());
  const std::vector<float> data = values(spec, random);
  if (spec.type == GGML_TYPE_F32) {
    std::memcpy(tensor->data, data.data(), data.size() * sizeof(float));
  } else {
    ggml_quantize_chunk(spec.type, data.data(), tensor->data, 0, ggml_nrows(tensor), tensor->ne[0], nullptr);
  }
  gguf_add_tensor(gguf, tensor);
}

std::size_t memory_for(const std::vector<TinyTensor>& tensors) {
  std::size_t bytes = 1 << 16;
  for (const TinyTensor& tensor : tensors) {
    std::int64_t rows = 1;
    for (std::size_t i = 1; i < tensor.shape.size(); ++i) rows *= tensor.shape[i];
    bytes += ggml_row_size(tensor.type, tensor.shape[0]) * static_cast<std::size_t>(rows) + 1024;
  }
  return bytes;
}

}  // namespace

TinyModel tiny_model(const std::string& architecture) {
  TinyModel model;
  model.architecture = architecture;
  if (architecture.starts_with("qwen")) model.tokenizer = TinyModel::Tokenizer::kByteLevel;
  if (architecture == "qwen2") model.biases = true;
  if (architecture == "qwen3") {
    model.head_norms = true;
    model.head_dim = 32;
  }
  if (architecture == "gemma3") {
    model.head_norms = true;
    model.layers = 3;
    model.window = 8;
    model.pattern = 3;
    model.rope_base = 100000.0f;
  }
  return model;
}

std::vector<TinyTensor> tiny_tensors(const TinyModel& m) {
  std::vector<TinyTensor> tensors;
  const auto vector = [&](const std::string& name, std::int64_t size) {
    tensors.push_back({name, GGML_TYPE_F32, {size}});
  };
  const auto matrix = [&](const std::string& name, std::int64_t in, std::int64_t out) {
    tensors.push_back({name + ".weight", m.type, {in, out}});
  };
  const std::int64_t width = m.head_dim * m.heads, kv_width = m.head_dim * m.kv_heads;
  matrix("token_embd", m.embedding, kTinyVocabulary);
  vector("output_norm.weight", m.embedding);
  if (!m.tied) matrix("output", m.embedding, kTinyVocabulary);
  if (m.rope_factors) vector("rope_freqs.weight", m.head_dim / 2);
  for (int i = 0; i < m.layers; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    vector(layer + "attn_norm.weight", m.embedding);
    matrix(layer + "attn_q", m.embedding, width);
    matrix(layer + "attn_k", m.embedding, kv_width);
    matrix(layer + "attn_v", m.embedding, kv_width);
    matrix(layer + "attn_output", width, m.embedding);
    if (m.biases) {
      vector(layer + "attn_q.bias", width);
      vector(layer + "attn_k.bias", kv_width);
      vector(layer + "attn_v.bias", kv_width);
    }
    if (m.head_norms) {
      vector(layer + "attn_q_norm.weight", m.head_dim);
      vector(layer + "attn_k_norm.weight", m.head_dim);
    }
    if (m.architecture == "gemma3") {
      vector(layer + "post_attention_norm.weight", m.embedding);
      vector(layer + "post_ffw_norm.weight", m.embedding);
    }
    vector(layer + "ffn_norm.weight", m.embedding);
    matrix(layer + "ffn_gate", m.embedding, m.feed_forward);
    matrix(layer + "ffn_up", m.embedding, m.feed_forward);
    matrix(layer + "ffn_down", m.feed_forward, m.embedding);
  }
  return tensors;
}

bool write_tiny_gguf(const std::string& path, const TinyModel& model) {
  return write_tiny_gguf(path, model, tiny_tensors(model), {});
}

bool write_tiny_gguf(const std::string& path, const TinyModel& model, const std::vector<TinyTensor>& tensors,
                     const std::function<void(gguf_context*)>& edit_metadata) {
  const std::unique_ptr<gguf_context, FreeContexts> gguf(gguf_init_empty());
  const std::unique_ptr<ggml_context, FreeContexts> context(ggml_init({memory_for(tensors), nullptr, false}));
  set_metadata(gguf.get(), model);
  set_tiny_vocabulary(gguf.get(), model);
  if (edit_metadata) edit_metadata(gguf.get());
  std::mt19937 random(model.seed);
  for (const TinyTensor& tensor : tensors) add_tensor(gguf.get(), context.get(), tensor, random);
  return gguf_write_to_file(gguf.get(), path.c_str(), false);
}

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "keynest-XXXXXX").string();
  path_ = mkdtemp(pattern.data());
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace keynest::test
