#include "support/reference_attention.h"

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>

#include <cmath>
#include <memory>

namespace keynest::test {
namespace {

/// libllama pads the keys it attends to; sums over as many terms come out bit-equal.
std::int64_t padded(std::int64_t tokens) { return (tokens + 255) / 256 * 256; }

}  // namespace

ggml_tensor* ReferenceAttention::mask(ggml_context* context, std::int64_t tokens, std::int32_t window) {
  for (const auto& [known, tensor] : masks_) {
    if (known == window) return tensor;
  }
  ggml_tensor* tensor = ggml_new_tensor_2d(context, GGML_TYPE_F32, padded(tokens), tokens);
  ggml_set_input(tensor);
  return masks_.emplace_back(window, tensor).second;
}

ggml_tensor* ReferenceAttention::append_and_attend(ggml_context* context, int layer, ggml_tensor* q,
                                                   ggml_tensor* k, ggml_tensor* v) {
  const std::int64_t tokens = q->ne[2];
  ggml_tensor* causal = mask(context, tokens, hparams_.layer_windows[static_cast<std::size_t>(layer)]);
  const auto pad = static_cast<int>(padded(tokens) - tokens);
  ggml_tensor* all_k = ggml_pad(context, k, 0, 0, pad, 0);
  ggml_tensor* all_v = ggml_pad(context, v, 0, 0, pad, 0);
  ggml_tensor* queries = ggml_permute(context, q, 0, 2, 1, 3);   // [dim, tokens, heads]
  ggml_tensor* keys = ggml_permute(context, all_k, 0, 2, 1, 3);  // [dim, padded, kv_heads]
  ggml_tensor* values =
      ggml_cont(context, ggml_permute(context, all_v, 1, 2, 0, 3));  // [padded, dim, kv_heads]
  ggml_tensor* scores = ggml_mul_mat(context, keys, queries);        // [padded, tokens, heads]
  ggml_tensor* weights = ggml_soft_max_ext(context, scores, causal, hparams_.attention_scale, 0.0f);
  ggml_tensor* mixed = ggml_permute(context, ggml_mul_mat(context, values, weights), 0, 2, 1, 3);
  return ggml_cont_2d(context, mixed, q->ne[0] * q->ne[1], tokens);
}

ggml_tensor* ReferenceAttention::evict(ggml_context*, int layer, ggml_tensor*) {
  evictions_.push_back(layer);
  return nullptr;
}

void ReferenceAttention::fill_masks() {
  for (const auto& [window, tensor] : masks_) {
    const std::int64_t keys = tensor->ne[0], queries = tensor->ne[1];
    std::vector<float> values(static_cast<std::size_t>(keys * queries));
    for (std::int64_t query = 0; query < queries; ++query) {
      for (std::int64_t key = 0; key < keys; ++key) {
        const bool seen = key <= query && (window == 0 || query - key < window);
        values[static_cast<std::size_t>(query * keys + key)] = seen ? 0.0f : -INFINITY;
      }
    }
    ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
  }
}

namespace {

void set(ggml_tensor* tensor, std::span<const std::int32_t> values) {
  if (tensor != nullptr) ggml_backend_tensor_set(tensor, values.data(), 0, values.size_bytes());
}

std::vector<std::int32_t> first_numbers(std::size_t count) {
  std::vector<std::int32_t> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<std::int32_t>(i);
  return numbers;
}

}  // namespace

Result<std::vector<float>> reference_logits(const GraphModel& model, std::span<const Token> sequence,
                                            std::span<const std::int32_t> outputs, int threads) {
  const std::size_t nodes = model.graph_nodes();
  const ggml_init_params params{ggml_tensor_overhead() * nodes * 2 + ggml_graph_overhead_custom(nodes, false),
                                nullptr, true};
  const std::unique_ptr<ggml_context, decltype(&ggml_free)> context(ggml_init(params), ggml_free);
  const std::unique_ptr<ggml_backend, decltype(&ggml_backend_free)> backend(ggml_backend_cpu_init(),
                                                                            ggml_backend_free);
  ggml_backend_cpu_set_n_threads(backend.get(), threads);
  ReferenceAttention attention(model.hparams());
  const StepShape shape{static_cast<std::int32_t>(sequence.size()),
                        static_cast<std::int32_t>(outputs.size())};
  const StepGraph step = model.build(context.get(), shape, attention);
  const std::unique_ptr<ggml_gallocr, decltype(&ggml_gallocr_free)> allocator(
      ggml_gallocr_new(ggml_backend_cpu_buffer_type()), ggml_gallocr_free);
  if (!ggml_gallocr_alloc_graph(allocator.get(), step.graph))
    return Error{ErrorCode::kOutOfMemory, "graph memory"};
  set(step.tokens, sequence);
  set(step.positions, first_numbers(sequence.size()));
  set(step.output_ids, outputs);
  attention.fill_masks();
  if (ggml_backend_graph_compute(backend.get(), step.graph) != GGML_STATUS_SUCCESS) {
    return Error{ErrorCode::kInternal, "the graph failed"};
  }
  std::vector<float> logits(step.logits == nullptr ? 0
                                                   : static_cast<std::size_t>(ggml_nelements(step.logits)));
  if (step.logits != nullptr)
    ggml_backend_tensor_get(step.logits, logits.data(), 0, ggml_nbytes(step.logits));
  return logits;
}

}  // namespace keynest::test
