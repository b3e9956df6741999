#include "bench/ggml_ops.h"

#include <ggml-cpu.h>

#include <algorithm>
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

struct FreePool {
  void operator()(ggml_threadpool* pool) const { ggml_threadpool_free(pool); }
};
using Pool = std::unique_ptr<ggml_threadpool, FreePool>;

Pool new_pool(int threads) {
  ggml_threadpool_params params = ggml_threadpool_params_default(threads);
  return Pool(ggml_threadpool_new(&params));
}

/// Graphs of one operation each, with what they read; a run computes the next one.
class Graphs : public GgmlOp {
 public:
  Graphs(std::size_t bytes, int threads)
      : context_(ggml_init({bytes + (1u << 20), nullptr, false})),
        threads_(threads),
        pool_(new_pool(threads)) {}
  ggml_context* context() const { return context_.get(); }

  void add(ggml_tensor* out) {
    ggml_cgraph* graph = ggml_new_graph_custom(context_.get(), kNodes, false);
    ggml_build_forward_expand(graph, out);
    graphs_.push_back(graph);
    plan_ = ggml_graph_plan(graph, threads_, pool_.get());
    work_.resize(std::max(work_.size(), plan_.work_size));
    plan_.work_data = work_.data();
  }
  void run() override {
    ggml_graph_compute(graphs_[next_], &plan_);
    next_ = (next_ + 1) % graphs_.size();
  }

  static constexpr std::size_t kNodes = 16;

 private:
  Context context_;
  int threads_;
  Pool pool_;
  std::vector<ggml_cgraph*> graphs_;
  std::size_t next_ = 0;
  ggml_cplan plan_{};  // the same for all: they have one shape
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

std::unique_ptr<GgmlOp> ggml_attention(const GgmlAttention& shape) {
  const auto [d, keys, tokens, group, heads, turns, threads] = shape;
  const std::size_t entries = size(keys) * size(heads) * size(turns), rows = size(tokens * group * heads);
  const std::size_t overhead = ggml_graph_overhead_custom(Graphs::kNodes, false) + 8 * ggml_tensor_overhead();
  auto graphs = std::make_unique<Graphs>(
      entries * size(d) * 4 + size(turns) * (rows * size(d) * 8 + overhead) + size(keys) * size(tokens) * 2,
      threads);
  ggml_context* c = graphs->context();
  ggml_tensor* mask = ggml_new_tensor_2d(c, GGML_TYPE_F16, keys, tokens);
  fill_mask(mask, keys, tokens);
  for (int turn = 0; turn < turns; ++turn) {
    ggml_tensor* q = ggml_new_tensor_3d(c, GGML_TYPE_F32, d, tokens, group * heads);
    ggml_tensor* k = ggml_new_tensor_3d(c, GGML_TYPE_F16, d, keys, heads);
    ggml_tensor* v = ggml_new_tensor_3d(c, GGML_TYPE_F16, d, keys, heads);
    for (ggml_tensor* tensor : {q, k, v}) fill_normal(tensor);
    const float scale = 1.0f / std::sqrt(static_cast<float>(d));
    graphs->add(ggml_flash_attn_ext(c, q, k, v, mask, scale, 0.0f, 0.0f));
  }
  return graphs;
}

}  // namespace keynest::bench
