// What a file under src/model/ has to give for one architecture, and the list of all of them.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "keynest/result.h"
#include "model/blocks.h"
#include "model/graph.h"
#include "model/metadata.h"
#include "model/weights.h"

namespace keynest {

/// The weights and the graph of one loaded model.
class Network {
 public:
  virtual ~Network() = default;
  virtual StepGraph build(StepBuilder& step) const = 0;
  virtual RopeRotation rope_rotation(int layer) const = 0;
};

/// Reads its own metadata, completes `hparams` (filled with what all architectures share) and takes its
/// tensors. Errors are left in `metadata` and `table`.
using CreateNetwork = std::unique_ptr<Network> (*)(Metadata& metadata, Hparams& hparams, WeightTable& table);

/// Null when the name is unknown. Names are those of the metadata key "general.architecture".
CreateNetwork find_architecture(std::string_view name);

std::vector<std::string_view> architecture_names();

}  // namespace keynest
