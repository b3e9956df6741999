// The parts the architectures share: their weights, and the pieces of a step's graph.
#pragma once

#include <ggml.h>

#include <string>

#include "model/graph.h"
#include "model/products.h"
#include "model/rope.h"
#include "model/weights.h"

namespace keynest {

/// Biases are null where the file has none. heads_width = head_dim * heads, kv_width = head_dim * kv_heads.
struct AttentionWeights {
  ggml_tensor* norm = nullptr;  // [embedding]
  ggml_tensor *q = nullptr, *k = nullptr, *v = nullptr,
              *out = nullptr;  // [embedding, width]; out the other way
  ggml_tensor *q_bias = nullptr, *k_bias = nullptr, *v_bias = nullptr, *out_bias = nullptr;
  ggml_tensor *q_norm = nullptr, *k_norm = nullptr;  // [head_dim]
};

struct FeedForwardWeights {
  ggml_tensor* norm = nullptr;                                  // [embedding]
  ggml_tensor *gate = nullptr, *up = nullptr, *down = nullptr;  // [embedding, ff]; down [ff, embedding]
  ggml_tensor *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;
};

struct LayerWeights {
  AttentionWeights attention;
  FeedForwardWeights feed_forward;
  ggml_tensor *post_attention_norm = nullptr, *post_feed_forward_norm = nullptr;  // [embedding]; gemma only
};

/// The first and the last weights of a model.
struct EndWeights {
  ggml_tensor* embedding = nullptr;  // [embedding, vocabulary]
  ggml_tensor* norm = nullptr;       // [embedding]
  ggml_tensor* output = nullptr;     // [embedding, vocabulary]; the embedding's data when the file has no own
  ggml_tensor* output_bias = nullptr;  // [vocabulary]
};

EndWeights take_ends(WeightTable& table, const Hparams& hparams);
AttentionWeights take_attention(WeightTable& table, const Hparams& hparams, int layer);
/// The norms on single heads, which Qwen3 and Gemma 3 have.
void take_head_norms(WeightTable& table, const Hparams& hparams, int layer, AttentionWeights& weights);
FeedForwardWeights take_feed_forward(WeightTable& table, const Hparams& hparams, int layer);
/// "blk.3.attn_norm.weight"
std::string layer_tensor(int layer, const std::string& name);

/// Queries [head_dim, heads, tokens], keys and values [head_dim, kv_heads, tokens].
struct Projections {
  ggml_tensor *q = nullptr, *k = nullptr, *v = nullptr;
};

enum class Gate { kSilu, kGelu };

/// Builds the graph of one step. Every method adds to it and returns the result, named "name-layer".
class StepBuilder {
 public:
  StepBuilder(ggml_context* context, const StepShape& shape, const Hparams& hparams,
              AttentionBinding& binding, std::size_t graph_nodes);

  ggml_context* context() const { return context_; }

  /// Rows of the embedding table for the step's tokens: [embedding, tokens].
  ggml_tensor* embed(ggml_tensor* table);

  /// RMS norm over the first dimension, times `weight`.
  ggml_tensor* norm(ggml_tensor* x, ggml_tensor* weight, const char* name, int layer);

  ggml_tensor* linear(ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias, const char* name, int layer);

  /// x [embedding, tokens] to heads, with biases, then head norms where the weights have them.
  Projections project(ggml_tensor* x, const AttentionWeights& weights, int layer);

  /// Rotates queries and keys.
  void rope(Projections& heads, const RopeSettings& settings, ggml_tensor* factors, int layer);

  /// Append, attend, evict: [head_dim * heads, tokens], or [.., outputs] in the last layer. Null in the last
  /// layer of a step without outputs: nothing after it is wanted.
  ggml_tensor* attend(const Projections& heads, int layer);

  /// The rows of the residual stream that go with what attend() returned.
  ggml_tensor* residual(ggml_tensor* x, int layer);

  /// down(act(gate(x)) * up(x)).
  ggml_tensor* feed_forward(ggml_tensor* x, const FeedForwardWeights& weights, Gate gate, int layer);

  ggml_tensor* add(ggml_tensor* a, ggml_tensor* b, const char* name, int layer);

  /// Final norm and output head: [vocabulary, outputs].
  ggml_tensor* head(ggml_tensor* x, const EndWeights& ends);

  ggml_tensor* named(ggml_tensor* tensor, const char* name, int layer = -1) const;

  /// A layer as Llama has it, x + attention(norm(x)), then x + feed_forward(norm(x)): x [embedding, tokens]
  /// to [embedding, tokens or outputs]; null where attend() is.
  ggml_tensor* pre_norm_layer(ggml_tensor* x, const LayerWeights& weights, const RopeSettings& rope,
                              ggml_tensor* rope_factors, int layer);

  /// Ends the graph; `logits` is null when the step has no outputs.
  StepGraph finish(ggml_tensor* logits);

 private:
  ggml_tensor* wanted_rows(ggml_tensor* x, int layer);
  bool last(int layer) const { return layer == hparams_.layers - 1; }

  ggml_context* context_;
  StepShape shape_;
  const Hparams& hparams_;
  AttentionBinding& binding_;
  std::shared_ptr<NativeProducts> products_;  // null: all products are ggml's
  StepGraph step_;
};

}  // namespace keynest
