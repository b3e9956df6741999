// Qwen2 and Qwen2.5 (Yang et al. 2024): as Llama, with biases on queries, keys and values.
#include "model/pre_norm_network.h"

namespace keynest {

std::unique_ptr<Network> create_qwen2(Metadata& metadata, Hparams& hparams, WeightTable& table) {
  // The biases are taken with the projections, where a file has them.
  return std::make_unique<PreNormNetwork>(metadata, hparams, table, GGML_ROPE_TYPE_NEOX);
}

}  // namespace keynest
