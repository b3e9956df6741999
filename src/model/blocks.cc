#include "model/blocks.h"

namespace keynest {

std::string layer_tensor(int layer, const std::string& name) {
  return "blk." + std::to_string(layer) + "." + name;
}

EndWeights take_ends(WeightTable& table, const Hparams& h) {
  EndWeights ends;
  ends.embedding = table.take("token_embd.weight", {h.embedding, h.vocabulary}, WeightUse::kLookup);
  ends.norm = table.take("output_norm.weight", {h.embedding}, WeightUse::kVector);
  const char* output = table.has("output.weight") ? "output.weight" : "token_embd.weight";
  ends.output = table.take(output, {h.embedding, h.vocabulary}, WeightUse::kMatrix);
  ends.output_bias = table.take_optional("output.bias", {h.vocabulary}, WeightUse::kVector);
  return ends;
}

AttentionWeights take_attention(WeightTable& table, const Hparams& h, int layer) {
  const std::int64_t width = std::int64_t{h.head_dim} * h.heads,
                     kv_width = std::int64_t{h.head_dim} * h.kv_heads;
  const auto matrix = [&](const char* name, std::int64_t in, std::int64_t out) {
    return table.take(layer_tensor(layer, name) + ".weight", {in, out}, WeightUse::kMatrix);
  };
  const auto bias = [&](const char* name, std::int64_t size) {
    return table.take_optional(layer_tensor(layer, name) + ".bias", {size}, WeightUse::kVector);
  };
  AttentionWeights w;
  w.norm = table.take(layer_tensor(layer, "attn_norm.weight"), {h.embedding}, WeightUse::kVector);
  w.q = matrix("attn_q", h.embedding, width);
  w.k = matrix("attn_k", h.embedding, kv_width);
  w.v = matrix("attn_v", h.embedding, kv_width);
  w.out = matrix("attn_output", width, h.embedding);
  w.q_bias = bias("attn_q", width);
  w.k_bias = bias("attn_k", kv_width);
  w.v_bias = bias("attn_v", kv_width);
  w.out_bias = bias("attn_output", h.embedding);
  return w;
}

void take_head_norms(WeightTable& table, const Hparams& h, int layer, AttentionWeights& w) {
  w.q_norm = table.take(layer_tensor(layer, "attn_q_norm.weight"), {h.head_dim}, WeightUse::kVector);
  w.k_norm = table.take(layer_tensor(layer, "attn_k_norm.weight"), {h.head_dim}, WeightUse::kVector);
}

FeedForwardWeights take_feed_forward(WeightTable& table, const Hparams& h, int layer) {
  const auto matrix = [&](const char* name, std::int64_t in, std::int64_t out) {
    return table.take(layer_tensor(layer, name) + ".weight", {in, out}, WeightUse::kMatrix);
  };
  const auto bias = [&](const char* name, std::int64_t size) {
    return table.take_optional(layer_tensor(layer, name) + ".bias", {size}, WeightUse::kVector);
  };
  FeedForwardWeights w;
  w.norm = table.take(layer_tensor(layer, "ffn_norm.weight"), {h.embedding}, WeightUse::kVector);
  w.gate = matrix("ffn_gate", h.embedding, h.feed_forward);
  w.up = matrix("ffn_up", h.embedding, h.feed_forward);
  w.down = matrix("ffn_down", h.feed_forward, h.embedding);
  w.gate_bias = bias("ffn_gate", h.feed_forward);
  w.up_bias = bias("ffn_up", h.feed_forward);
  w.down_bias = bias("ffn_down", h.embedding);
  return w;
}

StepBuilder::StepBuilder(ggml_context* context, const StepShape& shape, const Hparams& hparams,
                         AttentionBinding& binding, std::size_t graph_nodes)
    : context_(context), shape_(shape), hparams_(hparams), binding_(binding) {
  const auto input = [&](std::int64_t size, const char* name) {
    ggml_tensor* tensor = named(ggml_new_tensor_1d(context, GGML_TYPE_I32, size), name);
    ggml_set_input(tensor);
    return tensor;
  };
  step_.graph = ggml_new_graph_custom(context, graph_nodes, false);
  if (hparams.gemm != Gemm::kGgml) products_ = std::make_shared<NativeProducts>(hparams.gemm);
  step_.resources = products_;
  step_.tokens = input(shape.tokens, "tokens");
  step_.positions = input(shape.tokens, "positions");
  if (shape.outputs != 0 && shape.outputs != shape.tokens)
    step_.output_ids = input(shape.outputs, "output_ids");
}

ggml_tensor* StepBuilder::named(ggml_tensor* tensor, const char* name, int layer) const {
  return layer < 0 ? ggml_set_name(tensor, name) : ggml_format_name(tensor, "%s-%d", name, layer);
}

ggml_tensor* StepBuilder::embed(ggml_tensor* table) {
  return named(ggml_get_rows(context_, table, step_.tokens), "embedding");
}

ggml_tensor* StepBuilder::norm(ggml_tensor* x, ggml_tensor* weight, const char* name, int layer) {
  // The product directly after its norm: ggml computes the two as one.
  ggml_tensor* normed = ggml_rms_norm(context_, x, hparams_.norm_epsilon);
  return named(ggml_mul(context_, normed, weight), name, layer);
}

ggml_tensor* StepBuilder::linear(ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias, const char* name,
                                 int layer) {
  ggml_tensor* y = products_ ? products_->product(context_, weight, x) : nullptr;
  if (y == nullptr) y = ggml_mul_mat(context_, weight, x);
  if (bias != nullptr) y = ggml_add(context_, y, bias);
  return named(y, name, layer);
}

Projections StepBuilder::project(ggml_tensor* x, const AttentionWeights& w, int layer) {
  const auto split = [&](ggml_tensor* y, std::int64_t heads) {
    return ggml_reshape_3d(context_, y, hparams_.head_dim, heads, shape_.tokens);
  };
  Projections heads;
  heads.q = split(linear(x, w.q, w.q_bias, "q_projected", layer), hparams_.heads);
  heads.k = split(linear(x, w.k, w.k_bias, "k_projected", layer), hparams_.kv_heads);
  heads.v = named(split(linear(x, w.v, w.v_bias, "v_projected", layer), hparams_.kv_heads), "v", layer);
  if (w.q_norm != nullptr) heads.q = norm(heads.q, w.q_norm, "q_normed", layer);
  if (w.k_norm != nullptr) heads.k = norm(heads.k, w.k_norm, "k_normed", layer);
  return heads;
}

void StepBuilder::rope(Projections& heads, const RopeSettings& settings, ggml_tensor* factors, int layer) {
  heads.q = named(apply_rope(context_, heads.q, step_.positions, settings, factors), "q", layer);
  heads.k = named(apply_rope(context_, heads.k, step_.positions, settings, factors), "k", layer);
}

ggml_tensor* StepBuilder::attend(const Projections& heads, int layer) {
  // Projections first and together, as their order decides how memory is reused.
  for (ggml_tensor* tensor : {heads.q, heads.k, heads.v}) ggml_build_forward_expand(step_.graph, tensor);
  ggml_tensor* attended = binding_.append_and_attend(context_, layer, heads.q, heads.k, heads.v);
  ggml_build_forward_expand(step_.graph, named(attended, "attended", layer));
  if (ggml_tensor* evicted = binding_.evict(context_, layer, attended); evicted != nullptr) {
    ggml_build_forward_expand(step_.graph, evicted);
  }
  if (last(layer) && shape_.outputs == 0) return nullptr;
  return wanted_rows(attended, layer);
}

ggml_tensor* StepBuilder::residual(ggml_tensor* x, int layer) { return wanted_rows(x, layer); }

ggml_tensor* StepBuilder::wanted_rows(ggml_tensor* x, int layer) {
  if (!last(layer) || step_.output_ids == nullptr) return x;
  return ggml_get_rows(context_, x, step_.output_ids);
}

ggml_tensor* StepBuilder::feed_forward(ggml_tensor* x, const FeedForwardWeights& w, Gate gate, int layer) {
  ggml_tensor* up = linear(x, w.up, w.up_bias, "ffn_up", layer);
  ggml_tensor* gated = linear(x, w.gate, w.gate_bias, "ffn_gate", layer);
  ggml_tensor* inner =
      gate == Gate::kSilu ? ggml_swiglu_split(context_, gated, up) : ggml_geglu_split(context_, gated, up);
  return linear(named(inner, "ffn_inner", layer), w.down, w.down_bias, "ffn_out", layer);
}

ggml_tensor* StepBuilder::add(ggml_tensor* a, ggml_tensor* b, const char* name, int layer) {
  return named(ggml_add(context_, a, b), name, layer);
}

ggml_tensor* StepBuilder::head(ggml_tensor* x, const EndWeights& ends) {
  return linear(norm(x, ends.norm, "output_norm", -1), ends.output, ends.output_bias, "head", -1);
}

ggml_tensor* StepBuilder::pre_norm_layer(ggml_tensor* x, const LayerWeights& w, const RopeSettings& settings,
                                         ggml_tensor* rope_factors, int layer) {
  const AttentionWeights& attention = w.attention;
  Projections heads = project(norm(x, attention.norm, "attn_norm", layer), attention, layer);
  rope(heads, settings, rope_factors, layer);
  ggml_tensor* attended = attend(heads, layer);
  if (attended == nullptr) return nullptr;
  ggml_tensor* out = linear(attended, attention.out, attention.out_bias, "attn_out", layer);
  ggml_tensor* middle = add(out, residual(x, layer), "ffn_input", layer);
  ggml_tensor* normed = norm(middle, w.feed_forward.norm, "ffn_norm", layer);
  return add(feed_forward(normed, w.feed_forward, Gate::kSilu, layer), middle, "layer_out", layer);
}

StepGraph StepBuilder::finish(ggml_tensor* logits) {
  if (logits == nullptr) return step_;
  step_.logits = named(logits, "logits");
  ggml_set_output(logits);
  ggml_build_forward_expand(step_.graph, logits);
  return step_;
}

}  // namespace keynest
