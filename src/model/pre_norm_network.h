// The network Llama and its relatives share: layers of x + attention(norm(x)), then x +
// feed_forward(norm(x)).
#pragma once

#include <vector>

#include "model/architecture.h"

namespace keynest {

/// An architecture derives from this and adds in its constructor what is its own.
class PreNormNetwork : public Network {
 public:
  PreNormNetwork(Metadata& metadata, Hparams& hparams, WeightTable& table, int rope_mode);

  StepGraph build(StepBuilder& step) const override;
  RopeRotation rope_rotation(int layer) const override;

 protected:
  RopeSettings rope_;
  EndWeights ends_;
  std::vector<LayerWeights> layers_;
  ggml_tensor* rope_factors_ = nullptr;  // [head_dim / 2], null when the file has none
};

}  // namespace keynest
