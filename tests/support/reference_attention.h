// Attention of one whole sequence from ordinary ggml operations and F32 keys: what the engine's must agree
// with.
#pragma once

#include <ggml.h>

#include <span>
#include <vector>

#include "keynest/result.h"
#include "keynest/types.h"
#include "model/graph.h"

namespace keynest::test {

/// Nothing is kept between steps: a step is a sequence from its start.
class ReferenceAttention : public AttentionBinding {
 public:
  explicit ReferenceAttention(const Hparams& hparams) : hparams_(hparams) {}

  ggml_tensor* append_and_attend(ggml_context* context, int layer, ggml_tensor* q, ggml_tensor* k,
                                 ggml_tensor* v) override;
  ggml_tensor* evict(ggml_context* context, int layer, ggml_tensor* attended) override;

  /// Writes the causal masks, once the graph's tensors have memory.
  void fill_masks();

  /// Layers whose evict was asked for, in order.
  const std::vector<int>& evictions() const { return evictions_; }

 private:
  ggml_tensor* mask(ggml_context* context, std::int64_t tokens, std::int32_t window);

  const Hparams& hparams_;
  std::vector<std::pair<std::int32_t, ggml_tensor*>> masks_;  // by window
  std::vector<int> evictions_;
};

/// Logits [outputs.size(), vocabulary] of the tokens of `sequence` numbered in `outputs` (ascending).
Result<std::vector<float>> reference_logits(const GraphModel& model, std::span<const Token> sequence,
                                            std::span<const std::int32_t> outputs, int threads = 1);

}  // namespace keynest::test
