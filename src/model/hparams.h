// The hyper-parameters every architecture here has.
#pragma once

#include "model/graph.h"
#include "model/metadata.h"

namespace keynest {

/// Reads them and checks each against what the graphs can compute; errors are left in `metadata`. The
/// vocabulary size is the number of tokens the file lists.
Hparams read_hparams(Metadata& metadata);

}  // namespace keynest
