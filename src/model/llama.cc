// The Llama family (Touvron et al. 2023; Llama 3: Grattafiori et al. 2024). Also Mistral, SmolLM and others
// that are stored under the name "llama". Llama 3.1 and later divide rope's frequencies by factors kept in a
// tensor.
#include "model/architecture.h"

namespace keynest {
namespace {

class Llama : public Network {
 public:
  Llama(Metadata& metadata, Hparams& hparams, WeightTable& table)
      : rope_(read_rope(metadata, hparams, GGML_ROPE_TYPE_NORMAL)), ends_(take_ends(table, hparams)) {
    for (int i = 0; i < hparams.layers; ++i) {
      layers_.push_back({.attention = take_attention(table, hparams, i),
                         .feed_forward = take_feed_forward(table, hparams, i)});
    }
    rope_factors_ = table.take_optional("rope_freqs.weight", {hparams.head_dim / 2}, WeightUse::kVector);
  }

  StepGraph build(StepBuilder& step) const override {
    ggml_tensor* x = step.embed(ends_.embedding);
    for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
      x = step.pre_norm_layer(x, layers_[static_cast<std::size_t>(i)], rope_, rope_factors_, i);
    }
    return step.finish(x == nullptr ? nullptr : step.head(x, ends_));
  }

  RopeRotation rope_rotation(int /*layer*/) const override { return rotation_of(rope_, rope_factors_); }

 private:
  RopeSettings rope_;
  EndWeights ends_;
  std::vector<LayerWeights> layers_;
  ggml_tensor* rope_factors_ = nullptr;  // [head_dim / 2], null when the file has none
};

}  // namespace

std::unique_ptr<Network> create_llama(Metadata& metadata, Hparams& hparams, WeightTable& table) {
  return std::make_unique<Llama>(metadata, hparams, table);
}

}  // namespace keynest
