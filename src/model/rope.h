// Rotary position embedding: its settings as the metadata and libllama's defaults give them.
#pragma once

#include <ggml.h>

#include "model/graph.h"
#include "model/metadata.h"

namespace keynest {

/// The numbers ggml_rope_ext takes. YaRN: Peng et al. 2023, section 3.4 (attention temperature) and appendix
/// A.
struct RopeSettings {
  int mode = GGML_ROPE_TYPE_NORMAL;
  int dimensions = 0;        ///< how many of a head's dimensions rotate: all
  int original_context = 0;  ///< tokens the model was trained on before its context was extended
  float base = 10000.0f;
  float scale = 1.0f;       ///< of positions; 1 / the scaling factor
  float ext_factor = 0.0f;  ///< 1 = YaRN
  float attn_factor = 1.0f;
  float beta_fast = 32.0f, beta_slow = 1.0f;
};

/// Reads ".rope.*"; errors are left in `metadata`: unknown scaling type, partial rotation, non-finite
/// numbers.
RopeSettings read_rope(Metadata& metadata, const Hparams& hparams, int mode);

/// x [head_dim, heads, tokens] rotated by positions [tokens]; `factors` [head_dim / 2] or null.
ggml_tensor* apply_rope(ggml_context* context, ggml_tensor* x, ggml_tensor* positions,
                        const RopeSettings& settings, ggml_tensor* factors = nullptr);

/// What apply_rope turns a head's pairs by at each position, as ggml itself computes it: linear scaling, YaRN
/// and `factors` [head_dim / 2] (data on the host, or null) included.
RopeRotation rotation_of(const RopeSettings& settings, ggml_tensor* factors);

}  // namespace keynest
