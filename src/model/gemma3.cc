// Gemma 3 (Gemma Team 2025): layers that see only a sliding window, every sixth one global, with rope bases
// of their own; norms before and after attention and feed-forward; embeddings scaled by sqrt(width). The
// norms' weights are stored with their 1 added.
#include <cmath>

#include "model/architecture.h"

namespace keynest {
namespace {

constexpr std::uint32_t kDefaultPattern = 6;  // the last of every six layers is global
constexpr int kLayersOf27B = 62;

/// The windows of all layers: an array of flags (true = local), else every n-th layer is global.
void read_windows(Metadata& metadata, Hparams& hparams) {
  const std::uint32_t window = metadata.u32(".attention.sliding_window", 0);
  if (window == 0) return;
  if (window > static_cast<std::uint32_t>(INT32_MAX)) {
    return metadata.fail(ErrorCode::kInvalidFile,
                         "a sliding window of " + std::to_string(window) + " tokens");
  }
  constexpr const char* kPattern = ".attention.sliding_window_pattern";
  const auto layers = static_cast<std::size_t>(hparams.layers);
  const std::vector<bool> local = metadata.flags(kPattern, layers);
  const std::size_t period = local.empty() ? metadata.u32(kPattern, kDefaultPattern) : 0;
  for (std::size_t i = 0; i < layers; ++i) {
    const bool is_local = local.empty() ? period == 0 || i % period != period - 1 : local[i];
    if (is_local) hparams.layer_windows[i] = static_cast<std::int32_t>(window);
  }
}

/// Local layers have a base of their own and positions that are never scaled.
RopeSettings read_local_rope(Metadata& metadata, RopeSettings rope) {
  rope.base = metadata.f32(".rope.freq_base_swa", 10000.0f);
  rope.scale = 1.0f;
  if (!std::isfinite(rope.base) || rope.base <= 0) {
    metadata.fail(ErrorCode::kInvalidFile,
                  "a rope base of " + std::to_string(rope.base) + " in local layers");
  }
  return rope;
}

class Gemma3 : public Network {
 public:
  Gemma3(Metadata& metadata, Hparams& hparams, WeightTable& table)
      : embedding_scale_(std::sqrt(static_cast<float>(hparams.embedding))) {
    read_windows(metadata, hparams);
    // The largest model scales by the width of its residual stream per head instead of the head's own size.
    if (hparams.layers == kLayersOf27B) {
      hparams.attention_scale = 1.0f / std::sqrt(static_cast<float>(hparams.embedding / hparams.heads));
    }
    global_rope_ = read_rope(metadata, hparams, GGML_ROPE_TYPE_NEOX);
    local_rope_ = read_local_rope(metadata, global_rope_);
    softcap_ = metadata.f32(".final_logit_softcapping", 0.0f);
    if (!std::isfinite(softcap_)) metadata.fail(ErrorCode::kInvalidFile, "the cap on logits is not a number");
    windows_ = hparams.layer_windows;
    take_weights(table, hparams);
  }

  StepGraph build(StepBuilder& step) const override {
    ggml_tensor* x = ggml_scale(step.context(), step.embed(ends_.embedding), embedding_scale_);
    for (int i = 0; i < static_cast<int>(layers_.size()); ++i) x = layer(step, x, i);
    if (x == nullptr) return step.finish(nullptr);
    return step.finish(cap(step.context(), step.head(x, ends_)));
  }

  RopeRotation rope_rotation(int layer) const override {
    return rotation_of(windows_[static_cast<std::size_t>(layer)] == 0 ? global_rope_ : local_rope_, nullptr);
  }

 private:
  void take_weights(WeightTable& table, const Hparams& hparams) {
    ends_ = take_ends(table, hparams);
    for (int i = 0; i < hparams.layers; ++i) {
      const auto norm = [&](const char* name) {
        return table.take(layer_tensor(i, name), {hparams.embedding}, WeightUse::kVector);
      };
      LayerWeights layer{.attention = take_attention(table, hparams, i),
                         .feed_forward = take_feed_forward(table, hparams, i),
                         .post_attention_norm = norm("post_attention_norm.weight"),
                         .post_feed_forward_norm = norm("post_ffw_norm.weight")};
      take_head_norms(table, hparams, i, layer.attention);
      layers_.push_back(layer);
    }
  }

  /// x [embedding, tokens]; null where attend() is.
  ggml_tensor* layer(StepBuilder& step, ggml_tensor* x, int i) const {
    const auto index = static_cast<std::size_t>(i);
    const auto& [attention, feed_forward, post_attention_norm, post_feed_forward_norm] = layers_[index];
    Projections heads = step.project(step.norm(x, attention.norm, "attn_norm", i), attention, i);
    step.rope(heads, windows_[index] == 0 ? global_rope_ : local_rope_, nullptr, i);
    ggml_tensor* attended = step.attend(heads, i);
    if (attended == nullptr) return nullptr;
    ggml_tensor* out = step.linear(attended, attention.out, attention.out_bias, "attn_out", i);
    out = step.norm(out, post_attention_norm, "attn_post_norm", i);
    ggml_tensor* middle = step.add(out, step.residual(x, i), "ffn_input", i);
    ggml_tensor* inner = step.norm(middle, feed_forward.norm, "ffn_norm", i);
    inner = step.feed_forward(inner, feed_forward, Gate::kGelu, i);
    return step.add(step.norm(inner, post_feed_forward_norm, "ffn_post_norm", i), middle, "layer_out", i);
  }

  /// logits [vocabulary, outputs] squeezed into +-softcap.
  ggml_tensor* cap(ggml_context* context, ggml_tensor* logits) const {
    if (softcap_ == 0.0f) return logits;
    logits = ggml_tanh(context, ggml_scale(context, logits, 1.0f / softcap_));
    return ggml_scale(context, logits, softcap_);
  }

  float embedding_scale_;
  float softcap_ = 0.0f;
  RopeSettings global_rope_, local_rope_;
  std::vector<std::int32_t> windows_;  // [layers], 0 = global
  EndWeights ends_;
  std::vector<LayerWeights> layers_;
};

}  // namespace

std::unique_ptr<Network> create_gemma3(Metadata& metadata, Hparams& hparams, WeightTable& table) {
  return std::make_unique<Gemma3>(metadata, hparams, table);
}

}  // namespace keynest
