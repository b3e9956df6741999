// Qwen3, dense (Yang et al. 2025): as Llama, with an RMS norm on every query and key head before rope.
#include "model/architecture.h"

namespace keynest {
namespace {

class Qwen3 : public Network {
 public:
  Qwen3(Metadata& metadata, Hparams& hparams, WeightTable& table)
      : rope_(read_rope(metadata, hparams, GGML_ROPE_TYPE_NEOX)), ends_(take_ends(table, hparams)) {
    for (int i = 0; i < hparams.layers; ++i) {
      LayerWeights layer{.attention = take_attention(table, hparams, i),
                         .feed_forward = take_feed_forward(table, hparams, i)};
      take_head_norms(table, hparams, i, layer.attention);
      layers_.push_back(layer);
    }
  }

  StepGraph build(StepBuilder& step) const override {
    ggml_tensor* x = step.embed(ends_.embedding);
    for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
      x = step.pre_norm_layer(x, layers_[static_cast<std::size_t>(i)], rope_, nullptr, i);
    }
    return step.finish(x == nullptr ? nullptr : step.head(x, ends_));
  }

  RopeRotation rope_rotation(int /*layer*/) const override { return rotation_of(rope_, nullptr); }

 private:
  RopeSettings rope_;
  EndWeights ends_;
  std::vector<LayerWeights> layers_;
};

}  // namespace

std::unique_ptr<Network> create_qwen3(Metadata& metadata, Hparams& hparams, WeightTable& table) {
  return std::make_unique<Qwen3>(metadata, hparams, table);
}

}  // namespace keynest
