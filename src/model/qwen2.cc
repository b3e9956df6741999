// Qwen2 and Qwen2.5 (Yang et al. 2024): as Llama, with biases on queries, keys and values.
#include "model/architecture.h"

namespace keynest {
namespace {

class Qwen2 : public Network {
 public:
  Qwen2(Metadata& metadata, Hparams& hparams, WeightTable& table)
      : rope_(read_rope(metadata, hparams, GGML_ROPE_TYPE_NEOX)), ends_(take_ends(table, hparams)) {
    for (int i = 0; i < hparams.layers; ++i) {
      layers_.push_back({.attention = take_attention(table, hparams, i),
                         .feed_forward = take_feed_forward(table, hparams, i)});
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

std::unique_ptr<Network> create_qwen2(Metadata& metadata, Hparams& hparams, WeightTable& table) {
  return std::make_unique<Qwen2>(metadata, hparams, table);
}

}  // namespace keynest
