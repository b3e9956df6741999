// Qwen3, dense (Yang et al. 2025): as Llama, with an RMS norm on every query and key head before rope.
#include "model/pre_norm_network.h"

namespace keynest {
namespace {

class Qwen3 : public PreNormNetwork {
 public:
  Qwen3(Metadata& metadata, Hparams& hparams, WeightTable& table)
      : PreNormNetwork(metadata, hparams, table, GGML_ROPE_TYPE_NEOX) {
    for (int i = 0; i < hparams.layers; ++i) {
      take_head_norms(table, hparams, i, layers_[static_cast<std::size_t>(i)].attention);
    }
  }
};

}  // namespace

std::unique_ptr<Network> create_qwen3(Metadata& metadata, Hparams& hparams, WeightTable& table) {
  return std::make_unique<Qwen3>(metadata, hparams, table);
}

}  // namespace keynest
