#include "model/pre_norm_network.h"

namespace keynest {

PreNormNetwork::PreNormNetwork(Metadata& metadata, Hparams& hparams, WeightTable& table, int rope_mode)
    : rope_(read_rope(metadata, hparams, rope_mode)), ends_(take_ends(table, hparams)) {
  for (int i = 0; i < hparams.layers; ++i) {
    layers_.push_back({.attention = take_attention(table, hparams, i),
                       .feed_forward = take_feed_forward(table, hparams, i)});
  }
}

StepGraph PreNormNetwork::build(StepBuilder& step) const {
  ggml_tensor* x = step.embed(ends_.embedding);
  for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
    x = step.pre_norm_layer(x, layers_[static_cast<std::size_t>(i)], rope_, rope_factors_, i);
  }
  return step.finish(x == nullptr ? nullptr : step.head(x, ends_));
}

RopeRotation PreNormNetwork::rope_rotation(int /*layer*/) const { return rotation_of(rope_, rope_factors_); }

}  // namespace keynest
