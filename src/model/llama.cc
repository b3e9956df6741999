// The Llama family (Touvron et al. 2023; Llama 3: Grattafiori et al. 2024). Also Mistral, SmolLM and others
// that are stored under the name "llama". Llama 3.1 and later divide rope's frequencies by factors kept in a
// tensor.
#include "model/pre_norm_network.h"

namespace keynest {
namespace {

class Llama : public PreNormNetwork {
 public:
  Llama(Metadata& metadata, Hparams& hparams, WeightTable& table)
      : PreNormNetwork(metadata, hparams, table, GGML_ROPE_TYPE_NORMAL) {
    rope_factors_ = table.take_optional("rope_freqs.weight", {hparams.head_dim / 2}, WeightUse::kVector);
  }
};

}  // namespace

std::unique_ptr<Network> create_llama(Metadata& metadata, Hparams& hparams, WeightTable& table) {
  return std::make_unique<Llama>(metadata, hparams, table);
}

}  // namespace keynest
