#include "model/hparams.h"

#include <cmath>
#include <limits>

namespace keynest {
namespace {

constexpr std::uint32_t kMaxLayers = 512;
constexpr std::uint32_t kMaxWidth = 1 << 24;  // of any one tensor dimension but the vocabulary

void check_range(Metadata& metadata, std::string_view key, std::uint32_t value, std::uint32_t most) {
  if (value >= 1 && value <= most) return;
  metadata.fail(ErrorCode::kInvalidFile, "metadata key '" + metadata.full_key(key) + "' is " +
                                             std::to_string(value) + "; it must be from 1 to " +
                                             std::to_string(most));
}

/// A required number from 1 to `most`; 1 when it is not, so that what follows can go on.
std::int32_t read_count(Metadata& metadata, std::string_view key, std::uint32_t most) {
  const std::uint32_t value = metadata.u32(key);
  check_range(metadata, key, value, most);
  return metadata.status().ok() ? static_cast<std::int32_t>(value) : 1;
}

std::int32_t read_layer_count(Metadata& metadata, std::string_view key, std::int32_t layers,
                              std::uint32_t most) {
  const std::uint32_t value = metadata.u32_of_all_layers(key, static_cast<std::uint32_t>(layers));
  check_range(metadata, key, value, most);
  return metadata.status().ok() ? static_cast<std::int32_t>(value) : 1;
}

std::int32_t read_head_dim(Metadata& metadata, const Hparams& hparams) {
  const auto given = static_cast<std::uint32_t>(hparams.embedding / hparams.heads);
  const std::uint32_t keys = metadata.u32(".attention.key_length", given);
  const std::uint32_t values = metadata.u32(".attention.value_length", given);
  if (keys != values) {
    metadata.fail(ErrorCode::kUnsupported, "keys of " + std::to_string(keys) + " and values of " +
                                               std::to_string(values) + " dimensions; they must be equal");
  }
  if (keys == 0 || keys % 8 != 0 || keys > 1024) {
    metadata.fail(ErrorCode::kUnsupported,
                  "heads of " + std::to_string(keys) + " dimensions; it must be a multiple of 8 up to 1024");
    return 8;
  }
  return static_cast<std::int32_t>(keys);
}

std::int32_t count_vocabulary(Metadata& metadata) {
  constexpr const char* kKey = "tokenizer.ggml.tokens";
  const std::int64_t id = gguf_find_key(metadata.gguf(), kKey);
  if (id < 0 || gguf_get_kv_type(metadata.gguf(), id) != GGUF_TYPE_ARRAY ||
      gguf_get_arr_type(metadata.gguf(), id) != GGUF_TYPE_STRING) {
    metadata.fail(ErrorCode::kInvalidFile,
                  std::string("metadata key '") + kKey + "' must be an array of strings");
    return 1;
  }
  const std::size_t count = gguf_get_arr_n(metadata.gguf(), id);
  if (count == 0 || count > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    metadata.fail(ErrorCode::kInvalidFile, "the vocabulary has " + std::to_string(count) + " tokens");
    return 1;
  }
  return static_cast<std::int32_t>(count);
}

void refuse_unsupported(Metadata& metadata) {
  if (metadata.u32(".expert_count", 0) != 0) {
    metadata.fail(ErrorCode::kUnsupported, "mixture-of-experts models are not supported");
  }
  if (!metadata.flag(".attention.causal", true)) {
    metadata.fail(ErrorCode::kUnsupported, "attention that is not causal is not supported");
  }
}

}  // namespace

Hparams read_hparams(Metadata& metadata) {
  Hparams hparams;
  refuse_unsupported(metadata);
  hparams.layers = read_count(metadata, ".block_count", kMaxLayers);
  hparams.embedding = read_count(metadata, ".embedding_length", kMaxWidth);
  hparams.trained_context = read_count(metadata, ".context_length", std::numeric_limits<std::int32_t>::max());
  hparams.feed_forward = read_layer_count(metadata, ".feed_forward_length", hparams.layers, kMaxWidth);
  hparams.heads = read_layer_count(metadata, ".attention.head_count", hparams.layers, 1 << 16);
  hparams.kv_heads = metadata.has(".attention.head_count_kv")
                         ? read_layer_count(metadata, ".attention.head_count_kv", hparams.layers, 1 << 16)
                         : hparams.heads;
  if (hparams.heads % hparams.kv_heads != 0) {
    metadata.fail(ErrorCode::kInvalidFile, std::to_string(hparams.heads) +
                                               " query heads are no multiple of " +
                                               std::to_string(hparams.kv_heads) + " KV heads");
  }
  hparams.head_dim = read_head_dim(metadata, hparams);
  hparams.vocabulary = count_vocabulary(metadata);
  hparams.norm_epsilon = metadata.f32(".attention.layer_norm_rms_epsilon");
  if (!std::isfinite(hparams.norm_epsilon) || hparams.norm_epsilon < 0) {
    metadata.fail(ErrorCode::kInvalidFile, "the norm's epsilon is " + std::to_string(hparams.norm_epsilon));
  }
  hparams.attention_scale = 1.0f / std::sqrt(static_cast<float>(hparams.head_dim));
  hparams.layer_windows.assign(static_cast<std::size_t>(hparams.layers), 0);
  return hparams;
}

}  // namespace keynest
