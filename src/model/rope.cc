#include "model/rope.h"

#include <ggml-cpu.h>

#include <cmath>
#include <memory>

namespace keynest {
namespace {

/// What ggml multiplies into sine and cosine under YaRN is 1 + 0.1 ln(factor) for every factor; the paper's
/// is that only for factors above 1. This is the quotient of the two.
float yarn_attention_factor(float scale) {
  const float factor = 1.0f / scale;
  const float wanted = factor <= 1.0f ? 1.0f : 0.1f * std::log(factor) + 1.0f;
  return wanted / (1.0f + 0.1f * std::log(factor));
}

/// The scaling factor under its present or its older key; 0 = none given.
float read_factor(Metadata& metadata) {
  return metadata.has(".rope.scaling.factor") ? metadata.f32(".rope.scaling.factor")
                                              : metadata.f32(".rope.scale_linear", 0.0f);
}

bool positive(float value) { return std::isfinite(value) && value > 0; }

void check(Metadata& metadata, const Hparams& hparams, const RopeSettings& rope, const std::string& type) {
  if (type != "none" && type != "linear" && type != "yarn") {
    metadata.fail(ErrorCode::kUnsupported,
                  "rope scaling '" + type + "' is not supported; none, linear and yarn are");
  }
  if (rope.dimensions != hparams.head_dim) {
    metadata.fail(ErrorCode::kUnsupported, "rope rotates " + std::to_string(rope.dimensions) +
                                               " of a head's " + std::to_string(hparams.head_dim) +
                                               " dimensions; it must be all");
  }
  if (!positive(rope.base) || !positive(rope.scale) || !positive(rope.attn_factor) ||
      rope.original_context <= 0) {
    metadata.fail(ErrorCode::kInvalidFile, "rope settings are out of range (base " +
                                               std::to_string(rope.base) + ", scale " +
                                               std::to_string(rope.scale) + ", original context " +
                                               std::to_string(rope.original_context) + ")");
  }
}

}  // namespace

RopeSettings read_rope(Metadata& metadata, const Hparams& hparams, int mode) {
  const std::string type = metadata.text(".rope.scaling.type", "linear");
  const float factor = read_factor(metadata);
  RopeSettings rope;
  rope.mode = mode;
  rope.dimensions =
      static_cast<int>(metadata.u32(".rope.dimension_count", static_cast<std::uint32_t>(hparams.head_dim)));
  rope.original_context = static_cast<int>(metadata.u32(".rope.scaling.original_context_length",
                                                        static_cast<std::uint32_t>(hparams.trained_context)));
  if (rope.original_context == 0) rope.original_context = hparams.trained_context;
  rope.base = metadata.f32(".rope.freq_base", 10000.0f);
  rope.scale = factor == 0.0f || type == "none" ? 1.0f : 1.0f / factor;
  if (type == "yarn") {
    rope.ext_factor = 1.0f;
    rope.attn_factor = yarn_attention_factor(rope.scale);
  }
  rope.attn_factor *= metadata.f32(".rope.scaling.attn_factor", 1.0f);
  check(metadata, hparams, rope, type);
  return rope;
}

ggml_tensor* apply_rope(ggml_context* context, ggml_tensor* x, ggml_tensor* positions,
                        const RopeSettings& settings, ggml_tensor* factors) {
  return ggml_rope_ext(context, x, positions, factors, settings.dimensions, settings.mode,
                       settings.original_context, settings.base, settings.scale, settings.ext_factor,
                       settings.attn_factor, settings.beta_fast, settings.beta_slow);
}

RopeRotation rotation_of(const RopeSettings& settings, ggml_tensor* factors) {
  struct Free {
    void operator()(ggml_context* context) const { ggml_free(context); }
  };
  constexpr std::size_t kMemory = 1 << 20;
  const std::unique_ptr<ggml_context, Free> context(ggml_init({kMemory, nullptr, false}));
  const auto pairs = static_cast<std::size_t>(settings.dimensions / 2);
  const bool adjacent = settings.mode == GGML_ROPE_TYPE_NORMAL;
  const std::size_t next = adjacent ? 1 : pairs, step = adjacent ? 2 : 1;

  // Every pair is (1, 0) at position 1: it becomes a multiple of (cos f, sin f), and no f exceeds 1.
  ggml_tensor* unit = ggml_new_tensor_3d(context.get(), GGML_TYPE_F32, settings.dimensions, 1, 1);
  ggml_tensor* position = ggml_new_tensor_1d(context.get(), GGML_TYPE_I32, 1);
  ggml_set_i32(position, 1);
  ggml_set_zero(unit);
  for (std::size_t i = 0; i < pairs; ++i) static_cast<float*>(unit->data)[i * step] = 1.0f;
  ggml_tensor* turned = apply_rope(context.get(), unit, position, settings, factors);
  ggml_cgraph* graph = ggml_new_graph(context.get());
  ggml_build_forward_expand(graph, turned);
  ggml_graph_compute_with_ctx(context.get(), graph, 1);

  RopeRotation rotation{{}, adjacent};
  const auto* out = static_cast<const float*>(turned->data);
  for (std::size_t i = 0; i < pairs; ++i)
    rotation.frequencies.push_back(std::atan2(out[i * step + next], out[i * step]));
  return rotation;
}

}  // namespace keynest
