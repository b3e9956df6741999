// What the engine and an architecture say to each other: the graph of one step, and the two operations the
// engine binds into it. Knows no policy and no cache.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "keynest/model.h"
#include "keynest/result.h"

struct llama_vocab;

namespace keynest {

/// The numbers of a model that its graph and the engine need. Sizes are checked against the tensors when
/// loading.
struct Hparams {
  std::int32_t layers = 0, embedding = 0, heads = 0, kv_heads = 0, head_dim = 0, feed_forward = 0,
               vocabulary = 0;
  std::int32_t trained_context = 0;
  float norm_epsilon = 0;
  float attention_scale = 0;                ///< of the logits q.k
  std::vector<std::int32_t> layer_windows;  ///< [layers], 0 = global
  Gemm gemm = Gemm::kGgml;                  ///< who multiplies blocks of tokens
};

/// The two operations of a layer that the engine binds: implemented with ggml custom operations.
class AttentionBinding {
 public:
  virtual ~AttentionBinding() = default;

  /// Adds k, v to the layer's cache and attends.  q [head_dim, heads, tokens], k and v [head_dim, kv_heads,
  /// tokens], all contiguous F32, after norms and RoPE, not scaled. Returns [head_dim * heads, tokens].
  virtual ggml_tensor* append_and_attend(ggml_context* context, int layer, ggml_tensor* q, ggml_tensor* k,
                                         ggml_tensor* v) = 0;

  /// Called once per layer after its attention; returns a tensor to be expanded into the graph at this place.
  virtual ggml_tensor* evict(ggml_context* context, int layer, ggml_tensor* attended) = 0;
};

/// Sizes a graph is built for.
struct StepShape {
  std::int32_t tokens = 0;
  std::int32_t outputs = 0;  ///< how many tokens want logits; 0: the output head is left out of the graph
  bool operator==(const StepShape&) const = default;
};

/// A built graph and its inputs and outputs.
struct StepGraph {
  ggml_cgraph* graph = nullptr;
  ggml_tensor* tokens = nullptr;      ///< I32 [tokens], input
  ggml_tensor* positions = nullptr;   ///< I32 [tokens], input
  ggml_tensor* output_ids = nullptr;  ///< I32 [outputs], input; null when outputs is 0 or equals tokens
  std::shared_ptr<void> resources;    ///< what the nodes point to; kept as long as the graph
  ggml_tensor* logits = nullptr;      ///< F32 [vocabulary, outputs]; null when outputs is 0
};

/// How rotary embedding turns the keys of a layer: pair i by position * frequencies[i].
struct RopeRotation {
  std::vector<float> frequencies;  ///< [head_dim / 2], radians a position, all scaling included
  bool adjacent_pairs = false;     ///< pair i is (2i, 2i + 1); else (i, i + head_dim / 2)
};

/// The part of a Model the engine uses.
class GraphModel : public Model {
 public:
  virtual const Hparams& hparams() const = 0;

  /// For libllama's samplers; lives as long as the model.
  virtual const llama_vocab* vocab() const = 0;

  /// Builds the graph of one step in `context` (no_alloc; see graph_nodes for its size). Inputs are flagged
  /// as such.
  virtual StepGraph build(ggml_context* context, const StepShape& shape, AttentionBinding& binding) const = 0;

  /// What keys of `layer` are rotated by when they change their position.
  virtual RopeRotation rope_rotation(int layer) const = 0;

  /// Upper bound on the nodes of any step graph.
  virtual std::size_t graph_nodes() const = 0;
};

}  // namespace keynest
