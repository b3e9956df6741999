#include "bench/ggml_ops.h"

#include <ggml-cpu.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "bench/fixtures.h"

namespace keynest::bench {
namespace {

struct FreeContext {
  void operator()(ggml_context* context) const { ggml_free(context); }
};
using Context = std::unique_ptr<ggml_context, FreeContext>;

/// A graph of one operation, with what it reads.
class Graph : public GgmlOp {
 public:
  explicit Graph(std::size_t bytes) : context_(ggml_init({bytes + (1u << 20), nullptr, false})) {}
  ggml_context* context() const { return context_.get(); }

  void finish(ggml_tensor* out) {
    graph_ = ggml_new_graph(context_.get());
    ggml_build_forward_expand(graph_, out);
    plan_ = ggml_graph_plan(graph_, 1, nullptr);
    work_.resize(plan_.work_size);
    plan_.work_data = work_.data();
  }
  void run() override { ggml_graph_compute(graph_, &plan_); }

 private:
  Context context_;
  ggml_cgraph* graph_ = nullptr;
  ggml_cplan plan_{};
  std::vector<std::uint8_t> work_;
};

void fill_normal(ggml_tensor* tensor) {
  const auto numbers = normal_numbers(static_cast<std::size_t>(ggml_nelements(tensor)));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (tensor->type == GGML_TYPE_F16) {
      static_cast<ggml_fp16_t*>(tensor->data)[i] = ggml_fp32_to_fp16(numbers[i]);
    } else {
      static_cast<float*>(tensor->data)[i] = numbers[i];
    }
  }
}

/// mask [keys, tokens]: query t sees the keys up to its own, which is key keys - tokens + t.
void fill_mask(ggml_tensor* mask, int keys, int tokens) {
  auto* out = static_cast<ggml_fp16_t*>(mask->data);
  for (int t = 0; t < tokens; ++t) {
    for (int key = 0; key < keys; ++key) {
      const bool visible = key <= keys - tokens + t;
      *out++ = ggml_fp32_to_fp16(visible ? 0.0f : -std::numeric_limits<float>::infinity());
    }
  }
}

}  // namespace

std::unique_ptr<GgmlOp> ggml_attention(int head_dim, int keys, int tokens, int group) {
  const std::size_t n = size(keys), d = size(head_dim), rows = size(tokens) * size(group);
  auto graph = std::make_unique<Graph>(n * d * 4 + rows * d * 8 + n * size(tokens) * 2);
  ggml_context* c = graph->context();
  ggml_tensor* q = ggml_new_tensor_3d(c, GGML_TYPE_F32, head_dim, tokens, group);
  ggml_tensor* k = ggml_new_tensor_3d(c, GGML_TYPE_F16, head_dim, keys, 1);
  ggml_tensor* v = ggml_new_tensor_3d(c, GGML_TYPE_F16, head_dim, keys, 1);
  ggml_tensor* mask = ggml_new_tensor_2d(c, GGML_TYPE_F16, keys, tokens);
  for (ggml_tensor* tensor : {q, k, v}) fill_normal(tensor);
  fill_mask(mask, keys, tokens);
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  graph->finish(ggml_flash_attn_ext(c, q, k, v, mask, scale, 0.0f, 0.0f));
  return graph;
}

}  // namespace keynest::bench
